//! The methods that guards have for their holds, written once. [`Guard`](crate::Guard) alone
//! documents the same methods in its own words and with examples.
//!
//! The guards of recipes do not lend the `Guard` that they are made of. A borrower could enter the
//! hold with it, and turn a lock into a share while other guards count on the lock.

/// Adds the methods of a hold to types with a `fn hold(&self) -> &HoldHandle`.
macro_rules! held {
    ($($guard:ident),+) => {$(
        impl $guard {
            /// Completes when the hold is lost, with the reason; never while it is held.
            ///
            /// # Cancel safety
            /// Dropping the future changes nothing; the next call reports a loss in between.
            pub async fn lost(&self) -> $crate::LostReason {
                self.hold().lost().await
            }

            /// A token that is cancelled when the hold is over. See
            /// [`Guard::cancellation_token`](crate::Guard::cancellation_token).
            pub fn cancellation_token(&self) -> tokio_util::sync::CancellationToken {
                self.hold().cancellation_token()
            }

            /// A watch on the hold that does not keep it held. See
            /// [`Guard::watch`](crate::Guard::watch).
            pub fn watch(&self) -> $crate::LossWatch {
                self.hold().watch()
            }

            /// Runs `future` until it completes or the hold is lost, whichever is first. See
            /// [`Guard::protect`](crate::Guard::protect).
            ///
            /// # Errors
            /// [`Lost`](crate::Lost): the hold was lost before `future` completed, and `future` was
            /// dropped where it stood.
            ///
            /// # Cancel safety
            /// Dropping this future drops `future`; the hold continues.
            pub async fn protect<F: Future>(&self, future: F) -> Result<F::Output, $crate::Lost> {
                self.hold().protect(future).await
            }

            /// Lets the hold end no earlier than `lease` from now: the hold never becomes shorter.
            /// A hold without a lease stays without one. The new end applies to all locks that were
            /// granted together.
            ///
            /// # Errors
            /// As for [`Guard::extend`](crate::Guard::extend).
            pub fn extend(&self, lease: std::time::Duration) -> Result<(), $crate::ExtendError> {
                self.hold().extend(lease)
            }

            /// The requests to release the hold. See
            /// [`Guard::revocation`](crate::Guard::revocation). Locks that were granted together
            /// are revoked together.
            pub fn revocation(&self) -> $crate::Revocation {
                self.hold().revocation()
            }

            /// The lineage that dealt the tokens. See [`Guard::lineage`](crate::Guard::lineage).
            pub fn lineage(&self) -> $crate::LineageId {
                self.hold().lineage()
            }

            /// The service's name.
            pub fn service(&self) -> &str {
                self.hold().service_name()
            }
        }
    )+};
}

/// The further methods of types with a `fn into_hold(self) -> HoldHandle` that have one token, of
/// one name.
macro_rules! held_by_token {
    ($($guard:ident),+) => {$(
        impl $guard {
            /// The fencing token, for permits that of the first one, if the hold is good at this
            /// instant. As cheap as [`Guard::fence`](crate::Guard::fence): no message.
            ///
            /// # Errors
            /// [`Lost`](crate::Lost) with the reason, for good. Asking changes nothing.
            pub fn fence(&self) -> Result<$crate::Token, $crate::Lost> {
                self.hold().fence()
            }

            /// Releases the hold and returns whether it was good until now. Does not wait for the
            /// grantor.
            ///
            /// # Errors
            /// [`ReleaseError::Lost`](crate::ReleaseError::Lost): the hold had been lost before. It
            /// is released in any case.
            ///
            /// # Cancel safety
            /// Dropping the future releases the hold too.
            pub async fn release(self) -> Result<(), $crate::ReleaseError> {
                self.into_hold().release()
            }

            /// Releases the hold, and waits until the grantor knows that. See
            /// [`Guard::release_and_confirm`](crate::Guard::release_and_confirm).
            ///
            /// # Errors
            /// [`ReleaseError::Lost`](crate::ReleaseError::Lost): the hold had been lost before.
            /// [`ReleaseError::Unconfirmed`](crate::ReleaseError::Unconfirmed): no grantor has
            /// answered. The hold is released in any case.
            ///
            /// # Cancel safety
            /// Dropping the future releases the hold too.
            pub async fn release_and_confirm(self) -> Result<(), $crate::ReleaseError> {
                self.into_hold().release_confirmed().await
            }

            /// The token as a number for logs, without a claim that the hold continues.
            pub fn token(&self) -> $crate::Token {
                self.hold().token()
            }

            /// The name of the held lock or object.
            pub fn name(&self) -> &[u8] {
                self.hold().name()
            }
        }
    )+};
}

pub(crate) use {held, held_by_token};
