//! Sessions, at the member that holds their locks: docs/protocol/sessions.md.

use super::guard::Guard;
use super::lock_error::{LockError, Lost};
use super::lock_service::LockService;
use crate::protocol::{LostReason, Timing};
use crate::runtime::engine::{Engine, SessionCount};
use crate::wire::{OrderReport, SessionMessage, SessionRequest, SessionStop};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

const NOT_SERVED: &str = "this member holds no locks for programs that are not members: build it \
                          with serve_sessions(true), or start it with --serve-sessions";

/// Takes the lock, and holds it for as long as the program keeps its session.
pub(super) async fn serve(
    engine: &Arc<Engine>,
    request: SessionRequest,
    reports: &mpsc::Sender<OrderReport>,
    mut messages: mpsc::Receiver<SessionMessage>,
) -> OrderReport {
    if !engine.serves_sessions() {
        return OrderReport::Failed(NOT_SERVED.into());
    }
    // The session counts as open until the end of this call: the member does not leave before.
    let Some(_open) = SessionCount::open(engine) else {
        return OrderReport::Leaves;
    };
    let Some(timing) = engine.session_timing() else {
        return OrderReport::Failed(OrderReport::JOINS.into());
    };
    let service = LockService::new(engine.clone(), request.service.clone());
    let guard = tokio::select! {
        granted = take(&service, &request) => match granted {
            Ok(guard) => guard,
            Err(error) => return OrderReport::NotGranted(engine.reason_for(&error)),
        },
        // A program without the lock can only end its request.
        () = given_up(&mut messages, reports) => return OrderReport::Done { complete: true },
        () = engine.sessions.closing().cancelled() => return OrderReport::Leaves,
    };
    let grant = OrderReport::Granted { token: guard.token(), lineage: guard.lineage() };
    let _ = reports.send(grant).await;
    let promise = SessionPromise::begin(timing, Instant::now());
    let session = ServedSession { guard, promise, is_kept: true };
    session.run(engine, reports, messages).await
}

async fn take(service: &LockService, request: &SessionRequest) -> Result<Guard, LockError> {
    let name = request.name.as_bytes();
    let mut lock = match request.shared {
        true => service.share(name),
        false => service.lock(name),
    };
    lock = lock.metadata(request.metadata.as_bytes()).owner(request.owner);
    if let Some(limit) = request.wait {
        lock = lock.wait(limit);
    }
    if let Some(lease) = request.lease {
        lock = lock.lease(lease);
    }
    lock.await
}

/// Completes when the program ends its session, or its connection ends. Until then answers the
/// program that the member is still there, and that nothing is held.
async fn given_up(
    messages: &mut mpsc::Receiver<SessionMessage>,
    reports: &mpsc::Sender<OrderReport>,
) {
    while let Some(SessionMessage::KeepAlive(number)) = messages.recv().await {
        let _ = reports.send(OrderReport::Alive { number, held_for: Duration::ZERO }).await;
    }
}

/// A session with its lock.
struct ServedSession {
    guard: Guard,
    promise: SessionPromise,
    /// Whether questions are answered: the connection lives, and the member does not leave.
    is_kept: bool,
}

impl ServedSession {
    async fn run(
        mut self,
        engine: &Arc<Engine>,
        reports: &mpsc::Sender<OrderReport>,
        mut messages: mpsc::Receiver<SessionMessage>,
    ) -> OrderReport {
        let mut is_connected = true;
        loop {
            tokio::select! {
                // The end is polled first, so no answer follows it.
                biased;
                () = tokio::time::sleep_until(self.promise.until) => {
                    return self.lose(LostReason::SessionEnded).await;
                }
                reason = self.guard.lost() => {
                    return OrderReport::Lost(Lost::new(reason).to_string());
                }
                message = messages.recv(), if is_connected => match message {
                    Some(SessionMessage::KeepAlive(number)) if self.is_kept => {
                        // The clock is read last: a pause in between lengthens the promise.
                        let left = self.guard.hold().left();
                        let held_for = self.promise.renew(left, Instant::now());
                        let _ = reports.send(OrderReport::Alive { number, held_for }).await;
                    }
                    Some(SessionMessage::KeepAlive(_)) => {}
                    Some(SessionMessage::Release) => {
                        return match self.guard.release().await {
                            Ok(()) => OrderReport::Done { complete: true },
                            Err(error) => OrderReport::Lost(error.to_string()),
                        };
                    }
                    Some(SessionMessage::Stopped(cause)) => {
                        return self.lose(reason_of(cause)).await;
                    }
                    // The program may live on, and believes the last answer.
                    None => is_connected = false,
                },
                () = engine.sessions.closing().cancelled(), if self.is_kept => {
                    self.is_kept = false;
                    let _ = reports.send(OrderReport::Leaves).await;
                }
            }
        }
    }

