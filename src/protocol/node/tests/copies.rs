//! A copy of a table between two members: its messages and bounds, and the reasons for its end.

use super::*;
use crate::protocol::locks::grantor::ReceivedRequest;

/// Messages, each with its receiver.
pub(super) type Said = Vec<(ProcessId, Message)>;

const RANGE: TokenRange = TokenRange { first: token(100), last: token(2_000) };
const EPOCH: Epoch = Epoch(token(100));
const HOLDS: usize = 30;
const SLICE: u32 = 4;

fn asked(from: ProcessId, request: u64, want: Want) -> ReceivedRequest {
    let owner = OwnerId::default();
    let lock = LockRequest { want, owner, revocable: false, metadata: Metadata::default() };
    ReceivedRequest { keep: 0, from, request: RequestId(request), only_if_free: false, lock }
}

/// A member of three, whose steps have small slices.
pub(super) fn member() -> Node {
    let mut node = with_two_more();
    node.cluster.config.limits.slice = SLICE;
    node
}

pub(super) fn act(node: &mut Node, role: impl FnOnce(&mut Locks, &mut StepContext)) -> Said {
    let outbox = node.cx(NOW, &mut Vec::new(), |locks, cx| {
        cx.standing.leased = true;
        role(locks, cx);
    });
    outbox.into()
}

pub(super) fn hear(node: &mut Node, message: Message) -> Said {
    act(node, |locks, cx| locks.on_message(ANN, message, cx))
}

fn to_grantor(message: GrantorMessage) -> Message {
    Message::Grantor(message)
}

/// A member whose grantor has holds of `BOB`, and which `ANN` may copy.
fn granting() -> Node {
    granting_at(member())
}

/// A grantor with these holds at `node`.
pub(super) fn granting_at(mut node: Node) -> Node {
    let view = node.cluster.view.clone().expect("it has founded");
    act(&mut node, |locks, cx| {
        let mut grantor = Grantor::new(service(), RANGE, Origin::Free, &view, cx);
        for (number, name) in names(HOLDS).into_iter().enumerate() {
            grantor.on_request_lock(asked(BOB, number as u64 + 1, Want::Lock(name)), cx);
        }
        locks.grantors.insert(service(), grantor);
    });
    node
}

/// A member that knows `ANN` as the grantor, and bids. Returns its messages.
fn bidding() -> (Node, Said) {
    bidding_at(member())
}

/// A bid of `node` against the grantor `ANN`.
pub(super) fn bidding_at(mut node: Node) -> (Node, Said) {
    let said = act(&mut node, |locks, cx| {
        cx.standing.is_member = true;
        locks.client.on_grantor_is(&service(), ANN, EPOCH, cx);
        let (request, wait) = (RequestId(1), Wait::Forever);
        locks.on_command(Command::Become { request, service: service(), wait }, &|_| false, cx);
    });
    (node, said)
}

fn is_bid(message: &(ProcessId, Message)) -> bool {
    matches!(message.1, Message::Registry(RegistryMessage::Become { .. }))
}

fn copy_table(taken: u64) -> Message {
    to_grantor(GrantorMessage::CopyTable { service: service(), epoch: EPOCH, copy: 1, taken })
}

fn is_no_copy(message: &(ProcessId, Message)) -> bool {
    matches!(message.1, Message::Grantor(GrantorMessage::NoCopy { copy: 1, .. }))
}

/// Lets the turk copy the whole table. Returns the number of parts.
pub(super) fn copied(grantor: &mut Node, turk: &mut Node, mut said: Said) -> usize {
    let mut parts = 0;
    for _ in 0..1_000 {
        if said.iter().any(is_bid) {
            return parts;
        }
        let answers: Vec<_> =
            said.into_iter().flat_map(|(_, message)| hear(grantor, message)).collect();
        parts += answers.len();
        said = answers.into_iter().flat_map(|(_, message)| hear(turk, message)).collect();
    }
    panic!("the turk does not bid");
}

/// Names the turk, and lets it ask for the table.
pub(super) fn named(turk: &mut Node) -> Message {
    let asked = Some(RequestId(1));
    let said = act(turk, |locks, cx| {
        cx.standing.is_member = true;
        let tenure = cx.view.expect("it has founded").tenure;
        let range = TokenRange { first: Token::new(tenure, 1), last: Token::new(tenure, 99) };
        locks.on_name_grantor((service(), asked), range, Origin::Predecessor(ANN), cx);
    });
    let asks = said.into_iter().map(|(_, message)| message);
    let is_it = |message: &Message| {
        matches!(message, Message::Grantor(GrantorMessage::RequestTable { .. }))
    };
    asks.into_iter().find(is_it).expect("it asks for the table")
}

