//! Revocation: members request holds back, or force their release.

use super::LockService;
use crate::protocol::{ForceOrder, HolderInfo, LockName, Metadata};
use crate::service::revocation::{self, RevokeBuilder, RevokeError};

impl LockService {
    /// Requests a lock back: tells every holder, and completes when the holders' members have
    /// confirmed that. The holders decide: each may release the lock at once, after a while or
    /// never. Any member may call this, whether it waits for the lock or not.
    ///
    /// The call reaches the holders at the moment of the grantor's answer, and neither waiters nor
    /// later holders. It reaches all holders of shares, and all holders of permits of an object of
    /// that name. A batch with the lock is requested back as a whole. Each call is reported once.
    ///
    /// # Errors
    /// [`RevokeError`]; except with [`Undecided`](RevokeError::Undecided), no holder was told.
    ///
    /// # Cancel safety
    /// If the future is dropped before its first poll, nothing is asked. If it is dropped later,
    /// holders may be told nevertheless. No other effect remains.
    ///
    /// Curator: `Revoker.attemptRevoke`. OpenVMS and the Linux DLM: the blocking AST.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::RevokeError;
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// assert_eq!(stock.revoke("sku-42").await, Err(RevokeError::NotHeld));
    ///
    /// let guard = stock.lock("sku-42").revocable().await?;
    /// let asked = stock.revoke("sku-42").metadata("till 4").await?;
    /// assert_eq!(asked.told[0].token, guard.token());
    /// let request = guard.revocation().requested().await.unwrap();
    /// assert_eq!(request.metadata.as_bytes(), b"till 4");
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn revoke(&self, name: impl AsRef<[u8]>) -> RevokeBuilder {
        RevokeBuilder::new(self.inner.clone(), LockName::new(name.as_ref()).map(Some))
    }

    /// Requests the suspension of the service back; as [`revoke`](LockService::revoke) for a lock.
    ///
    /// # Errors
    /// [`RevokeError`]; except with [`Undecided`](RevokeError::Undecided), no holder was told.
    ///
    /// # Cancel safety
    /// As for `revoke`.
    pub fn revoke_suspension(&self) -> RevokeBuilder {
        RevokeBuilder::new(self.inner.clone(), Ok(None))
    }

    /// Forces the release of a hold whose holder was told of the request and kept it: for
    /// operators. Take the holder from the result of [`revoke`](LockService::revoke).
    ///
    /// The holder's own member ends the hold: all guards of the hold fail with
    /// [`LostReason::Revoked`](crate::LostReason::Revoked), and only then does the next waiter get
    /// the lock. So the lock never has two holders at once, and a resource that checks tokens
    /// refuses later writes of the former holder. If that member does not answer for one [member
    /// lease](crate::Timing::member_lease), the result is [`Undecided`](RevokeError::Undecided).
    /// The member is then stopped or cut off, its lease ends the hold, and nothing can do so
    /// earlier.
    ///
    /// # Errors
    /// [`RevokeError`]; except with [`Undecided`](RevokeError::Undecided), no hold was ended.
    ///
    /// # Cancel safety
    /// If the future is dropped before its first poll, nothing is asked. If it is dropped later,
    /// the hold may end nevertheless. No other effect remains.
    ///
    /// Curator: none; an operator can delete the holder's node, but the holder does not stop.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LostReason, RevokeError};
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").revocable().await?;
    ///
    /// let holder = stock.inspect("sku-42").await?.holder.unwrap();
    /// assert_eq!(stock.force_revoke(&holder).await, Err(RevokeError::HolderNotTold));
    /// let asked = stock.revoke("sku-42").await?;
    /// stock.force_revoke(&asked.told[0]).await?;
    /// assert_eq!(guard.fence().unwrap_err().reason, LostReason::Revoked);
    /// # Ok(()) }
    /// ```
    pub async fn force_revoke(&self, holder: &HolderInfo) -> Result<(), RevokeError> {
        revocation::take(self.inner.clone(), holder.clone()).await
    }

    /// Forces the release of a hold by an operator's order, whether it is
    /// [revocable](crate::LockBuilder::revocable) or not, and without a request before. This works
    /// only if the holder's member allows [forced revokes](crate::MemberBuilder::forced_revokes).
    /// That member ends the hold as by [`force_revoke`](LockService::force_revoke), so the lock
    /// never has two holders at once. The member reports
    /// [`MemberEvent::ForcedRevoke`](crate::MemberEvent::ForcedRevoke) with `operator` and
    /// `reason`, each up to 4096 bytes.
    ///
    /// # Errors
    /// [`RevokeError`]; except with [`Undecided`](RevokeError::Undecided), no hold was ended.
    ///
    /// # Cancel safety
    /// As for `force_revoke`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::RevokeError;
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").await?;
    /// let holder = stock.inspect("sku-42").await?.holder.unwrap();
    /// let refused = stock.force_revoke_as(&holder, "ann", "it hangs").await;
    /// assert_eq!(refused, Err(RevokeError::ForceNotAllowed));
    /// assert!(guard.fence().is_ok());
    /// # Ok(()) }
    /// ```
    pub async fn force_revoke_as(
        &self,
        holder: &HolderInfo,
        operator: &str,
        reason: &str,
    ) -> Result<(), RevokeError> {
        let (operator, reason) = (operator.as_bytes(), reason.as_bytes());
        let order =
            ForceOrder { operator: Metadata::new(operator)?, reason: Metadata::new(reason)? };
        revocation::force(self.inner.clone(), holder.clone(), order).await
    }
}
