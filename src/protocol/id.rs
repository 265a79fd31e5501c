//! The names of things: processes, services, locks, requests, views, epochs, tokens.

use super::vote_key::VoteKey;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// The longest service name, in bytes.
pub const MAX_SERVICE_NAME: usize = 255;
/// The longest lock name, in bytes.
pub const MAX_LOCK_NAME: usize = 4096;
/// The longest metadata that a holder may attach, in bytes.
pub const MAX_METADATA: usize = 4096;
/// The most locks in one batch.
pub const MAX_BATCH: usize = 1024;
/// The most bytes that the names of one batch may have together. A request must fit into a frame. A
/// table chunk may end with such a request, and must fit into a frame, too.
pub const MAX_BATCH_NAMES: usize = 1 << 20;
/// The most permits of one request: each has a token, and a slot has four million of them.
pub const MAX_PERMITS: u32 = 1 << 16;
/// The longest value of an object, in bytes.
pub const MAX_VALUE: usize = 1024;

/// One run of one process: 128 random bits drawn at its start and never used again.
///
/// Everything that matters (votes, leases, holds) is keyed by this and by nothing else, so a
/// restart at the same address is a new process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId(pub u128);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", (self.0 >> 96) as u32)
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Shows whether two processes share a kernel, and whether one of them is gone: see vouched death
/// in docs/protocol/views.md.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Host {
    /// The kernel's boot id.
    pub boot: u128,
    /// Inode of the process namespace.
    pub namespace: u64,
    /// Process number in that namespace.
    pub pid: u32,
    /// Start time of the process in clock ticks since boot.
    pub started: u64,
}

impl Host {
    /// Whether a process here can see that process end: another process on the same kernel.
    pub(crate) fn sees(&self, other: &Host) -> bool {
        self.boot == other.boot && self.namespace == other.namespace && self.pid != other.pid
    }
}

/// The identity of a process and its address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct MemberInfo {
    /// Identity of this run.
    pub process: ProcessId,
    /// The advertised address; TCP and UDP use the same port.
    pub addr: SocketAddr,
    /// Present where the platform can tell (Linux).
    pub host: Option<Host>,
    /// By which a vote successor is known. `None`: the process stores no vote, and no process may
    /// claim it.
    pub vote_key: Option<VoteKey>,
    /// Present where the cluster has a key. The process id is a hash of it, and packets that other
    /// members relay to the process are sealed with it.
    pub static_key: Option<StaticPublicKey>,
    /// It holds locks for programs that are no members. They may live on when the process is gone,
    /// so its death ends nothing before its lease.
    pub serves_sessions: bool,
}

impl MemberInfo {
    /// A process that tells neither its host nor a key, and serves no sessions.
    pub fn new(process: ProcessId, addr: SocketAddr) -> MemberInfo {
        let (host, vote_key, static_key) = (None, None, None);
        MemberInfo { process, addr, host, vote_key, static_key, serves_sessions: false }
    }
}

/// The static public key of a process. The core carries it and does not look into it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StaticPublicKey(pub [u8; 32]);

impl fmt::Debug for StaticPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StaticPublicKey(..)")
    }
}

/// The number of a view. The first view of a lineage has that of the slot of its founding; 0 stands
/// for none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ViewNumber(pub u64);

impl ViewNumber {
    /// The number after this one.
    pub fn next(self) -> ViewNumber {
        ViewNumber(self.0 + 1)
    }
}

impl fmt::Display for ViewNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for ViewNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// The high part of a [`Token`]: 1/2048 of a second, counted from 2026-01-01. 41 bits, which last
/// until 2060.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Slot(pub u64);

impl Slot {
    /// Slots in a second.
    pub const PER_SECOND: u64 = 2048;
    /// The last one.
    pub const MAX: Slot = Slot((1 << 41) - 1);
    /// The tokens of one slot.
    pub const TOKENS: u64 = 1 << 22;

    /// The slot this many slots later, but not after the last one.
    pub const fn plus(self, slots: u64) -> Slot {
        let sum = self.0.saturating_add(slots);
        if sum > Slot::MAX.0 { Slot::MAX } else { Slot(sum) }
    }

    /// The slots that begin within `span`, as often as it holds a whole one.
    pub const fn count(span: Duration) -> u64 {
        let fraction = span.subsec_nanos() as u64 * Slot::PER_SECOND / 1_000_000_000;
        span.as_secs().saturating_mul(Slot::PER_SECOND).saturating_add(fraction)
    }

