//! What the guards of recipes have of a [`Guard`](crate::Guard). They do not lend it: whoever had it could enter the hold by it and
//! make a share of what the others take for the lock.

/// Writes it for a type that is a tuple of the guard.
macro_rules! guards {
    ($($guard:ident),+) => {$(
        impl $guard {
            /// The fencing token, if it is held at this instant. As [`Guard::fence`](crate::Guard::fence): cheap, no message.
            ///
            /// # Errors
            /// [`Lost`](crate::Lost) with the reason, for good. Nothing is changed by asking.
            pub fn fence(&self) -> Result<crate::Token, crate::Lost> {
                self.0.fence()
            }

            /// Completes when it is lost, with the reason; never while it is held.
            ///
            /// # Cancel safety
            /// Dropping the future changes nothing; a loss in between is told by the next call.
            pub async fn lost(&self) -> crate::LostReason {
                self.0.lost().await
            }

            /// Runs `future` until it completes or the hold is lost, whichever is first. See
            /// [`Guard::protect`](crate::Guard::protect).
            ///
            /// # Errors
            /// [`Lost`](crate::Lost): it was lost before `future` completed, and `future` was dropped where it stood.
            ///
            /// # Cancel safety
            /// Dropping this drops `future`; the hold goes on.
            pub async fn protect<F: Future>(&self, future: F) -> Result<F::Output, crate::Lost> {
                self.0.protect(future).await
            }

            /// Lets the hold end no earlier than `lease` from now: it never becomes shorter. A hold without a lease stays
            /// without one.
            ///
            /// # Errors
            /// As of [`Guard::extend`](crate::Guard::extend).
            pub fn extend(&self, lease: std::time::Duration) -> Result<(), crate::ExtendError> {
                self.0.extend(lease)
            }

            /// Gives it back and says whether it was held until now. Does not wait for the grantor.
            ///
            /// # Errors
            /// [`ReleaseError::Lost`](crate::ReleaseError::Lost): it had been lost before. It is given back all the same.
            ///
            /// # Cancel safety
            /// Dropping the future gives it back too.
            pub async fn release(self) -> Result<(), crate::ReleaseError> {
                self.0.release().await
            }

            /// Who wants it back. See [`Guard::revocation`](crate::Guard::revocation).
            pub fn revocation(&self) -> crate::Revocation {
                self.0.revocation()
            }

            /// A look at the hold that does not keep it. See [`Guard::watch`](crate::Guard::watch).
            pub fn watch(&self) -> crate::LossWatch {
                self.0.watch()
            }

            /// The token as a number for logs, without a claim that it is still held.
            pub fn token(&self) -> crate::Token {
                self.0.token()
            }

            /// The lock's name.
            pub fn name(&self) -> &[u8] {
                self.0.name()
            }

            /// The service's name.
            pub fn service(&self) -> &str {
                self.0.service()
            }
        }
    )+};
}

pub(super) use guards;