#[test]
fn a_bid_waits_for_the_copy_and_the_last_changes_complete_it() {
    let (mut grantor, (mut turk, said)) = (granting(), bidding());
    assert!(!said.iter().any(is_bid), "{said:?}");
    let parts = copied(&mut grantor, &mut turk, said);
    assert!(parts >= HOLDS / SLICE as usize, "{parts} parts");
    // Changes after the copy: an end, and a new hold with a waiter.
    act(&mut grantor, |locks, cx| {
        let grantor = locks.grantors.get_mut(&service()).expect("it grants");
        grantor.on_release(BOB, RequestId(3), cx);
        grantor.on_request_lock(asked(BOB, 500, want("new")), cx);
        grantor.on_request_lock(asked(ANN, 501, want("new")), cx);
    });
    let own = grantor.contents(&service(), NOW);
    let asks = named(&mut turk);
    let said = hear(&mut grantor, asks);
    assert!(grantor.grantors().next().is_none(), "its epoch is over");
    let kinds: Vec<_> = said.iter().filter(|(to, _)| *to == ANN).collect();
    assert!(!kinds.iter().any(|(_, message)| {
        matches!(message, Message::Grantor(GrantorMessage::TableChunk { .. }))
    }));
    for (_, message) in said {
        if let Message::Grantor(_) = message {
            hear(&mut turk, message);
        }
    }
    assert!(turk.load(&service()).is_some(), "it acts");
    assert_eq!(turk.contents(&service(), NOW), own);
    assert_eq!(turk.locks.grantors.len(), 1);
}

#[test]
fn a_copy_with_another_seal_is_dropped_and_every_member_is_asked() {
    let (mut grantor, (mut turk, said)) = (granting(), bidding());
    copied(&mut grantor, &mut turk, said);
    let asks = named(&mut turk);
    let mut asked = Vec::new();
    for (_, message) in hear(&mut grantor, asks) {
        match message {
            Message::Grantor(GrantorMessage::TableRest {
                service,
                epoch,
                copy,
                mut seal,
                kept,
            }) => {
                seal.holds += 1;
                let rest = GrantorMessage::TableRest { service, epoch, copy, seal, kept };
                asked = hear(&mut turk, to_grantor(rest));
            }
            Message::Grantor(_) => drop(hear(&mut turk, message)),
            _ => {}
        }
    }
    let is_asked = |process| {
        asked.iter().any(|(to, message)| {
            *to == process && matches!(message, Message::Client(ClientMessage::Recover { .. }))
        })
    };
    assert!(is_asked(ANN) && is_asked(BOB), "{asked:?}");
    assert!(turk.load(&service()).is_none());
    assert!(!turk.locks.has_copies());
}

#[test]
fn a_later_copy_takes_the_place_of_the_earlier_one() {
    let mut grantor = granting();
    assert_eq!(hear(&mut grantor, copy_table(0)).len(), 2, "two parts are on their way");
    assert_eq!(hear(&mut grantor, copy_table(0)).len(), 0, "none was taken");
    assert_eq!(hear(&mut grantor, copy_table(1)).len(), 1);
    let said = act(&mut grantor, |locks, cx| locks.on_message(BOB, copy_table(0), cx));
    assert!(said.iter().any(|message| message.0 == ANN && is_no_copy(message)), "{said:?}");
    assert_eq!(said.iter().filter(|(to, _)| *to == BOB).count(), 2);
    let said = hear(&mut grantor, copy_table(2));
    assert!(said.len() == 1 && is_no_copy(&said[0]), "{said:?}");
}

#[test]
fn a_table_of_one_slice_is_not_copied() {
    let mut grantor = granting();
    grantor.cluster.config.limits.slice = HOLDS as u32;
    let said = hear(&mut grantor, copy_table(0));
    assert!(said.len() == 1 && is_no_copy(&said[0]), "{said:?}");
}

#[test]
fn a_bid_goes_out_when_its_copy_is_over() {
    let ends: [fn(&mut Node) -> Said; 4] = [
        |turk| hear(turk, to_grantor(GrantorMessage::NoCopy { service: service(), copy: 1 })),
        // The part before it is missing.
        |turk| {
            let part = GrantorMessage::CopyPart {
                service: service(),
                copy: 1,
                part: 2,
                objects: Box::default(),
                holds: Vec::new(),
                waits: Vec::new(),
                over: Box::default(),
                whole: false,
            };
            hear(turk, to_grantor(part))
        },
        |turk| {
            act(turk, |locks, cx| {
                cx.now = cx.now + cx.timing.member_lease;
                locks.tend_copies(cx);
            })
        },
        |turk| act(turk, Locks::end_copies),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let (mut turk, said) = bidding();
        assert!(said.iter().any(|(to, message)| *to == ANN && *message == copy_table(0)));
        assert!(act(&mut turk, Locks::tend_copies).is_empty());
        let said = end(&mut turk);
        assert_eq!(said.iter().filter(|said| is_bid(said)).count(), 1, "{number}: {said:?}");
        assert!(!turk.locks.has_copies());
    }
}

