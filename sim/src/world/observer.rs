//! The one way out of a World: a World tells its [`Observer`] each [`Observation`], and
//! stops at the first [`Violation`] that the observer answers with.
//!
//! The World knows this trait and nothing of its implementation, which is
//! [`Observers`](crate::observers::Observers).

use super::World;
use super::trace::seconds;
use crate::history::{Ask, ObjectView};
use elderlock::protocol::{
    Event, Input, LostReason, Outcome, Packet, ProcessId, RequestId, Token, Versions,
};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Watches a World. An observer belongs to its World: a copy of the World has a copy of the
/// observer.
pub trait Observer: Any + std::fmt::Debug + Send + Sync {
    /// Takes an observation, with the World as it is at that moment. A violation stops the World.
    /// Observations go on until the present step is over.
    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Result<(), Violation>;

    /// A copy of the observer, for a copy of the World.
    fn copy(&self) -> Box<dyn Observer>;
}

impl Clone for Box<dyn Observer> {
    fn clone(&self) -> Self {
        (**self).copy()
    }
}

/// A broken invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Its name.
    pub invariant: &'static str,
    /// The lock that the violation is about, `service/name`, if it is about a lock.
    pub lock: Option<String>,
    /// The description.
    pub what: String,
    /// The time, in true nanoseconds.
    pub at: u64,
}

/// Why a packet is lost when it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketLoss {
    /// A rule of the scenario drops it.
    Dropped,
    /// The path is cut.
    Cut,
    /// The weather lost it.
    Lost,
}

/// An output for a request that its process has not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnaskedOutput {
    /// An answer.
    Answer,
    /// A content of an object.
    Value,
    /// A loss of a hold.
    Loss,
    /// A revocation of a hold is requested.
    Revocation,
}