    /// Releases the lock as lost, unless it was lost before.
    async fn lose(self, reason: LostReason) -> OrderReport {
        let reason = self.guard.hold().lose(reason);
        let _ = self.guard.release().await;
        OrderReport::Lost(Lost::new(reason).to_string())
    }
}

/// The reason of a loss that the program has prevented by stopping in time.
fn reason_of(cause: SessionStop) -> LostReason {
    match cause {
        SessionStop::LeaseEnds => LostReason::LeaseEnded,
        SessionStop::Unconfirmed => LostReason::SessionEnded,
        SessionStop::MemberLeaves => LostReason::Left,
    }
}

/// The member's promise of how long it keeps the lock, by its own answers.
struct SessionPromise {
    timing: Timing,
    /// The time until which the program may believe in the lock, whichever clock it has.
    until: Instant,
}

impl SessionPromise {
    /// The promise of a grant at `now`. The program asks at once. Without a question it has no
    /// belief that could be wrong.
    fn begin(timing: Timing, now: Instant) -> SessionPromise {
        SessionPromise { timing, until: now + timing.member_lease }
    }

    /// Returns how long the lock is surely held, and keeps it for as long. `left`: the rest of the
    /// hold at `now`. A shorter answer does not shorten the promise, since the program believes in
    /// both.
    fn renew(&mut self, left: Duration, now: Instant) -> Duration {
        // The lease of a member that is a quorum alone is endless.
        let held_for = left.min(self.timing.member_lease);
        // The program's clock may be slow by the error, and this one fast.
        self.until = self.until.max(now + self.timing.surely(held_for));
        held_for
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Time;
    use crate::runtime::net::session::SessionBelief;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use std::collections::VecDeque;

    /// Nanoseconds that a clock without error shows in a millisecond of true time.
    const EXACT: u64 = 1_000_000;

    /// Both sides of a session without a connection, each with its own clock. True time is in
    /// whole milliseconds since the grant, so each reading of a clock is exact.
    struct SessionPair {
        /// Nanoseconds that the program's clock shows in a true millisecond.
        program_rate: u64,
        /// Nanoseconds that the member's clock shows in a true millisecond.
        member_rate: u64,
        granted: Instant,
        belief: SessionBelief,
        promise: SessionPromise,
    }

    impl SessionPair {
        fn new((timing, program_rate, member_rate): (Timing, u64, u64)) -> SessionPair {
            let granted = Instant::now();
            let promise = SessionPromise::begin(timing, granted);
            let belief = SessionBelief::new(0);
            SessionPair { program_rate, member_rate, granted, belief, promise }
        }

        /// The program sends a question. Returns its number.
        fn ask(&mut self, at: u64) -> u64 {
            self.belief.ask(Time::from_nanos(at * self.program_rate))
        }

        /// The question arrives at the member, with `left` of the hold remaining. `None`: the
        /// session is over.
        fn answer(&mut self, at: u64, left: Duration) -> Option<Duration> {
            let now = self.granted + Duration::from_nanos(at * self.member_rate);
            (now < self.promise.until).then(|| self.promise.renew(left, now))
        }

        /// The end of the belief in nanoseconds of the member's clock, rounded up.
        fn belief_end(&self) -> u128 {
            let until = u128::from(self.belief.until().as_nanos());
            (until * u128::from(self.member_rate)).div_ceil(u128::from(self.program_rate))
        }

        /// The end of the promise in nanoseconds of the member's clock.
        fn promise_end(&self) -> u128 {
            (self.promise.until - self.granted).as_nanos()
        }
    }

    /// Timings without an error of clocks, with the error of the presets, and with the largest
    /// error.
    fn timings() -> [Timing; 5] {
        let exact = Timing { clock_error_ppm: 0, ..Timing::lan() };
        let wrong = Timing { clock_error_ppm: 200_000, ..Timing::wan() };
        [exact, Timing::fast(), Timing::lan(), Timing::wan(), wrong]
    }

    /// Each timing with the rates of the program's and of the member's clock: at both edges of the
    /// bound, and without error.
    fn clocks() -> Vec<(Timing, u64, u64)> {
        let mut clocks = Vec::new();
        for timing in timings() {
            let error = u64::from(timing.clock_error_ppm);
            let rates = [EXACT - error, EXACT, EXACT + error];
            for program in rates {
                clocks.extend(rates.map(|member| (timing, program, member)));
            }
        }
        clocks
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The member lease in milliseconds.
    fn lease(timing: Timing) -> u64 {
        u64::try_from(timing.member_lease.as_millis()).expect("it is at most an hour")
    }

    #[test]
    fn a_program_stops_believing_before_its_member_releases_the_lock() {
        for (timing, program, member) in clocks() {
            let lease = lease(timing);
            let endless = Duration::from_nanos(u64::MAX);
            let nano = Duration::from_nanos(1);
            let rests = [Duration::ZERO, nano, ms(lease / 2), ms(lease), endless];
            // The last question arrives shortly before the first promise is over.
            let times = [(0, 0), (0, 1), (0, lease / 2), (1, 1), (lease / 2, lease / 4 * 3)];
            for (asked, arrives) in times {
                for left in rests {
                    let mut pair = SessionPair::new((timing, program, member));
                    let number = pair.ask(asked);
                    let told = pair.answer(arrives, left).expect("the first promise is not over");
                    assert!(told <= left && told <= timing.member_lease, "{told:?} of {left:?}");
                    pair.belief.on_alive(number, told);
                    let (belief, promise) = (pair.belief_end(), pair.promise_end());
                    assert!(
                        belief <= promise,
                        "asked at {asked} ms, which arrives at {arrives} ms with {left:?} left: a \
                         belief to {belief} and a promise to {promise}, with clocks that show \
                         {program} and {member} ns in a millisecond: {timing:?}"
                    );
                }
            }
        }
    }

    /// Questions and answers of any delay, of which one connection keeps the order.
    #[test]
    fn late_questions_and_late_answers_keep_the_belief_within_the_promise() {
        let mut chance = StdRng::seed_from_u64(1);
        for (timing, program, member) in clocks() {
            let lease = lease(timing);
            let mut heard = 0;
            // `late` is the number of questions that leave before the answer arrives.
            for late in [0, 1, 2, 3].repeat(5) {
                let mut pair = SessionPair::new((timing, program, member));
                let (mut asked, mut arrives) = (0_u64, 0_u64);
                let mut answers = VecDeque::new();
                for _ in 0..50 {
                    asked += chance.random_range(0..lease / 4);
                    arrives = arrives.max(asked + chance.random_range(0..lease / 4));
                    let number = pair.ask(asked);
                    let left = ms(chance.random_range(0..lease * 2));
                    if let Some(told) = pair.answer(arrives, left) {
                        answers.push_back((number, told, pair.promise_end()));
                    }
                    if answers.len() > late
                        && let Some((number, told, promise)) = answers.pop_front()
                    {
                        pair.belief.on_alive(number, told);
                        let belief = pair.belief_end();
                        assert!(
                            belief <= promise && promise <= pair.promise_end(),
                            "question {number}, {late} before the last: a belief to {belief} and \
                             a promise to {promise}, with clocks that show {program} and {member} \
                             ns in a millisecond: {timing:?}"
                        );
                        heard += 1;
                    }
                }
            }
            assert!(heard > 100, "only {heard} answers arrived: {timing:?}");
        }
    }

    /// With the slowest program, the fastest member and no delay both ends are the same, but for a
    /// rounded nanosecond.
    #[test]
    fn a_member_keeps_the_lock_no_longer_than_the_slowest_program_believes() {
        for timing in timings() {
            let error = u64::from(timing.clock_error_ppm);
            let mut pair = SessionPair::new((timing, EXACT - error, EXACT + error));
            let number = pair.ask(0);
            let left = timing.member_lease * 2;
            let told = pair.answer(0, left).expect("the first promise is not over");
            assert_eq!(told, timing.member_lease);
            pair.belief.on_alive(number, told);
            let (belief, promise) = (pair.belief_end(), pair.promise_end());
            assert!(
                (belief..=belief + 1).contains(&promise),
                "a belief to {belief} and a promise to {promise}: {timing:?}"
            );
        }
    }

    #[test]
    fn a_shorter_answer_takes_no_promise_back() {
        let timing = Timing::lan();
        let granted = Instant::now();
        let mut promise = SessionPromise::begin(timing, granted);
        let first = granted + timing.member_lease;
        assert_eq!(promise.until, first, "the first question may take so long");
        assert_eq!(promise.renew(ms(10), granted), ms(10));
        assert_eq!(promise.until, first);
        let longest = timing.surely(timing.member_lease);
        assert_eq!(promise.renew(timing.member_lease, granted + ms(1)), timing.member_lease);
        assert_eq!(promise.until, granted + ms(1) + longest);
        assert_eq!(promise.renew(ms(10), granted + ms(2)), ms(10));
        assert_eq!(promise.until, granted + ms(1) + longest);
        assert_eq!(promise.renew(timing.member_lease, granted + ms(3)), timing.member_lease);
        assert_eq!(promise.until, granted + ms(3) + longest, "a longer one lengthens it");
    }
}
