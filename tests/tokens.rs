//! Tokens and lineages as text, JSON and numbers, and the methods of every guard for generic code.

use elderlock::{
    AnyGuard, Fenced, LineageId, LostReason, Member, MultiLock, Mutex, ReadWriteLock, Token,
    TokenGate,
};
use std::time::Duration;

/// A number above 2^53, where a JavaScript reader would round.
const LARGE: i64 = (1 << 60) + 1;

fn token(number: i64) -> Token {
    Token::try_from(number).expect("positive")
}

#[test]
fn tokens_are_strings_in_json_and_survive_a_round_trip() {
    let pair = (token(LARGE), LineageId::from_i64(-3));
    let text = serde_json::to_string(&pair).unwrap();
    assert_eq!(text, r#"["1152921504606846977","fffffffffffffffd"]"#);
    assert_eq!(serde_json::from_str::<(Token, LineageId)>(&text).unwrap(), pair);
    assert_eq!(serde_json::from_reader::<_, (Token, LineageId)>(text.as_bytes()).unwrap(), pair);

    let gate = TokenGate::with_highest(pair.0, pair.1);
    let text = serde_json::to_string(&gate).unwrap();
    assert_eq!(serde_json::from_str::<TokenGate>(&text).unwrap(), gate);
}

#[test]
fn a_token_is_read_from_a_number_in_json_too() {
    assert_eq!(serde_json::from_str::<Token>("1152921504606846977").unwrap(), token(LARGE));
    for wrong in [
        "0",
        "-1",
        "9223372036854775808",
        "1.5",
        "\"-1\"",
        "\"+1\"",
        "\"\"",
        "\"1 \"",
        "\"0\"",
        "null",
    ] {
        assert!(serde_json::from_str::<Token>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_text_that_is_no_token_or_lineage_is_named_in_the_error() {
    assert!(Token::try_from(-7).unwrap_err().to_string().ends_with("not -7"));
    assert!("+5".parse::<Token>().unwrap_err().to_string().ends_with("not +5"));
    assert!("9223372036854775808".parse::<Token>().is_err());
    for wrong in
        ["", "fffffffffffffff", "fffffffffffffffff", "+fffffffffffffff", "gggggggggggggggg"]
    {
        assert!(wrong.parse::<LineageId>().is_err(), "{wrong}");
    }
    let long = "x".repeat(10_000).parse::<LineageId>().unwrap_err().to_string();
    assert!(long.len() < 200, "{long}");
}

#[tokio::test]
async fn every_guard_of_one_name_shows_its_token() {
    let member = Member::local().await.unwrap();
    let service = member.lock_service("inventory").await.unwrap();
    let mut tokens = Vec::new();
    let mut show = |holder: &dyn Fenced| tokens.push((holder.fence().unwrap(), holder.is_shared()));
    show(&service.lock("a").await.unwrap());
    show(&service.share("b").await.unwrap());
    show(&Mutex::new(&service, "c").acquire().await.unwrap());
    let lock = ReadWriteLock::new(&service, "d");
    show(&lock.read().await.unwrap());
    show(&lock.write().await.unwrap());
    show(&service.suspend().await.unwrap());
    assert!(tokens.is_sorted(), "{tokens:?}");
    assert_eq!(
        tokens.iter().map(|(_, shared)| *shared).collect::<Vec<_>>(),
        [false, true, false, true, false, false]
    );
}

/// Lets the guard's lease end, and then releases the guard.
async fn lose_and_release(guard: impl AnyGuard) {
    assert_eq!(guard.lost().await, LostReason::LeaseEnded);
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn generic_code_learns_of_a_loss_and_gives_back() {
    let member = Member::local().await.unwrap();
    let service = member.lock_service("inventory").await.unwrap();
    let short = Duration::from_millis(5);
    lose_and_release(service.lock("a").lease(short).await.unwrap()).await;
    lose_and_release(service.lock_all(["a", "b"]).lease(short).await.unwrap()).await;
    lose_and_release(Mutex::new(&service, "a").acquire().lease(short).await.unwrap()).await;
    let both = MultiLock::new().with(&service, ["a", "b"]);
    lose_and_release(both.acquire().lease(short).await.unwrap()).await;
    assert!(service.try_lock("a").await.is_ok());
}

#[tokio::test]
async fn a_cancellation_token_is_cancelled_by_a_loss_and_by_the_last_release() {
    let member = Member::local().await.unwrap();
    let service = member.lock_service("inventory").await.unwrap();
    let lost = service.lock("a").lease(Duration::from_millis(5)).await.unwrap();
    let early = lost.cancellation_token();
    early.cancelled().await;
    assert!(lost.cancellation_token().is_cancelled(), "asked after the loss");

    let outer = service.lock("b").await.unwrap();
    let (over, own) = (outer.cancellation_token(), outer.cancellation_token());
    own.cancel();
    assert!(!over.is_cancelled(), "one of them cancels no other");
    let inner = outer.reenter().unwrap();
    outer.release().await.unwrap();
    assert!(!over.is_cancelled(), "another guard has the hold");
    drop(inner);
    over.cancelled().await;

    let next = service.lock("b").await.unwrap();
    assert!(
        !next.cancellation_token().is_cancelled(),
        "a hold in the place of another one begins anew"
    );
}
