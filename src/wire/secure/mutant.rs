//! Planted breaks of the keys' checks, to prove that the tests can fail. They work only with `--cfg
//! elderlock_mutants`.

use std::cell::Cell;

thread_local! {
    static PLANTED: Cell<Option<KeyMutant>> = const { Cell::new(None) };
}

/// One planted break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyMutant {
    /// A process id is believed though it does not fit the static key.
    BelieveAnyId,
    /// The replay window moves before the tag is checked.
    MoveWindowFirst,
    /// The tag of a first packet is not checked.
    SkipPacketTag,
    /// A datagram for another process is accepted.
    HearForOthers,
    /// The chosen version is not compared with what both sides offer.
    BelieveAnyVersion,
    /// The role of a key is not compared with the purpose of its holder.
    AdmitAnyRole,
    /// A relayed packet is accepted though its origin has not sealed it.
    TakeUnsealedRelays,
    /// A relayed packet is accepted again.
    TakeRepeatedRelays,
    /// The origin of a relayed packet is believed though its static key does not fit its id.
    BelieveAnyOrigin,
}

impl KeyMutant {
    /// All planted breaks of this list.
    pub const ALL: [KeyMutant; 9] = [
        KeyMutant::BelieveAnyId,
        KeyMutant::MoveWindowFirst,
        KeyMutant::SkipPacketTag,
        KeyMutant::HearForOthers,
        KeyMutant::BelieveAnyVersion,
        KeyMutant::AdmitAnyRole,
        KeyMutant::TakeUnsealedRelays,
        KeyMutant::TakeRepeatedRelays,
        KeyMutant::BelieveAnyOrigin,
    ];
}

/// Plants a break on this thread, or removes it.
pub fn plant(mutant: Option<KeyMutant>) {
    PLANTED.set(mutant);
}

pub(super) fn is_planted(mutant: KeyMutant) -> bool {
    PLANTED.get() == Some(mutant)
}
