//! The bench's members, from the parent's side.

use crate::clock;
use crate::interrupt;
use crate::message::{BenchOrder, BenchReport, Event, Load, LoadResult, Usage, Window};
use crate::processes::{ChildOutput, ChildUpdate, Processes, StopSignal, free_addresses};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest time of an answer. A million locks are taken in less.
const LIMIT: Duration = Duration::from_secs(300);
/// The greatest number of checks whether all waiters are queued.
const LOOKS: usize = 10_000;
/// The longest time that an order with a common beginning takes to reach all members.
const LEAD: Duration = Duration::from_millis(50);

/// A failure of the cluster, or of the bench.
pub(crate) type BenchResult<T> = Result<T, String>;

/// Makes all processes that start from now on have their code and memory at the same addresses.
/// Returns false if the system does not allow that.
pub(crate) fn choose_equal_addresses() -> bool {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::personality::{Persona, get, set};
        get().and_then(|persona| set(persona | Persona::ADDR_NO_RANDOMIZE)).is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// Members on the loopback. The member with index 0 is the elder as long as it lives.
pub(crate) struct BenchCluster {
    processes: Processes<BenchReport>,
    directory: PathBuf,
    addresses: Vec<SocketAddr>,
    /// The file with the members' cluster key.
    key_file: Option<PathBuf>,
    /// The lock service whose clients run here instead of members, with its address.
    #[cfg(feature = "rivals")]
    rival: Option<(crate::rivals::Rival, SocketAddr)>,
    /// The process id of each member.
    members: Vec<String>,
    /// The events so far: the index of the member, the time, the event.
    events: Vec<(usize, u64, Event)>,
    /// Reports that no call has consumed yet.
    said: Vec<(usize, BenchReport)>,
    /// The index of the member that was ordered to leave.
    leaving: Option<usize>,
}

impl BenchCluster {
    /// Starts `members` members, and waits until all have joined. Their logs go to `directory`.
    pub(crate) fn set(members: usize, directory: PathBuf) -> BenchResult<BenchCluster> {
        BenchCluster::with_room(members, members, directory)
    }

    /// Like [`set`](Self::set), with members that have the key in this file.
    pub(crate) fn set_with_key(
        members: usize,
        directory: PathBuf,
        key_file: PathBuf,
    ) -> BenchResult<BenchCluster> {
        let mut cluster = BenchCluster::with_room(0, members, directory)?;
        cluster.key_file = Some(key_file);
        (0..members).try_for_each(|index| cluster.enter(index))?;
        Ok(cluster)
    }

    /// Starts `members` members as [`set`](Self::set) does. Further members may start at the
    /// indexes up to `room`, one after the other.
    pub(crate) fn with_room(
        members: usize,
        room: usize,
        directory: PathBuf,
    ) -> BenchResult<BenchCluster> {
        let addresses = free_addresses(room).map_err(|error| error.to_string())?;
        let mut cluster = BenchCluster {
            processes: Processes::new(),
            directory,
            addresses,
            key_file: None,
            #[cfg(feature = "rivals")]
            rival: None,
            members: vec![String::new(); room],
            events: Vec::new(),
            said: Vec::new(),
            leaving: None,
        };
        for index in 0..members {
            cluster.enter(index)?;
        }
        Ok(cluster)
    }

    /// Starts `count` clients of another lock service.
    #[cfg(feature = "rivals")]
    pub(crate) fn clients(
        count: usize,
        rival: crate::rivals::Rival,
        at: SocketAddr,
        directory: PathBuf,
    ) -> BenchResult<BenchCluster> {
        let mut cluster = BenchCluster::with_room(0, count, directory)?;
        cluster.rival = Some((rival, at));
        (0..count).try_for_each(|index| cluster.enter(index))?;
        Ok(cluster)
    }

    /// The arguments of the process of this index.
    fn arguments(&self, index: usize) -> Vec<String> {
        #[cfg(feature = "rivals")]
        if let Some((rival, at)) = self.rival {
            return crate::rivals::arguments(rival, at);
        }
        let (bind, seed) = (self.addresses[index].to_string(), self.addresses[0].to_string());
        let mut arguments =
            ["member", "--bind", &bind, "--seed", &seed].map(str::to_owned).to_vec();
        if let Some(key_file) = &self.key_file {
            arguments.extend(["--key-file".to_owned(), key_file.display().to_string()]);
        }
        arguments
    }

    /// Starts the member of this index, for the first time or again, and waits until it has joined.
    pub(crate) fn enter(&mut self, index: usize) -> BenchResult<()> {
        let arguments = self.arguments(index);
        let errors = self.directory.join(format!("member-{index}.log"));
        self.processes
            .start(index, &arguments, &errors)
            .map_err(|error| format!("member {index}: {error}"))?;
        self.members[index] = self.report(index, "to join", |report| match report {
            BenchReport::Joined(process) => Some(process.clone()),
            _ => None,
        })?;
        Ok(())
    }

    /// The process id of the member of this index.
    pub(crate) fn process(&self, index: usize) -> &str {
        &self.members[index]
    }

    /// Sends an order whose answer is awaited later, or not at all.
    pub(crate) fn order(&mut self, index: usize, order: &BenchOrder) {
        if *order == BenchOrder::Leave {
            self.leaving = Some(index);
        }
        self.processes.order(index, order);
    }

    /// Sends an order and waits for the answer that `pick` accepts.
    pub(crate) fn ask<T>(
        &mut self,
        index: usize,
        order: &BenchOrder,
        pick: impl Fn(&BenchReport) -> Option<T>,
    ) -> BenchResult<T> {
        self.order(index, order);
        self.report(index, &format!("to obey {order:.40?}"), pick)
    }

    /// Runs these loads at the same time for this long. Returns their results in the same order.
    pub(crate) fn run(
        &mut self,
        loads: &[(usize, Load)],
        span: Duration,
    ) -> BenchResult<Vec<LoadResult>> {
        let from = clock::now() + LEAD.as_nanos() as u64;
        let window = Window { from, to: from + span.as_nanos() as u64 };
        for (index, load) in loads {
            self.order(*index, &BenchOrder::Run { load: *load, window });
        }
        let ran = |report: &BenchReport| match report {
            BenchReport::Ran(ran) => Some(ran.clone()),
            _ => None,
        };
        loads
            .iter()
            .map(|(index, load)| self.report(*index, &format!("to do {load:?}"), ran))
            .collect()
    }

    /// Waits until the grantor reports to `index` that number of requests in that number of queues.
    pub(crate) fn await_queued(
        &mut self,
        index: usize,
        queues: u32,
        waiters: u32,
    ) -> BenchResult<()> {
        for _ in 0..LOOKS {
            let standing = self.ask(index, &BenchOrder::Look(queues), |report| match report {
                BenchReport::Seen { queues, .. } => {
                    Some(queues.iter().map(Vec::len).sum::<usize>())
                }
                _ => None,
            })?;
            if standing == waiters as usize {
                return Ok(());
            }
        }
        Err(format!("not all {waiters} are queued at the end of the wait"))
    }

    /// The usage of one member.
    pub(crate) fn usage(&mut self, index: usize) -> BenchResult<Usage> {
        self.ask(index, &BenchOrder::Usage, |report| match report {
            BenchReport::Using(usage) => Some(*usage),
            _ => None,
        })
    }

    /// The address at which a process sends data back, or passes them on.
    pub(crate) fn listener(&mut self, index: usize, order: &BenchOrder) -> BenchResult<SocketAddr> {
        self.ask(index, order, |report| match report {
            BenchReport::Listens(addr) => Some(*addr),
            _ => None,
        })
    }

    /// Waits for a report of this member that `pick` accepts.
    fn report<T>(
        &mut self,
        index: usize,
        what: &str,
        pick: impl Fn(&BenchReport) -> Option<T>,
    ) -> BenchResult<T> {
        let what = format!("for member {index} {what}");
        self.any_report(&what, |from, report| if from == index { pick(report) } else { None })
    }

    /// Waits for a report that `pick` accepts, from any member. Other reports are kept for later
    /// calls.
    pub(crate) fn any_report<T>(
        &mut self,
        what: &str,
        pick: impl Fn(usize, &BenchReport) -> Option<T>,
    ) -> BenchResult<T> {
        let until = Instant::now() + LIMIT;
        loop {
            let mut said = self.said.iter().enumerate();
            if let Some((at, picked)) =
                said.find_map(|(at, (from, report))| Some((at, pick(*from, report)?)))
            {
                self.said.remove(at);
                return Ok(picked);
            }
            if Instant::now() >= until {
                return Err(format!("waited too long {what}"));
            }
            self.next(until)?;
        }
    }

    /// Waits for an event at `from` or later that `pick` accepts. Returns its time, its index, and
    /// the result of `pick`.
    pub(crate) fn event<T>(
        &mut self,
        from: u64,
        what: &str,
        pick: impl Fn(usize, &Event) -> Option<T>,
    ) -> BenchResult<(u64, usize, T)> {
        let until = Instant::now() + LIMIT;
        loop {
            let found = self.events.iter().filter(|(_, at, _)| *at >= from);
            if let Some(found) = found
                .filter_map(|(index, at, event)| Some((*at, *index, pick(*index, event)?)))
                .next()
            {
                return Ok(found);
            }
            if Instant::now() >= until {
                return Err(format!("waited too long for {what}"));
            }
            self.next(until)?;
        }
    }

    /// Waits for this time, and handles the reports that come meanwhile.
    pub(crate) fn pause(&mut self, span: Duration) -> BenchResult<()> {
        let until = Instant::now() + span;
        while Instant::now() < until {
            self.next(until)?;
        }
        Ok(())
    }

    /// Sends SIGKILL, and returns the time at which it was sent.
    pub(crate) fn kill(&mut self, index: usize) -> u64 {
        let at = clock::now();
        self.processes.kill(index);
        at
    }

    /// Sends SIGSTOP, and returns the time at which it was sent.
    pub(crate) fn stop(&mut self, index: usize) -> BenchResult<u64> {
        let at = clock::now();
        self.processes.signal(index, StopSignal::Stop).map_err(|why| why.to_string())?;
        Ok(at)
    }

    /// Waits until the member that was ordered to leave has ended.
    pub(crate) fn end(&mut self, index: usize) -> BenchResult<()> {
        let until = Instant::now() + LIMIT;
        while self.processes.ended(index).is_none() {
            if Instant::now() >= until {
                return Err(format!("waited too long for member {index} to end"));
            }
            self.next(until)?;
        }
        self.leaving = None;
        match self.processes.ended(index) {
            Some(status) if status.success() => Ok(()),
            status => Err(format!("member {index} ended with {status:?}")),
        }
    }

    /// Handles the next report, if one arrives soon.
    fn next(&mut self, until: Instant) -> BenchResult<()> {
        interrupt::check()?;
        // A short wait, so that the caller can check its time limit.
        let moment = until.min(Instant::now() + Duration::from_millis(100));
        let Some(ChildUpdate { index, is_late, what, .. }) = self.processes.next(moment) else {
            return Ok(());
        };
        match what {
            ChildOutput::Said(BenchReport::Event { at, event }) => {
                self.events.push((index, at, event))
            }
            ChildOutput::Said(_) | ChildOutput::Nonsense(_) if is_late => {}
            ChildOutput::Said(BenchReport::Failed(why)) => {
                return Err(format!("member {index}: {why}"));
            }
            ChildOutput::Said(report) => self.said.push((index, report)),
            ChildOutput::Nonsense(why) => return Err(format!("member {index} {why}")),
            ChildOutput::Ended if self.leaving == Some(index) => {}
            ChildOutput::Ended => return Err(format!("member {index} ended by itself")),
        }
        Ok(())
    }
}
