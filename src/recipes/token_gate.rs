//! `TokenGate`: refuses the writes of stale holders at the resource that a lock guards.

use crate::protocol::{LineageId, Token};
use serde::{Deserialize, Serialize};

/// The highest fencing token that a resource has seen: the gate refuses every lower one. A holder
/// may sleep past the end of its lease and not know that another one has the lock by now. Such a
/// holder can change nothing any more, even if the clocks are wrong.
///
/// The gate compares the token and its [lineage](crate::Guard::lineage). Tokens order the writes.
/// Tokens of one lineage never repeat, but two lineages that live at the same time may deal equal
/// tokens. So an equal token of another lineage is refused.
///
/// The gate belongs to the resource, not to the holder of the lock. There is one gate, where the
/// writes are done, and each write shows its token to it. Keep this plain value **under the same
/// lock, or in the same transaction, as the guarded data**. Otherwise a stale write could come
/// between the check and the write of another holder. (A gate that could be shared without a lock
/// would allow that.) The crate `elderlock-fence` has ready-made gates for SQL databases, object
/// stores, HTTP services and files. In a database the gate is a row in a table of its own. It is
/// the **first statement of each transaction**, before the transaction reads anything:
///
/// ```sql
/// CREATE TABLE IF NOT EXISTS fences (
///     resource TEXT PRIMARY KEY,
///     token BIGINT NOT NULL,
///     lineage BIGINT NOT NULL
/// );
/// -- At the head of each transaction:
/// INSERT INTO fences (resource, token, lineage) VALUES ($1, $2, $3)
/// ON CONFLICT (resource) DO UPDATE SET token = excluded.token, lineage = excluded.lineage
///  WHERE fences.token < excluded.token
///     OR (fences.token = excluded.token AND fences.lineage = excluded.lineage);
/// ```
///
/// with [`Token::as_i64`] and [`LineageId::as_i64`]. If the statement changes no row, the holder is
/// stale: roll back. The statement comes first because the read must be fenced as well. Otherwise
/// an update is lost in this order: token 100 reads 10, 101 reads 10, 100 writes 9, 101 writes 9.
///
/// The limits of a gate:
/// - *It knows one name.* Tokens of different locks cannot be compared, so each object that has a
///   lock of its own has a gate of its own, beside it. The gate takes 24 bytes and ends with the
///   object. There is no list of names that grows for ever.
/// - *It forgets when it is dropped.* A resource that outlives its process stores the
///   [highest](TokenGate::highest) token with its data and begins [with
///   it](TokenGate::with_highest) again; the gate can be (de)serialized, too. A gate that begins
///   anew admits the first token, even a stale one.
/// - *It refuses no holder before the next one writes.* A holder that lost its lock can write until
///   the next holder does. To prevent that, the next holder writes before it does anything else.
///
/// Hazelcast and Redisson leave it to each user to write this.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::{LineageId, StaleToken, Token, TokenGate};
/// use std::sync::Mutex;
///
/// #[derive(Default)]
/// struct Account {
///     gate: TokenGate,
///     balance: i64,
/// }
///
/// impl Account {
///     fn pay_in(
///         &mut self,
///         amount: i64,
///         token: Token,
///         lineage: LineageId,
///     ) -> Result<(), StaleToken> {
///         self.gate.admit(token, lineage)?;
///         self.balance += amount;
///         Ok(())
///     }
/// }
///
/// let account = Mutex::new(Account::default());
/// let member = elderlock::Member::local().await?;
/// let accounts = member.lock_service("accounts").await?;
/// let slow = accounts.lock("ann").await?;
/// let (stale, lineage) = (slow.fence()?, slow.lineage()); // here it sleeps past its lease
/// slow.release().await?;
///
/// let next = accounts.lock("ann").await?;
/// account.lock().unwrap().pay_in(10, next.fence()?, next.lineage())?;
/// account.lock().unwrap().pay_in(20, next.fence()?, next.lineage())?;
/// assert!(account.lock().unwrap().pay_in(5, stale, lineage).is_err());
/// assert_eq!(account.lock().unwrap().balance, 30);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TokenGate {
    highest: Option<(Token, LineageId)>,
}

impl TokenGate {
    /// A gate that has seen no token yet, and admits the first one.
    pub const fn new() -> Self {
        TokenGate { highest: None }
    }

    /// A gate that has seen this token before, for example before the resource was started again.
    pub const fn with_highest(token: Token, lineage: LineageId) -> Self {
        TokenGate { highest: Some((token, lineage)) }
    }

    /// Admits a token that is higher than all before it, or equal to the highest and of the same
    /// lineage, and remembers it. A holder is admitted as often as it asks, until the next holder
    /// was.
    ///
    /// # Errors
    /// [`StaleToken`]: a higher token, or an equal one of another lineage, was admitted before.
    /// Nothing is changed; do not write.
    ///
    /// ```
    /// # use elderlock::{LineageId, Token, TokenGate};
    /// // As they came over the network, from `Token::as_i64` and `LineageId::as_i64`.
    /// let (token, lineage): (i64, i64) = (1 << 32 | 7, -3);
    /// let token = Token::from_i64(token).expect("a token is positive");
    /// let lineage = LineageId::from_i64(lineage);
    /// let mut gate = TokenGate::new();
    /// assert!(gate.admit(token, lineage).is_ok());
    /// assert_eq!(gate.highest(), Some((token, lineage)));
    /// assert!(gate.admit(token, LineageId::from_i64(4)).is_err());
    /// ```
    pub fn admit(&mut self, token: Token, lineage: LineageId) -> Result<(), StaleToken> {
        match self.highest {
            Some((highest, of)) if token < highest || (token == highest && lineage != of) => {
                Err(StaleToken { token, lineage, highest, highest_lineage: of })
            }
            _ => {
                self.highest = Some((token, lineage));
                Ok(())
            }
        }
    }

    /// The highest admitted token and its lineage, to be stored with the guarded data.
    pub const fn highest(&self) -> Option<(Token, LineageId)> {
        self.highest
    }
}

/// A [`TokenGate`] has refused the token: another holder wrote before. This holder has lost the
/// lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "token {token} of lineage {lineage} is stale: {highest} of lineage {highest_lineage} came \
     before; \
     do not write, and take the lock again"
)]
#[non_exhaustive]
pub struct StaleToken {
    /// The token that the holder showed.
    pub token: Token,
    /// The lineage of that token.
    pub lineage: LineageId,
    /// The highest admitted token.
    pub highest: Token,
    /// The lineage of the highest token.
    pub highest_lineage: LineageId,
}
