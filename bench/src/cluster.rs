//! The bench's members, from the parent's side.

use crate::clock;
use crate::interrupt;
use crate::message::{BenchOrder, BenchReport, Event, Load, Ran, Usage, Window};
use crate::processes::{ChildOutput, ChildUpdate, Processes, free_addresses};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// No answer takes longer; a million locks are taken in less.
const LIMIT: Duration = Duration::from_secs(300);
/// The number of checks whether all waiters are queued.
const LOOKS: usize = 10_000;
/// The time that an order to begin together takes at most to reach all.
const LEAD: Duration = Duration::from_millis(50);

/// A failure of the cluster, or of the bench.
pub(crate) type BenchResult<T> = Result<T, String>;

/// From now on each started process has its code and its memory at the same addresses as the
/// others. Returns false if the system does not allow that.
pub(crate) fn choose_equal_addresses() -> bool {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::personality::{Persona, get, set};
        get().and_then(|persona| set(persona | Persona::ADDR_NO_RANDOMIZE)).is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// Members on the loopback. The one in place 0 is the elder for as long as it lives.
pub(crate) struct BenchCluster {
    processes: Processes<BenchReport>,
    directory: PathBuf,
    addresses: Vec<SocketAddr>,
    /// The rival whose clients run here instead of members.
    #[cfg(feature = "peers")]
    rival: Option<(crate::peers::Rival, SocketAddr)>,
    /// The process id of each member.
    members: Vec<String>,
    /// The events: place, time, event.
    events: Vec<(usize, u64, Event)>,
    /// Reports that no call has waited for yet.
    said: Vec<(usize, BenchReport)>,
    /// The member that is told to leave.
    leaving: Option<usize>,
}

impl BenchCluster {
    /// Starts `members` members, and waits until all have joined. Their logs go to `directory`.
    pub(crate) fn set(members: usize, directory: PathBuf) -> BenchResult<BenchCluster> {
        BenchCluster::with_room(members, members, directory)
    }

    /// Starts `members` members as [`set`](Self::set) does. Further members may start in the places
    /// up to `room`, one after the other.
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
            #[cfg(feature = "peers")]
            rival: None,
            members: vec![String::new(); room],
            events: Vec::new(),
            said: Vec::new(),
            leaving: None,
        };
        for place in 0..members {
            cluster.enter(place)?;
        }
        Ok(cluster)
    }

    /// This many clients of another lock service.
    #[cfg(feature = "peers")]
    pub(crate) fn clients(
        count: usize,
        rival: crate::peers::Rival,
        at: SocketAddr,
        directory: PathBuf,
    ) -> BenchResult<BenchCluster> {
        let mut cluster = BenchCluster::with_room(0, count, directory)?;
        cluster.rival = Some((rival, at));
        (0..count).try_for_each(|place| cluster.enter(place))?;
        Ok(cluster)
    }

    /// How the process of this place is started.
    fn arguments(&self, place: usize) -> Vec<String> {
        #[cfg(feature = "peers")]
        if let Some((rival, at)) = self.rival {
            return crate::peers::arguments(rival, at);
        }
        let (bind, seed) = (self.addresses[place].to_string(), self.addresses[0].to_string());
        ["member", "--bind", &bind, "--seed", &seed].map(str::to_owned).to_vec()
    }

    /// Starts the member of this place, for the first time or again, and waits until it has joined.
    pub(crate) fn enter(&mut self, place: usize) -> BenchResult<()> {
        let arguments = self.arguments(place);
        let errors = self.directory.join(format!("member-{place}.log"));
        self.processes
            .start(place, &arguments, &errors)
            .map_err(|error| format!("member {place}: {error}"))?;
        self.members[place] = self.report(place, "to join", |report| match report {
            BenchReport::Joined(process) => Some(process.clone()),
            _ => None,
        })?;
        Ok(())
    }

    /// The process id of the member in this place.
    pub(crate) fn process(&self, place: usize) -> &str {
        &self.members[place]
    }

    /// Sends an order that is answered later, or not at all.
    pub(crate) fn order(&mut self, place: usize, order: &BenchOrder) {
        if *order == BenchOrder::Leave {
            self.leaving = Some(place);
        }
        self.processes.order(place, order);
    }

    /// Sends an order and waits for the answer that `pick` accepts.
    pub(crate) fn ask<T>(
        &mut self,
        place: usize,
        order: &BenchOrder,
        pick: impl Fn(&BenchReport) -> Option<T>,
    ) -> BenchResult<T> {
        self.order(place, order);
        self.report(place, &format!("to obey {order:.40?}"), pick)
    }

    /// Runs these at the same time for this long. Returns the result of each, in that order.
    pub(crate) fn run(&mut self, loads: &[(usize, Load)], span: Duration) -> BenchResult<Vec<Ran>> {
        let from = clock::now() + LEAD.as_nanos() as u64;
        let window = Window { from, to: from + span.as_nanos() as u64 };
        for (place, load) in loads {
            self.order(*place, &BenchOrder::Run { load: *load, window });
        }
        let ran = |report: &BenchReport| match report {
            BenchReport::Ran(ran) => Some(ran.clone()),
            _ => None,
        };
        loads
            .iter()
            .map(|(place, load)| self.report(*place, &format!("to do {load:?}"), ran))
            .collect()
    }

    /// Waits until the grantor reports to `place` that many requests in that many queues.
    pub(crate) fn stand_in_line(
        &mut self,
        place: usize,
        queues: u32,
        waiters: u32,
    ) -> BenchResult<()> {
        for _ in 0..LOOKS {
            let standing = self.ask(place, &BenchOrder::Look(queues), |report| match report {
                BenchReport::Seen { queues, .. } => {
                    Some(queues.iter().map(Vec::len).sum::<usize>())
                }
                _ => None,
            })?;
            if standing == waiters as usize {
                return Ok(());
            }
        }
        Err(format!("not all {waiters} stand in line, however often one looks"))
    }

    /// The usage of one member.
    pub(crate) fn usage(&mut self, place: usize) -> BenchResult<Usage> {
        self.ask(place, &BenchOrder::Usage, |report| match report {
            BenchReport::Using(usage) => Some(*usage),
            _ => None,
        })
    }

    /// The address at which one process sends back, or passes on.
    pub(crate) fn listener(&mut self, place: usize, order: &BenchOrder) -> BenchResult<SocketAddr> {
        self.ask(place, order, |report| match report {
            BenchReport::Listens(addr) => Some(*addr),
            _ => None,
        })
    }

    /// Waits for a report of this place.
    fn report<T>(
        &mut self,
        place: usize,
        what: &str,
        pick: impl Fn(&BenchReport) -> Option<T>,
    ) -> BenchResult<T> {
        let what = format!("for member {place} {what}");
        self.any_report(&what, |from, report| if from == place { pick(report) } else { None })
    }

    /// Waits for a report that `pick` accepts, from any place. Others are kept for later waits.
    pub(crate) fn any_report<T>(
        &mut self,
        what: &str,
        pick: impl Fn(usize, &BenchReport) -> Option<T>,
    ) -> BenchResult<T> {
        let until = Instant::now() + LIMIT;
        loop {
            let mut said = self.said.iter().enumerate();
            if let Some((index, picked)) =
                said.find_map(|(index, (from, report))| Some((index, pick(*from, report)?)))
            {
                self.said.remove(index);
                return Ok(picked);
            }
            if Instant::now() >= until {
                return Err(format!("waited too long {what}"));
            }
            self.next(until)?;
        }
    }

    /// Waits for an event at `from` or later; returns its time, its place, and the result of
    /// `pick`.
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
                .filter_map(|(place, at, event)| Some((*at, *place, pick(*place, event)?)))
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

    /// Lets time pass.
    pub(crate) fn pause(&mut self, span: Duration) -> BenchResult<()> {
        let until = Instant::now() + span;
        while Instant::now() < until {
            self.next(until)?;
        }
        Ok(())
    }

    /// SIGKILL; returns the time at which it was sent.
    pub(crate) fn kill(&mut self, place: usize) -> u64 {
        let at = clock::now();
        self.processes.kill(place);
        at
    }

    /// Waits until the member that was told to leave has ended.
    pub(crate) fn end(&mut self, place: usize) -> BenchResult<()> {
        let until = Instant::now() + LIMIT;
        while self.processes.ended(place).is_none() {
            if Instant::now() >= until {
                return Err(format!("waited too long for member {place} to end"));
            }
            self.next(until)?;
        }
        self.leaving = None;
        match self.processes.ended(place) {
            Some(status) if status.success() => Ok(()),
            status => Err(format!("member {place} ended with {status:?}")),
        }
    }

    /// Handles the next report, if one comes soon.
    fn next(&mut self, until: Instant) -> BenchResult<()> {
        interrupt::check()?;
        // A short wait, so that the caller can check its time limit.
        let moment = until.min(Instant::now() + Duration::from_millis(100));
        let Some(ChildUpdate { place, is_late, what, .. }) = self.processes.next(moment) else {
            return Ok(());
        };
        match what {
            ChildOutput::Said(BenchReport::Event { at, event }) => {
                self.events.push((place, at, event))
            }
            ChildOutput::Said(_) | ChildOutput::Nonsense(_) if is_late => {}
            ChildOutput::Said(BenchReport::Failed(why)) => {
                return Err(format!("member {place}: {why}"));
            }
            ChildOutput::Said(report) => self.said.push((place, report)),
            ChildOutput::Nonsense(why) => return Err(format!("member {place} {why}")),
            ChildOutput::Ended if self.leaving == Some(place) => {}
            ChildOutput::Ended => return Err(format!("member {place} ended by itself")),
        }
        Ok(())
    }
}
