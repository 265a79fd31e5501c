//! The methods that guards have of their holds, written once. [`Guard`](crate::Guard) alone
//! documents the same in words and examples of its own.
//!
//! The guards of recipes do not lend the `Guard` that they are made of. Its borrower could enter
//! the hold by it and make a share of a hold that the others take for the lock.

/// Adds the methods of a hold to types with a `fn hold(&self) -> &HoldHandle`.
macro_rules! held {
    ($($guard:ident),+) => {$(
        impl $guard {
            /// Completes when the hold is lost, with the reason; never while it is held.
            ///
            /// # Cancel safety
            /// Dropping the future changes nothing; a loss in between is told by the next call.
            pub async fn lost(&self) -> $crate::LostReason {
                self.hold().lost().await
            }

            /// A token that is cancelled when the hold is over. See
            /// [`Guard::cancellation_token`](crate::Guard::cancellation_token).
            pub fn cancellation_token(&self) -> tokio_util::sync::CancellationToken {
                self.hold().cancellation_token()
            }

            /// A watch on the hold that does not keep it. See
            /// [`Guard::watch`](crate::Guard::watch).
            pub fn watch(&self) -> $crate::LossWatch {
                self.hold().watch()
            }

            /// Runs `future` until it completes or the hold is lost, whichever is first. See
            /// [`Guard::protect`](crate::Guard::protect).
            ///
            /// # Errors
            /// [`Lost`](crate::Lost): it was lost before `future` completed, and `future` was
            /// dropped where it stood.
            ///
            /// # Cancel safety
            /// Dropping this drops `future`; the hold goes on.
            pub async fn protect<F: Future>(&self, future: F) -> Result<F::Output, $crate::Lost> {
                self.hold().protect(future).await
            }

            /// Lets the hold end no earlier than `lease` from now: it never becomes shorter. A hold
            /// without a lease stays without one. The new end applies to all that was granted
            /// together.
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
            /// The fencing token, of permits that of the first, if it is held at this instant. As
            /// [`Guard::fence`](crate::Guard::fence): cheap, no message.
            ///
            /// # Errors
            /// [`Lost`](crate::Lost) with the reason, for good. Nothing is changed by asking.
            pub fn fence(&self) -> Result<$crate::Token, $crate::Lost> {
                self.hold().fence()
            }

            /// Releases the hold and says whether it was held until now. Does not wait for the
            /// grantor.
            ///
            /// # Errors
            /// [`ReleaseError::Lost`](crate::ReleaseError::Lost): it had been lost before. It is
            /// released all the same.
            ///
            /// # Cancel safety
            /// Dropping the future releases it too.
            pub async fn release(self) -> Result<(), $crate::ReleaseError> {
                self.into_hold().release()
            }

            /// Releases the hold, and waits until the grantor has heard of it. See
            /// [`Guard::release_and_confirm`](crate::Guard::release_and_confirm).
            ///
            /// # Errors
            /// [`ReleaseError::Lost`](crate::ReleaseError::Lost): it had been lost before.
            /// [`ReleaseError::Unconfirmed`](crate::ReleaseError::Unconfirmed): no grantor has
            /// answered. It is released all the same.
            ///
            /// # Cancel safety
            /// Dropping the future releases it too.
            pub async fn release_and_confirm(self) -> Result<(), $crate::ReleaseError> {
                self.into_hold().release_confirmed().await
            }

            /// The token as a number for logs, without a claim that the hold goes on.
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