/// An observation of a run.
#[derive(Debug)]
pub enum Observation<'a> {
    // Clients.
    /// A client makes a request; the process does not know it yet.
    Invoked {
        /// The request.
        ask: Ask,
    },
    /// A process reports an outcome of a request: an answer, or a change of a hold. The history has
    /// nothing of the outcome yet.
    Outcome {
        /// The request.
        ask: Ask,
        /// The outcome.
        outcome: &'a Outcome,
    },
    /// A process answers a request; the history does not have it yet.
    Answers {
        /// The request.
        ask: Ask,
        /// The answer to the request.
        outcome: &'a Outcome,
    },
    /// The answer is in the history.
    Answered {
        /// The request.
        ask: Ask,
    },
    /// A process reports that a hold is lost; the history does not have it yet.
    Loses {
        /// The request.
        ask: Ask,
        /// The reason of the loss.
        reason: LostReason,
    },
    /// A process tells a holder that a revocation of its hold is requested.
    Wanted {
        /// The request that holds.
        ask: Ask,
    },
    /// A process encodes a packet for a member of its view, in a run with members of two versions.
    Encoded {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
        /// The version of the packet.
        version: u16,
        /// The versions that the receiver speaks.
        spoken: Versions,
    },
    /// A client sees another value of its open object; the history does not have it yet.
    Sees {
        /// The request that has it open.
        ask: Ask,
        /// The content that it sees.
        sight: &'a ObjectView,
    },
    /// A process puts something out for a request that it does not have.
    Unasked {
        /// The site.
        site: usize,
        /// The request.
        request: RequestId,
        /// The output.
        output: UnaskedOutput,
    },
    /// A share has become the lock, or a lock a share.
    ModeChanged {
        /// The request that holds.
        ask: Ask,
    },
    /// A holder has returned some of its permits.
    PermitsReturned {
        /// The request that holds.
        ask: Ask,
    },
    /// A client releases its hold, or gives up waiting.
    Released {
        /// The request.
        ask: Ask,
    },
    /// A holder writes to the resource that one of its locks protects.
    Wrote {
        /// The request that holds.
        ask: Ask,
        /// The index of its lock.
        index: usize,
        /// The token of the write.
        token: Token,
        /// Whether the store took the write.
        taken: bool,
    },
    /// The store has refused a write to one of the holder's locks, or to several.
    WriteRefused {
        /// The request that holds.
        ask: Ask,
        /// Whether the holder believed in its lock when it wrote.
        believes: bool,
    },

    // Processes.
    /// A process starts, before its first input.
    Started {
        /// The site.
        site: usize,
    },
    /// A running process is about to take an input.
    Takes {
        /// The site.
        site: usize,
        /// The process.
        process: ProcessId,
        /// The input.
        input: &'a Input,
    },
    /// An event of a process.
    Event {
        /// The site.
        site: usize,
        /// The process.
        process: ProcessId,
        /// The event at the member.
        event: &'a Event,
    },
    /// The stored vote of a site has changed.
    Kept {
        /// The site.
        site: usize,
    },
    /// A disk refuses a vote.
    WriteFails {
        /// The site.
        site: usize,
    },
    /// A process has ended with writes of votes under way.
    EndsWriting {
        /// The site.
        site: usize,
    },
    /// A process is about to be killed between two outputs of a step.
    Torn {
        /// The site.
        site: usize,
    },
    /// The outputs of a step are carried out; a process that is to die deciding has yet to.
    CarriedOut {
        /// The site.
        site: usize,
    },
    /// A member has done a step, and all its outputs are carried out.
    Stepped {
        /// The site.
        site: usize,
    },
    /// A process is about to be stopped.
    Pauses {
        /// The site.
        site: usize,
    },
    /// A stopped process wakes, before its first input.
    Wakes {
        /// The site.
        site: usize,
    },
    /// The clock of a site has another rate.
    ClockSet {
        /// The site.
        site: usize,
    },
    /// A process is about to end.
    Ends {
        /// The site.
        site: usize,
        /// The process.
        process: ProcessId,
    },
    /// A process has ended.
    Ended {
        /// The site.
        site: usize,
        /// How, as in [`Entry::End`](crate::record::Entry::End).
        how: &'a str,
        /// The calls of which nothing will be known any more.
        unknown: &'a [Ask],
    },

    // Packets.
    /// A process sends a packet.
    Sent {
        /// The sending site.
        site: usize,
        /// The process.
        process: ProcessId,
        /// The receiver, if the packet names one.
        to: Option<ProcessId>,
        /// The packet.
        packet: &'a Packet,
    },
    /// A sent packet is on its way to a site, or lost.
    Routed {
        /// The sending site.
        from: usize,
        /// The receiving site.
        to: usize,
        /// Its number in this run, from 1 on.
        number: u64,
        /// The packet.
        packet: &'a Packet,
        /// Why it is lost, if it is.
        lost: Option<PacketLoss>,
    },
    /// A packet arrives, and its receiver is about to take it.
    Arrives {
        /// The receiving site.
        site: usize,
        /// Its number in this run.
        number: u64,
    },

    // The driver.
    /// A step of the driver is applied.
    Applied,
    /// A fault of a plan begins.
    Fault {
        /// Its number.
        fault: usize,
        /// Its kind.
        kind: &'a str,
        /// The sites.
        sites: &'a [usize],
    },
    /// A fault of a plan ends.
    Mended {
        /// Its number.
        fault: usize,
    },
    /// The healing begins.
    Heals,
    /// The demands after the healing hold, at every demanded member.
    Rests,
    /// The first violation; the World stops.
    Broken(&'a Violation),
}

impl Observation<'_> {
    /// The request that the observation is about.
    pub fn ask(&self) -> Option<Ask> {
        match *self {
            Observation::Invoked { ask }
            | Observation::Outcome { ask, .. }
            | Observation::Answers { ask, .. }
            | Observation::Answered { ask }
            | Observation::Loses { ask, .. }
            | Observation::Wanted { ask }
            | Observation::Sees { ask, .. }
            | Observation::ModeChanged { ask }
            | Observation::PermitsReturned { ask }
            | Observation::Released { ask }
            | Observation::Wrote { ask, .. }
            | Observation::WriteRefused { ask, .. } => Some(ask),
            _ => None,
        }
    }
}