    /// The shortest span that holds this many slots.
    pub const fn span(slots: u64) -> Duration {
        let nanos = (slots % Slot::PER_SECOND * 1_000_000_000).div_ceil(Slot::PER_SECOND);
        Duration::new(slots / Slot::PER_SECOND, nanos as u32)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// The identity of a lineage: 64 of the random bits of its founder's id. Displayed as 16
/// hexadecimal digits.
///
/// In JSON and other text formats it is the string that [`Display`](fmt::Display) writes: a number
/// above 2^53 would change in many readers. Binary formats have the number.
///
/// ```
/// use elderlock::LineageId;
/// let lineage = LineageId::from_i64(-3);
/// assert_eq!(lineage.to_string(), "fffffffffffffffd");
/// assert_eq!("fffffffffffffffd".parse(), Ok(lineage));
/// assert_eq!(LineageId::from_be_bytes(lineage.to_be_bytes()), lineage);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineageId(pub u64);

impl LineageId {
    /// Returns the same bits as a signed integer, for SQL `BIGINT` columns. Half of them are
    /// negative, and their order means nothing.
    pub const fn as_i64(self) -> i64 {
        self.0 as i64
    }

    /// The lineage that [`as_i64`](LineageId::as_i64) gave.
    pub const fn from_i64(number: i64) -> Self {
        LineageId(number as u64)
    }

    /// The 8 bytes, most significant first.
    pub const fn to_be_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// The lineage that [`to_be_bytes`](LineageId::to_be_bytes) gave.
    pub const fn from_be_bytes(bytes: [u8; 8]) -> Self {
        LineageId(u64::from_be_bytes(bytes))
    }
}

impl From<i64> for LineageId {
    fn from(number: i64) -> Self {
        LineageId::from_i64(number)
    }
}

impl FromStr for LineageId {
    type Err = InvalidLineage;

    /// Reads the 16 hexadecimal digits that [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, InvalidLineage> {
        let is_digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.map(LineageId).ok_or_else(|| InvalidLineage { text: shortened(text) })
    }
}

impl Serialize for LineageId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        serializer.serialize_newtype_struct("LineageId", &self.0)
    }
}

impl<'de> Deserialize<'de> for LineageId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
            return text.parse().map_err(D::Error::custom);
        }
        u64::deserialize(deserializer).map(LineageId)
    }
}

/// A text that is no [`LineageId`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a lineage has 16 hexadecimal digits, as its Display writes them, not {text:?}")]
#[non_exhaustive]
pub struct InvalidLineage {
    /// The text, at most its first 40 characters.
    pub text: String,
}

/// What an error shows of a text from outside.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

impl fmt::Display for LineageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for LineageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// All the views that follow one founding. Of two lineages the one founded later is the higher.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lineage {
    /// The first slot of its first view.
    pub founded: Slot,
    /// The process that proposed its first view.
    pub founder: ProcessId,
}

impl Lineage {
    /// Returns the random bits of the lineage: a process founds once.
    pub const fn id(self) -> LineageId {
        LineageId((self.founder.0 >> 64) as u64 ^ self.founder.0 as u64)
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.founder)
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.founder, self.founded)
    }
}

