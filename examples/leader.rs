//! Ten leader latches in three members. One latch leads at a time. When it closes, or its member
//! leaves, the next waiter leads. Run it with `cargo run --example leader`. The example ends by
//! itself. It exits with 1 if two latches lead at once or the tokens do not rise.
//!
//! Curator: the program with ten `LeaderLatch`es of one path.

use elderlock::{
    ClusterKey, Keyring, LatchState, LeaderLatch, Member, Participants, Timing, Token,
};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    println!("Three members found a cluster, and ten latches in them stand for one lead.");
    let ring = Keyring::new(ClusterKey::generate()?);
    let mut members: Vec<Member> = Vec::new();
    for number in 0..3 {
        let joining = Member::builder("ten-latches")
            .bind("127.0.0.1:0")
            .keyring(ring.clone())
            .timing(Timing::fast());
        let member = match members.first() {
            None => joining.found().join().await?,
            Some(first) => joining.seeds([first.addr().to_string()]).join().await?,
        };
        println!("  member {number} at {}", member.addr());
        members.push(member);
    }
    let mut latches = Vec::new();
    for number in 1..=10 {
        let service = members[number % 3].lock_service("leader-lock2").await?;
        let latch = LeaderLatch::new(&service, "leader", format!("client{number}"))?;
        latch.start()?;
        latches.push(latch);
    }

    let mut tokens: Vec<Token> = Vec::new();
    while let Some(at) = leader(&latches).await {
        let term = latches[at].await_leadership().await?;
        tokens.push(term.fence()?);
        let leaders = latches.iter().filter(|latch| latch.has_leadership()).count();
        let seen = participants(&latches[at]).await;
        let waiting = seen.first.iter().filter(|one| !one.is_leader()).map(|one| one.id.as_str());
        println!(
            "{} hasLeadership, token {}; then {}",
            latches[at].id(),
            term.token(),
            waiting.collect::<Vec<_>>().join(" ")
        );
        if leaders != 1 || !tokens.is_sorted_by(|one, next| one < next) {
            println!("broken: {leaders} lead at once, tokens {tokens:?}");
            return Ok(ExitCode::FAILURE);
        }
        // The third leader does not close. Its member leaves, with all latches of that member.
        if tokens.len() == 3 {
            let home = seen.leader().map(|leader| leader.process);
            let member = members
                .iter()
                .find(|member| Some(member.process()) == home)
                .ok_or("a member leads")?;
            println!("  its member at {} leaves", member.addr());
            member.leave().await?;
            while latches[at].state() != LatchState::Closed {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        } else {
            latches[at].close().await?;
        }
    }
    println!(
        "kept: {} terms, one leader at a time, and the tokens rose from term to term",
        tokens.len()
    );
    Ok(ExitCode::SUCCESS)
}

/// Returns the latch that leads, according to the grantor. `None` when all are closed.
async fn leader(latches: &[LeaderLatch]) -> Option<usize> {
    loop {
        let open = latches.iter().find(|latch| latch.state() == LatchState::Started)?;
        // The grantor may still name the latch that was closed last; such an answer is skipped.
        if let Ok(seen) = open.participants().await
            && let Some(leader) = seen.leader()
        {
            let is_it = |latch: &LeaderLatch| {
                latch.id() == leader.id && latch.state() == LatchState::Started
            };
            if let Some(at) = latches.iter().position(is_it) {
                return Some(at);
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Asks until a grantor answers: while a member leaves, there may be no grantor for a moment.
async fn participants(latch: &LeaderLatch) -> Participants {
    loop {
        match latch.participants().await {
            Ok(seen) => return seen,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}
