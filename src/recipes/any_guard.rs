//! `AnyGuard` and `Fenced`: the methods of every guard, for generic code.

use super::double_barrier::DoubleBarrierGuard;
use super::leadership::Term;
use super::multi_lock::MultiGuard;
use super::mutex::MutexGuard;
use super::read_write_lock::{ReadGuard, WriteGuard};
use super::reentrant_mutex::ReentrantGuard;
use crate::protocol::{LineageId, LostReason, Token};
use crate::service::{BatchGuard, Guard, Lost, Permit, PermitGuard, ReleaseError, SuspendGuard};

/// One fencing token and its lineage, with the check whether the hold continues. Every guard of one
/// name has this trait, and so has a leader's [`Term`].
///
/// A resource compares the pair of token and lineage, see [`TokenGate`](crate::TokenGate). Code
/// that writes to such a resource takes `&impl Fenced` and works with each of these types. A
/// [`BatchGuard`] and a [`MultiGuard`] have a token for each name, and return it by the name.
///
/// A program may implement the trait for a type of its own, for example for a pair that came over
/// the network.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::{Fenced, Lost, ReadWriteLock, TokenGate};
/// fn admit(gate: &mut TokenGate, holder: &impl Fenced) -> Result<bool, Lost> {
///     Ok(gate.admit(holder.fence()?, holder.lineage()).is_ok())
/// }
///
/// let member = elderlock::Member::local().await?;
/// let stock = member.lock_service("inventory").await?;
/// let mut gate = TokenGate::new();
/// let plain = stock.lock("sku-42").await?;
/// assert!(admit(&mut gate, &plain)?);
/// plain.release().await?;
/// let writer = ReadWriteLock::new(&stock, "sku-42").write().await?;
/// assert!(admit(&mut gate, &writer)?);
/// # Ok(()) }
/// ```
pub trait Fenced {
    /// The fencing token, if the hold continues at this instant. See [`Guard::fence`].
    ///
    /// # Errors
    /// [`Lost`] with the reason, for good. Asking changes nothing. A [`Term`] that was given up has
    /// the reason [`LostReason::Released`].
    fn fence(&self) -> Result<Token, Lost>;

    /// The lineage that dealt the token. See [`Guard::lineage`].
    fn lineage(&self) -> LineageId;

    /// Returns whether other holders may have the same name at the same time: a share, or permits.
    /// Their tokens do not order writes: a resource that admits the highest would refuse holders
    /// that are not stale.
    fn is_shared(&self) -> bool;
}

/// Every kind of guard: [`Guard`], [`BatchGuard`], [`SuspendGuard`], [`PermitGuard`], [`Permit`]
/// and the guards of the recipes. With this trait generic code waits for a loss, and releases the
/// guard.
///
/// The trait is sealed: a value of such a type is a hold of this library.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::{AnyGuard, ReleaseError};
/// /// Works until it is done or the guard is lost, and releases the guard.
/// async fn with<G: AnyGuard>(
///     guard: G,
///     work: impl Future<Output = ()>,
/// ) -> Result<(), ReleaseError> {
///     tokio::select! {
///         _ = guard.lost() => {}
///         () = work => {}
///     }
///     guard.release().await
/// }
///
/// let member = elderlock::Member::local().await?;
/// let stock = member.lock_service("inventory").await?;
/// with(stock.lock("sku-42").await?, async {}).await?;
/// with(stock.lock_all(["sku-42", "sku-43"]).await?, async {}).await?;
/// with(stock.suspend().await?, async {}).await?;
/// # Ok(()) }
/// ```
pub trait AnyGuard: sealed::SealedGuard + Send + Sync + Sized {
    /// Completes when the hold is lost, with the reason; never while it is held. For a guard of
    /// several locks: when any of them is lost.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; the next call reports a loss in between.
    fn lost(&self) -> impl Future<Output = LostReason> + Send;

    /// Releases the hold and returns whether it was held until now. Does not wait for the grantor.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the hold had been lost before. It is released in any case.
    ///
    /// # Cancel safety
    /// Dropping the future releases the hold too.
    fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send;
}

mod sealed {
    pub trait SealedGuard {}
}

/// Implements `AnyGuard` for guards that have inherent methods of these names.
macro_rules! any_guard {
    ($($guard:ident . $release:ident),+) => {$(
        impl sealed::SealedGuard for $guard {}

        impl AnyGuard for $guard {
            async fn lost(&self) -> LostReason {
                $guard::lost(self).await
            }

            async fn release(self) -> Result<(), ReleaseError> {
                $guard::$release(self).await
            }
        }
    )+};
}

any_guard!(
    Guard.release,
    MutexGuard.release,
    ReentrantGuard.release,
    ReadGuard.release,
    WriteGuard.release
);
any_guard!(
    BatchGuard.release,
    MultiGuard.release,
    SuspendGuard.resume,
    PermitGuard.release,
    Permit.release
);

/// Implements the trait for guards of one name, with a function that says whether other holders may
/// have the name too.
macro_rules! fenced {
    ($($guard:ident: $shared:expr),+ $(,)?) => {$(
        impl Fenced for $guard {
            fn fence(&self) -> Result<Token, Lost> {
                $guard::fence(self)
            }

            fn lineage(&self) -> LineageId {
                $guard::lineage(self)
            }

            fn is_shared(&self) -> bool {
                let shared: fn(&$guard) -> bool = $shared;
                shared(self)
            }
        }
    )+};
}

fenced! {
    Guard: Guard::is_shared,
    MutexGuard: |_| false,
    ReentrantGuard: |_| false,
    WriteGuard: |_| false,
    SuspendGuard: |_| false,
    ReadGuard: |_| true,
    PermitGuard: |_| true,
    Permit: |_| true,
    DoubleBarrierGuard: |_| true,
}

/// Implements the trait for a term, and for types that last as long as a term.
macro_rules! fenced_by_term {
    ($of:ident) => {
        impl $crate::Fenced for $of {
            fn fence(&self) -> Result<$crate::Token, $crate::Lost> {
                $of::fence(self).map_err($crate::TermEnd::lost)
            }

            fn lineage(&self) -> $crate::LineageId {
                $of::lineage(self)
            }

            fn is_shared(&self) -> bool {
                false
            }
        }
    };
}

pub(super) use fenced_by_term;

fenced_by_term!(Term);