/// A fencing token: a positive number that fits a SQL `BIGINT`. No token is given out twice in one
/// lineage. A token is higher than that of every grant that its own grant could know of.
///
/// The high 41 bits are its [`Slot`], the low 22 count within the slot.
///
/// In JSON and other text formats it is a string of decimal digits: a number above 2^53 would
/// change in many readers. A number is accepted as well. Binary formats have the number.
///
/// ```
/// use elderlock::Token;
/// let token = Token::try_from(4294967303_i64)?;
/// assert_eq!(token.to_string(), "4294967303");
/// assert_eq!("4294967303".parse(), Ok(token));
/// assert_eq!(i64::from(token), 4294967303);
/// let error = Token::try_from(0).unwrap_err();
/// let text = "a token is a whole number from 1 to 9223372036854775807, not 0";
/// assert_eq!(error.to_string(), text);
/// # Ok::<(), elderlock::InvalidToken>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The token number `within` of a slot.
    pub const fn new(slot: Slot, within: u32) -> Self {
        Token(slot.0 * Slot::TOKENS + within as u64)
    }

    /// The token that [`as_i64`](Token::as_i64) gave. `None`: no token is that.
    pub const fn from_i64(number: i64) -> Option<Self> {
        if number > 0 { Some(Token(number as u64)) } else { None }
    }

    /// The token as an unsigned integer.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The token as a signed integer, for SQL `BIGINT` columns. Always positive.
    pub const fn as_i64(self) -> i64 {
        self.0 as i64
    }

    /// Returns the slot in which the token was dealt.
    pub const fn slot(self) -> Slot {
        Slot(self.0 / Slot::TOKENS)
    }

    /// Returns the number of the token within its slot.
    pub const fn within(self) -> u32 {
        (self.0 % Slot::TOKENS) as u32
    }

    /// The token with the bits that [`get`](Token::get) returned.
    #[cfg(feature = "tokio")]
    pub(crate) const fn from_bits(bits: u64) -> Token {
        Token(bits)
    }

    /// The token this many after this one: permits and batches have consecutive tokens.
    pub const fn plus(self, count: u64) -> Token {
        Token(self.0.saturating_add(count))
    }
}

impl TryFrom<i64> for Token {
    type Error = InvalidToken;

    /// The token that [`as_i64`](Token::as_i64) gave.
    fn try_from(number: i64) -> Result<Self, InvalidToken> {
        Token::from_i64(number).ok_or_else(|| InvalidToken { text: number.to_string() })
    }
}

impl From<Token> for i64 {
    fn from(token: Token) -> i64 {
        token.as_i64()
    }
}

impl FromStr for Token {
    type Err = InvalidToken;

    /// Reads the decimal digits that [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        // `parse` alone would take a sign.
        let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_digits.then(|| text.parse().ok()).flatten();
        number.and_then(Token::from_i64).ok_or_else(|| InvalidToken { text: shortened(text) })
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        serializer.serialize_newtype_struct("Token", &self.0)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TokenVisitor;
        impl Visitor<'_> for TokenVisitor {
            type Value = Token;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a token as a string of decimal digits")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Token, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Token, E> {
                Token::try_from(number).map_err(E::custom)
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Token, E> {
                let invalid = || E::custom(InvalidToken { text: number.to_string() });
                i64::try_from(number).ok().and_then(Token::from_i64).ok_or_else(invalid)
            }
        }
        if deserializer.is_human_readable() {
            return deserializer.deserialize_any(TokenVisitor);
        }
        // Members also send what is no user's token: zero, and the complements in tickets.
        u64::deserialize(deserializer).map(Token)
    }
}

/// A number or a text that is no [`Token`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a token is a whole number from 1 to {}, not {text}", i64::MAX)]
#[non_exhaustive]
pub struct InvalidToken {
    /// What was given, at most its first 40 characters.
    pub text: String,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{}", self.slot(), self.within())
    }
}

/// One grantor's period for one service: the first token of the first range that the elder dealt to
/// it.
///
/// Epochs of a service rise, and one that has ended is never named again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub Token);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.slot(), self.0.within())
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{self}")
    }
}

/// A request for a lock, numbered by the member that makes it. Never reused in one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// A waiter's position: tickets of one service are served in this order, also by later grantors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ticket {
    /// The epoch in which the position was acknowledged. None for a request that passes a
    /// suspension: its position is before those of all epochs.
    pub epoch: Epoch,
    /// Order of arrival in that epoch.
    pub number: u64,
}

impl Ticket {
    /// The position of the `pass`-th request to pass a suspension that is held with this token. It
    /// is before all tickets of any epoch, and before those of suspensions that were held earlier.
    pub(crate) fn in_front(token: Token, pass: u64) -> Ticket {
        // As a signed number the complement of a token is negative, and the lower the higher the
        // token is.
        Ticket { epoch: Epoch(Token(!token.get())), number: pass }
    }

    /// Whether it is a position before those of all epochs.
    pub(crate) fn is_in_front(self) -> bool {
        self.epoch.0.as_i64() < 0
    }
}

impl Ord for Ticket {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.epoch.0.as_i64(), self.number).cmp(&(other.epoch.0.as_i64(), other.number))
    }
}

impl PartialOrd for Ticket {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}#{}", self.epoch, self.number)
    }
}