impl World {
    /// This observer watches the World from now on.
    pub fn observed_by(mut self, observer: impl Observer) -> World {
        self.observer = Some(Box::new(observer));
        self
    }

    /// The observer, if it is of this type.
    pub fn observer<O: Observer>(&self) -> Option<&O> {
        let observer: &dyn Any = &**self.observer.as_ref()?;
        observer.downcast_ref()
    }

    /// The observer, if it is of this type.
    pub fn observer_mut<O: Observer>(&mut self) -> Option<&mut O> {
        let observer: &mut dyn Any = &mut **self.observer.as_mut()?;
        observer.downcast_mut()
    }

    /// Tells the observer, and stops at a violation.
    pub(crate) fn tell(&mut self, observation: &Observation<'_>) {
        // The observer is taken out of the World, so that it may read the whole World. After a
        // panic the observer is still needed.
        let Some(mut observer) = self.observer.take() else { return };
        let verdict = catch_unwind(AssertUnwindSafe(|| observer.observe(self, observation)));
        self.observer = Some(observer);
        match verdict {
            Ok(Ok(())) => {}
            Ok(Err(found)) => self.stop_at(found),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// An invariant is broken that is about no single lock.
    pub(crate) fn fail(&mut self, invariant: &'static str, what: String) {
        self.fail_about(invariant, None, what);
    }

    /// An invariant is broken.
    pub(crate) fn fail_about(
        &mut self,
        invariant: &'static str,
        lock: Option<String>,
        what: String,
    ) {
        self.stop_at(Violation { invariant, lock, what, at: self.now });
    }

    fn stop_at(&mut self, found: Violation) {
        if self.broken.is_some() {
            return;
        }
        let Violation { invariant, what, .. } = &found;
        if self.strict {
            panic!("{}\n{invariant} is broken at {}: {what}", self.story(80), seconds(self.now));
        }
        self.note_line(format!("{invariant} is broken: {what}"));
        self.broken = Some(found.clone());
        self.tell(&Observation::Broken(&found));
    }

    /// The break happened at this time, and was found only now.
    pub(crate) fn date_break(&mut self, at: u64) {
        if let Some(found) = &mut self.broken {
            found.at = at.min(found.at);
        }
    }

    /// A panic is a break like any other.
    pub(crate) fn fail_with(&mut self, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        self.fail("no_panic", text.unwrap_or_default());
    }

    /// The first broken invariant.
    pub fn broken(&self) -> Option<&Violation> {
        self.broken.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Objects to the tenth step.
    #[derive(Clone, Debug, Default)]
    struct StepCounter {
        steps: u64,
        violations: u64,
    }

    impl Observer for StepCounter {
        fn observe(
            &mut self,
            world: &World,
            observation: &Observation<'_>,
        ) -> Result<(), Violation> {
            self.steps += u64::from(matches!(observation, Observation::Stepped { .. }));
            self.violations += u64::from(matches!(observation, Observation::Broken(_)));
            if self.steps < 10 {
                return Ok(());
            }
            let what = "ten steps".to_string();
            Err(Violation { invariant: "few_steps", lock: None, what, at: world.now })
        }

        fn copy(&self) -> Box<dyn Observer> {
            Box::new(self.clone())
        }
    }

    #[test]
    fn a_world_tells_its_observer_and_stops_at_the_first_violation() {
        let mut world = World::unobserved(1).members(3).lenient();
        world = world.observed_by(StepCounter::default());
        world.run_for(Duration::from_secs(5));
        assert_eq!(world.broken().map(|found| found.invariant), Some("few_steps"));
        let seen: &StepCounter = world.observer().unwrap();
        assert_eq!((seen.steps, seen.violations, world.events()), (10, 1, 10));
    }
}
