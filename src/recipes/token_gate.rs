//! `TokenGate`: what a resource puts in front of itself, so that no stale holder comes through.

use crate::protocol::Token;
use serde::{Deserialize, Serialize};

/// The highest fencing token that a resource has seen: it refuses every lower one. So a holder that slept through the end of its
/// lease, and does not know that another one has the lock by now, changes nothing any more, whatever the clocks do.
///
/// It belongs to the resource, not to the holder of the lock: there is one, where the writes are done, and each write shows its token
/// to it. It is a plain value, to be kept **under the same lock, or in the same transaction, as what it guards**, or a
/// stale write could come between the question and the write of another. (A gate that could be shared without one would let that
/// happen.) In a SQL table it is a column: `UPDATE ... WHERE id = ? AND fence <= ?`.
///
/// What it does not do:
/// - *It knows one name.* Tokens of different locks say nothing of each other, so each thing that has a lock of its own has a gate of its own,
///   beside it: it takes 16 bytes and goes when the thing goes. A list of names that is never forgotten is nowhere.
/// - *It forgets when it is dropped.* A resource that outlives its process writes the [highest](TokenGate::highest) down with what it
///   guards and begins [with it](TokenGate::with_highest) again; the gate can be (de)serialized, too. A gate that begins anew lets the
///   first one through, also a stale one.
/// - *It refuses nobody whose successor has not come yet.* A holder that lost its lock writes until the next one does; let the next one write
///   first of all, if that must not be.
///
/// Hazelcast and Redisson leave it to each user to write this.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::{Token, TokenGate};
/// use std::sync::Mutex;
///
/// #[derive(Default)]
/// struct Account {
///     gate: TokenGate,
///     balance: i64,
/// }
///
/// impl Account {
///     fn pay_in(&mut self, amount: i64, token: Token) -> Result<(), elderlock::StaleToken> {
///         self.gate.admit(token)?;
///         self.balance += amount;
///         Ok(())
///     }
/// }
///
/// let account = Mutex::new(Account::default());
/// let member = elderlock::Member::local().await?;
/// let accounts = member.lock_service("accounts").await?;
/// let slow = accounts.lock("ann").await?;
/// let stale = slow.fence()?; // and here it sleeps, for longer than its lease
/// slow.release().await?;
///
/// let next = accounts.lock("ann").await?;
/// account.lock().unwrap().pay_in(10, next.fence()?)?;
/// account.lock().unwrap().pay_in(20, next.fence()?)?;
/// assert!(account.lock().unwrap().pay_in(5, stale).is_err());
/// assert_eq!(account.lock().unwrap().balance, 30);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TokenGate {
    highest: Option<Token>,
}

impl TokenGate {
    /// One that has seen none yet, and lets the first one through.
    pub const fn new() -> Self {
        TokenGate { highest: None }
    }

    /// One that has seen `token` before, say before the resource was started again.
    pub const fn with_highest(token: Token) -> Self {
        TokenGate { highest: Some(token) }
    }

    /// Lets a token through that is no lower than all before it, and remembers it. A holder comes through as often as it wants, until
    /// the next one has.
    ///
    /// # Errors
    /// [`StaleToken`]: a higher one came through before. Nothing is changed; do not write.
    ///
    /// ```
    /// # use elderlock::{Token, TokenGate, ViewNumber};
    /// // As it came over the network, from `Token::as_i64`.
    /// let received: i64 = 1 << 32 | 7;
    /// let token = Token::new(ViewNumber((received >> 32) as u32), received as u32);
    /// let mut gate = TokenGate::new();
    /// assert!(gate.admit(token).is_ok());
    /// assert_eq!(gate.highest(), Some(token));
    /// ```
    pub fn admit(&mut self, token: Token) -> Result<(), StaleToken> {
        match self.highest {
            Some(highest) if token < highest => Err(StaleToken { token, highest }),
            _ => {
                self.highest = Some(token);
                Ok(())
            }
        }
    }

    /// The highest that came through, to be written down with what it guards.
    pub const fn highest(&self) -> Option<Token> {
        self.highest
    }
}

/// Refused by a [`TokenGate`]: somebody who had the lock later was there before. The holder has lost it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("token {token} is stale: {highest} was seen before")]
#[non_exhaustive]
pub struct StaleToken {
    /// What was shown.
    pub token: Token,
    /// The highest that was seen.
    pub highest: Token,
}