/// A name that is empty or too long.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a {what} must have 1 to {limit} bytes, not {length}")]
pub struct InvalidName {
    /// The kind of name: "service name" or "lock name".
    pub what: &'static str,
    /// Its length in bytes.
    pub length: usize,
    /// The longest allowed, in bytes.
    pub limit: usize,
}

/// The name of a lock service: 1 to [`MAX_SERVICE_NAME`] bytes of text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct ServiceName(Arc<str>);

impl ServiceName {
    /// Checks the length.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        check("service name", name.len(), MAX_SERVICE_NAME)?;
        Ok(ServiceName(name.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ServiceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ServiceNameVisitor;
        impl Visitor<'_> for ServiceNameVisitor {
            type Value = ServiceName;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a service name")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ServiceName, E> {
                ServiceName::new(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(ServiceNameVisitor)
    }
}

/// The name of a lock: 1 to [`MAX_LOCK_NAME`] bytes of any value. Up to 23 bytes are stored inline,
/// without an allocation: most names are short, and tables have several copies of each.
#[derive(Clone)]
pub struct LockName(NameBytes);

/// 24 bytes.
#[derive(Clone)]
enum NameBytes {
    /// The bytes behind the end are zero.
    Short {
        end: ShortLength,
        bytes: [u8; SHORT],
    },
    Long(Arc<[u8]>),
}

/// The longest name that is stored inline.
const SHORT: usize = 23;

/// The length of a short name. Its unused values tell the compiler where to keep which kind of name
/// it is.
#[rustfmt::skip]
#[derive(Clone, Copy)]
enum ShortLength {
    L1, L2, L3, L4, L5, L6, L7, L8, L9, L10, L11, L12, L13, L14, L15, L16, L17, L18, L19, L20, L21,
    L22, L23,
}

impl ShortLength {
    #[rustfmt::skip]
    const ALL: [ShortLength; SHORT] = {
        use ShortLength::*;
        [
            L1, L2, L3, L4, L5, L6, L7, L8, L9, L10, L11, L12, L13, L14, L15, L16, L17, L18, L19,
            L20, L21, L22, L23,
        ]
    };

    fn length(self) -> usize {
        self as usize + 1
    }
}

impl LockName {
    /// Checks the length.
    pub fn new(name: &[u8]) -> Result<Self, InvalidName> {
        check("lock name", name.len(), MAX_LOCK_NAME)?;
        Ok(LockName(match ShortLength::ALL.get(name.len() - 1) {
            Some(&end) => {
                let mut bytes = [0; SHORT];
                bytes[..name.len()].copy_from_slice(name);
                NameBytes::Short { end, bytes }
            }
            None => NameBytes::Long(name.into()),
        }))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            NameBytes::Short { end, bytes } => &bytes[..end.length()],
            NameBytes::Long(bytes) => bytes,
        }
    }
}

/// As of the bytes.
impl Ord for LockName {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            // Of two that are the same but for zeros behind the end the shorter one is the lower.
            // No call of a function for bytes of any length: looking for a name in a table is
            // little else than this.
            (
                NameBytes::Short { end, bytes },
                NameBytes::Short { end: other_end, bytes: other },
            ) => words(bytes).cmp(&words(other)).then(end.length().cmp(&other_end.length())),
            _ => self.as_bytes().cmp(other.as_bytes()),
        }
    }
}

/// Numbers that are in the order of the bytes.
fn words(bytes: &[u8; SHORT]) -> [u64; 3] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w] = *bytes;
    [
        u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        u64::from_be_bytes([i, j, k, l, m, n, o, p]),
        u64::from_be_bytes([q, r, s, t, u, v, w, 0]),
    ]
}

impl PartialOrd for LockName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for LockName {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for LockName {}

impl Hash for LockName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for LockName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for LockName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor(LockName::new))
    }
}

/// Locks of one request: 1 to [`MAX_BATCH`] names in ascending order, none of them twice, of at
/// most [`MAX_BATCH_NAMES`] bytes together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Batch(Arc<[LockName]>);

impl Batch {
    /// Sorts the names; one that is given twice counts once.
    pub fn new(mut names: Vec<LockName>) -> Result<Self, InvalidBatch> {
        names.sort();
        names.dedup();
        let (count, bytes) = (names.len(), names.iter().map(|name| name.as_bytes().len()).sum());
        if count == 0 || count > MAX_BATCH || bytes > MAX_BATCH_NAMES {
            return Err(InvalidBatch { count, bytes });
        }
        Ok(Batch(names.into()))
    }