#[test]
fn a_leaving_grantor_proposes_the_successor_that_has_a_copy() {
    let mut grantor = granting();
    let is_proposed = |said: &[(ProcessId, Message)]| {
        said.iter().any(|(_, message)| {
            matches!(message, Message::Registry(RegistryMessage::ProposeSuccessor { .. }))
        })
    };
    let said = act(&mut grantor, |locks, cx| locks.depart_service(&service(), cx));
    let offered = |(to, message): &(ProcessId, Message)| {
        let is_offer = matches!(message, Message::Grantor(GrantorMessage::OfferCopy { .. }));
        is_offer.then_some(*to)
    };
    assert!(!is_proposed(&said), "{said:?}");
    assert_eq!(said.iter().find_map(offered), Some(BOB), "it has the most holds");
    let mut taken = 0;
    let mut ask = |grantor: &mut Node| {
        let said = act(grantor, |locks, cx| locks.on_message(BOB, copy_table(taken), cx));
        taken += 1;
        said
    };
    assert!(!is_proposed(&ask(&mut grantor)));
    let said = act(&mut grantor, |locks, cx| locks.depart_service(&service(), cx));
    assert!(is_proposed(&said), "no part was taken since the offer");
    let proposed = (0..2 * HOLDS).any(|_| is_proposed(&ask(&mut grantor)));
    assert!(proposed, "the copy is whole");
}

#[test]
fn an_offer_of_an_epoch_that_is_over_or_was_never_dealt_begins_no_copy() {
    let offered = |known: Option<Epoch>, epoch: Epoch| {
        let mut node = member();
        act(&mut node, |locks, cx| {
            cx.standing.is_member = true;
            if let Some(known) = known {
                locks.client.on_grantor_is(&service(), BOB, known, cx);
            }
            let offer = GrantorMessage::OfferCopy { service: service(), epoch };
            cx.outbox.clear();
            locks.on_message(ANN, to_grantor(offer), cx);
        })
    };
    for known in [None, Some(EPOCH)] {
        let said = offered(known, EPOCH);
        assert_eq!(said, [(ANN, copy_table(0))], "{known:?}");
    }
    assert!(offered(Some(Epoch(token(101))), EPOCH).is_empty(), "the epoch is over");
    let undealt = Epoch(Token::new(Slot(u64::from(u32::MAX)), 1));
    assert!(offered(None, undealt).is_empty(), "no elder dealt the epoch");
}

#[test]
fn a_copy_with_more_of_a_member_than_a_grantor_keeps_is_dropped() {
    let mut small = member();
    small.cluster.config.limits.link.request_bytes = 64;
    let most = small.cluster.config.limits.table_bytes();
    let (mut grantor, (mut turk, said)) = (granting(), bidding_at(small));
    copied(&mut grantor, &mut turk, said);
    assert!(!turk.locks.has_copies(), "{HOLDS} holds have more than {most} bytes");
}

#[test]
fn a_copy_with_more_processes_than_members_can_have_left_is_dropped() {
    let of_processes = |count: u128| {
        let (mut turk, _) = bidding();
        let held = names(count as usize).into_iter().zip(1..).map(|(name, number)| {
            let mut hold = hold("any", number);
            hold.lock.want = Want::Lock(name);
            (ProcessId(1_000 + u128::from(number)), hold)
        });
        let part = GrantorMessage::CopyPart {
            service: service(),
            copy: 1,
            part: 1,
            objects: Box::default(),
            holds: held.collect(),
            waits: Vec::new(),
            over: Box::default(),
            whole: false,
        };
        hear(&mut turk, to_grantor(part));
        turk.locks.has_copies()
    };
    assert!(of_processes(6), "twice as many as there are members");
    assert!(!of_processes(7));
}

#[test]
fn a_transferred_table_is_freed_slice_by_slice_with_pauses() {
    let (mut grantor, (mut turk, said)) = (granting(), bidding());
    copied(&mut grantor, &mut turk, said);
    let asks = named(&mut turk);
    hear(&mut grantor, asks);
    let size = |node: &Node| {
        let mut sizes = Sizes::default();
        node.locks.count(&mut sizes);
        sizes.granting
    };
    let pause = grantor.view().expect("it has founded").timing.pause();
    let (mut now, mut left) = (NOW, size(&grantor));
    assert!(left > 0);
    while grantor.locks.is_unfinished() {
        assert_eq!(grantor.locks.deadline(), now + pause);
        for (at, frees) in [(now, false), (now + pause, true)] {
            let step = |locks: &mut Locks, cx: &mut StepContext| {
                cx.now = at;
                locks.go_on(cx);
            };
            act(&mut grantor, step);
            assert_eq!(size(&grantor) < left, frees);
        }
        (now, left) = (now + pause, size(&grantor));
    }
    assert_eq!(left, 0);
}