    /// The names.
    pub fn names(&self) -> &[LockName] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Batch::new(Vec::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// A batch of no locks, of too many, or with too long names.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a batch must have 1 to {MAX_BATCH} different locks with names of at most {MAX_BATCH_NAMES} \
     bytes together, not {count} with {bytes}; take fewer locks or use shorter names"
)]
pub struct InvalidBatch {
    /// The number of different names that were given.
    pub count: usize,
    /// The total length of the names.
    pub bytes: usize,
}

/// The number of permits of a request: 1 to [`MAX_PERMITS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Permits(u32);

impl Permits {
    /// Checks the number.
    pub fn new(given: u32) -> Result<Self, InvalidPermits> {
        if given == 0 || given > MAX_PERMITS {
            Err(InvalidPermits { given })
        } else {
            Ok(Permits(given))
        }
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for Permits {
    type Error = InvalidPermits;

    fn try_from(given: u32) -> Result<Self, InvalidPermits> {
        Permits::new(given)
    }
}

impl From<Permits> for u32 {
    fn from(permits: Permits) -> u32 {
        permits.0
    }
}

/// No permits at all, or too many at once.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a request is for 1 to {MAX_PERMITS} permits, not {given}")]
pub struct InvalidPermits {
    /// The number that was requested.
    pub given: u32,
}

/// The value of an object: up to [`MAX_VALUE`] bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Value(Arc<[u8]>);

impl Value {
    /// Checks the length; empty is allowed.
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidValue> {
        if bytes.len() > MAX_VALUE {
            Err(InvalidValue { length: bytes.len() })
        } else {
            Ok(Value(bytes.into()))
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes, shared.
    pub fn share(&self) -> Arc<[u8]> {
        self.0.clone()
    }

    /// The limit of permits of an object with this value: a signed number of 32 bits, little
    /// endian; below zero there are none. A value of any other length than four bytes is a limit of
    /// zero.
    pub fn limit(&self) -> u32 {
        self.0.as_ref().try_into().map_or(0, i32::from_le_bytes).max(0) as u32
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(&self.0.escape_ascii());
        }
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor(Value::new))
    }
}

/// A value that is too long.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a value must have at most {MAX_VALUE} bytes, not {length}")]
pub struct InvalidValue {
    /// Its length in bytes.
    pub length: usize,
}

/// An object by its name, and its value if no member has it open yet. One machine word, because
/// every [`Want`] is as large as the largest.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OpenRequest(Arc<(LockName, Value)>);

impl OpenRequest {
    /// Opens the object with this name, with this value if it is new.
    pub fn new(name: LockName, value: Value) -> Self {
        OpenRequest(Arc::new((name, value)))
    }

    /// The object's name.
    pub fn name(&self) -> &LockName {
        &self.0.0
    }

    /// The value that the object has if no member has it open yet.
    pub fn value(&self) -> &Value {
        &self.0.1
    }
}

impl fmt::Debug for OpenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}", self.name(), self.value())
    }
}

/// The want of a request.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Want {
    /// One lock.
    Lock(LockName),
    /// Several locks of the service, all or nothing.
    Batch(Batch),
    /// The suspension of the whole service: while it is held no other owner holds anything.
    Suspension,
    /// A share of one lock: other requests may have shares too, but none the lock.
    Share(LockName),
    /// A number of permits of an object at once, all or nothing. The object's value is the limit.
    Permits(LockName, Permits),
    /// To have an object open. No lock: it waits for no request, and no request waits for it.
    Open(OpenRequest),
}

impl Want {
    /// The names of the locks or of the object that is wanted, ascending; none for a suspension.
    pub fn names(&self) -> &[LockName] {
        match self {
            Want::Lock(name) | Want::Share(name) | Want::Permits(name, _) => {
                std::slice::from_ref(name)
            }
            Want::Open(opening) => std::slice::from_ref(opening.name()),
            Want::Batch(batch) => batch.names(),
            Want::Suspension => &[],
        }
    }

    /// How many tokens a grant of this want takes.
    pub fn tokens(&self) -> u32 {
        match self {
            Want::Batch(batch) => batch.names().len() as u32,
            Want::Permits(_, permits) => permits.get(),
            Want::Lock(_) | Want::Suspension | Want::Share(_) | Want::Open(_) => 1,
        }
    }

    /// Whether the want is to have an object open, which is no hold.
    pub fn opens(&self) -> bool {
        matches!(self, Want::Open(_))
    }

    /// Whether a hold of `has` may be reduced to this want.
    pub(crate) fn is_less_than(&self, has: &Want) -> bool {
        match (has, self) {
            (Want::Lock(name), Want::Share(other)) => name == other,
            (Want::Permits(name, before), Want::Permits(other, after)) => {
                name == other && after < before
            }
            _ => false,
        }
    }

    /// How the want stands beside other requests for the same name.
    pub fn mode(&self) -> Mode {
        match self {
            Want::Lock(_) | Want::Batch(_) | Want::Open(_) => Mode::Lock,
            Want::Suspension => Mode::Suspension,
            Want::Share(_) => Mode::Share,
            Want::Permits(_, permits) => Mode::Permits(permits.get()),
        }
    }

    /// The approximate number of bytes in a message.
    pub(crate) fn weight(&self) -> usize {
        let value =
            if let Want::Open(opening) = self { opening.value().as_bytes().len() } else { 0 };
        value + self.names().iter().map(|name| 16 + name.as_bytes().len()).sum::<usize>()
    }
}

/// How something is held, or wanted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Mode {
    /// Alone: a lock, or one of a batch.
    Lock,
    /// A share.
    Share,
    /// This many permits.
    Permits(u32),
    /// The suspension of the whole service.
    Suspension,
}

/// The owner of a request, within its member. An owner with a hold passes a suspension that waits.
/// Zero is the whole member.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct OwnerId(pub u64);

/// The metadata of a holder: up to [`MAX_METADATA`] bytes that others can read. Empty metadata
/// takes no memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Metadata(Option<Arc<Box<[u8]>>>); // one word, for most have none

impl Metadata {
    /// Checks the length; empty is allowed.
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidName> {
        if bytes.is_empty() {
            return Ok(Metadata(None));
        }
        check("metadata", bytes.len(), MAX_METADATA)?;
        Ok(Metadata(Some(Arc::new(bytes.into()))))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |bytes| bytes)
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(&self.as_bytes().escape_ascii());
        }
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor(Metadata::new))
    }
}

/// Makes something of bytes, as any serde format may hand them over. The text form is for people to
/// read, not to be read back. The bytes are copied once only: tables of many names are read so.
struct BytesVisitor<T, F>(fn(&[u8]) -> Result<T, F>);

impl<T, F: fmt::Display> Visitor<'_> for BytesVisitor<T, F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<T, E> {
        self.0(bytes).map_err(E::custom)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        self.visit_bytes(text.as_bytes())
    }
}

fn check(what: &'static str, length: usize, limit: usize) -> Result<(), InvalidName> {
    if length == 0 || length > limit { Err(InvalidName { what, length, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::DefaultHasher;

    #[test]
    fn names_are_as_their_bytes_whether_they_are_stored_inline_or_not() {
        let mut texts: Vec<Vec<u8>> = vec![
            b"a".to_vec(),
            b"a\0".to_vec(),
            b"a\0\0".to_vec(),
            b"\xff".to_vec(),
            b"b".to_vec(),
        ];
        for length in [7, 8, 9, 16, 22, 23, 24, 25, 4096] {
            texts.push(vec![b'a'; length]);
            texts.push([vec![b'a'; length - 1], vec![0]].concat());
            texts.push([vec![b'a'; length - 1], vec![0xff]].concat());
        }
        let print = |what: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            what(&mut hasher);
            hasher.finish()
        };
        for one in &texts {
            let name = LockName::new(one).unwrap();
            assert_eq!(name.as_bytes(), one);
            assert_eq!(
                print(&|hasher| name.hash(hasher)),
                print(&|hasher| one.as_slice().hash(hasher))
            );
            for other in &texts {
                let other_name = LockName::new(other).unwrap();
                assert_eq!(name.cmp(&other_name), one.cmp(other), "{name} {other_name}");
                assert_eq!(name == other_name, one == other);
            }
        }
        assert_eq!((size_of::<LockName>(), size_of::<Option<LockName>>()), (24, 24));
    }

    /// The grantor keeps one for each held lock, and so does the holder's member.
    #[test]
    fn a_want_takes_a_name_and_a_word() {
        assert_eq!(size_of::<Want>(), 32);
    }
}
