//! `Engine`: the core behind a lock. Everything that happens to a member is one turn of it, but for free locks of its own,
//! which are taken beside it and told to it later (`lane.rs`).
//!
//! A turn locks, steps the core, carries out what the core says in order, unlocks, and only then wakes whoever waits
//! for an answer. No user code runs under the lock. A call that the core can answer at once is answered in the turn of
//! the caller: no message, no task switch.
//!
//! Two queues are emptied by whoever is there (the side queue of commands from `Drop`, the events to announce). Both
//! follow one rule: put in first, then *try* to take the right to empty it; whoever has that right looks again after
//! giving it up. So nothing stays behind, and nobody blocks. Those who only look at the core do not: who finds nobody but
//! them in his way, and for long, tells the timer task.

use super::disk::Disk;
use super::hold::HoldCell;
use super::lane::{Doings, Lane};
use super::sync::{
    AtomicBool, AtomicU64, Map, Mutex, MutexGuard, Planted, RwLock, RwLockWriteGuard, fence, is_planted, is_poisoned,
    seam, spin_loop,
};
use super::telemetry::{Mail, Note, Sampler, Watch};
use super::{Inbox, Network, clock};
use crate::protocol::ledger::Ledger;
use crate::protocol::{
    AtOnce, Command, Config, Event, GrantorState, Input, LockName, LostReason, MemberInfo, Node, Outcome, Output,
    Owner, ProcessId, RequestId, ServiceName, Status, Time, Token, Want,
};
use rand::TryRng as _;
use rand::rngs::{SysError, SysRng};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, TryLockError, Weak};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::{Notify, broadcast, watch};

/// Changes of standing kept for a slow reader. Each takes a member lease or a join, so this is minutes of trouble.
const STANDING_RING: usize = 64;

/// Events kept for a slow reader. A member goes through a handful at a time; a thousand is a reader that stopped.
const EVENT_RING: usize = 1024;

/// Cells kept for holds that come next: some for each thread that takes locks one after the other.
const SPARE: usize = 64;

/// How often whoever must not wait tries to get past those who look at the core, which takes each of them some hundred
/// nanoseconds.
const TRIES: usize = if cfg!(elderlock_shuttle) { 1 } else { 100 };

/// The timer task looks at the clock at least so often while it waits for a deadline: tokio's clock stands still while
/// the machine sleeps, the core's goes on.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

/// A process id never used before.
pub(crate) fn draw_process() -> Result<ProcessId, SysError> {
    #[cfg(feature = "simulated")]
    if let Some(process) = super::simulated::draw_process() {
        return Ok(process);
    }
    let mut bytes = [0; 16];
    SysRng.try_fill_bytes(&mut bytes)?;
    Ok(ProcessId(u128::from_le_bytes(bytes)))
}

/// What became of a request: the hold, or why not, or what else was asked for. Small, for it goes through many hands.
pub(crate) type Answer = Result<Arc<HoldCell>, Box<Outcome>>;

fn closed(reason: LostReason) -> Answer {
    Err(Box::new(Outcome::Closed(reason)))
}

/// What the engine tells the application.
#[derive(Clone, Debug)]
pub(crate) enum Announcement {
    /// The core said so.
    Event(Event),
    /// Expelled: the incarnation is over.
    Lost,
    /// A new incarnation is ready.
    Rejoined(ProcessId),
}

/// Something for the readers.
enum News {
    Happened(Announcement),
    Stands(Standing),
}

/// How a member stands with its cluster, from [`Member::standing`](crate::Member::standing): its member lease, in one
/// word. Each implies what the guards of the member say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub enum Standing {
    /// Its lease runs: guards are good, requests are answered.
    Connected,
    /// Its lease ran out, and no elder with a quorum has renewed it: every guard is lost for good, requests wait. It may
    /// be [`Connected`](Standing::Connected) again, as the same process.
    Suspended,
    /// The others went on without it, or it has left or is leaving: every guard is lost for good, and what it held may be
    /// others' by now. Unless it has left, it joins again by itself as a new process.
    Lost,
}

/// What an engine is started with.
pub(crate) struct EngineOptions {
    pub(crate) config: Config,
    pub(crate) network: Arc<dyn Network>,
    /// Where votes are kept. The configuration says that they are to be.
    pub(crate) disk: Option<Disk>,
}

/// The core behind a lock. See the head of the module.
pub(crate) struct Engine {
    /// Whoever wants the shell to change it has this first, so that such meet here, and not at each part of the
    /// reader-writer lock.
    gate: Mutex<()>,
    shell: RwLock<Shell>,
    /// The shell's, to be flushed without its lock.
    network: Arc<dyn Network>,
    /// Commands from `Drop`, which must not wait for the shell. Holds no more than there are guards and futures.
    side: Side,
    /// Events on their way to the readers, in order; put in under the shell's lock.
    announcements: Mutex<VecDeque<News>>,
    /// The readers; `None` when no event will follow.
    readers: Mutex<Option<Readers>>,
    /// The present incarnation.
    me: Mutex<MemberInfo>,
    next_request: AtomicU64,
    /// Tells the timer task that its deadline has come nearer.
    rearm: Notify,
    phase: watch::Sender<Phase>,
}

/// Who is told what the member goes through.
struct Readers {
    events: broadcast::Sender<Announcement>,
    standings: broadcast::Sender<Standing>,
    /// What was told last: where a new reader of standings begins.
    told: Standing,
}

impl Readers {
    fn tell(&mut self, news: News) {
        // Sending fails without readers, which is no fault.
        match news {
            News::Happened(announcement) => _ = self.events.send(announcement),
            News::Stands(standing) => {
                self.told = standing;
                let _ = self.standings.send(standing);
            }
        }
    }
}

/// How far the engine is, as those see it who wait for it to join or to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Phase {
    /// In a view, with a running lease, at least once in this incarnation.
    pub(crate) ready: bool,
    /// Set when it has left, by whatever way.
    pub(crate) closed: Option<Closed>,
    /// The network is shut down, too: the port is free.
    pub(crate) stopped: bool,
    /// How often it has changed.
    changes: u64,
}

/// How it left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    /// The others know, or there are none.
    Heard,
    /// Nobody confirmed it; the others wait for the member's lease to end.
    Unheard,
    /// The runtime under it ended, or the core broke.
    Broken,
}

/// Commands that wait for somebody who has the shell, and how many there are: mostly none, and then nobody locks it.
#[derive(Default)]
struct Side {
    commands: Mutex<Vec<Aside>>,
    count: AtomicU64,
}

/// What was put aside.
enum Aside {
    Command(Command),
    /// To give back what was taken in a lane; the core knows of it by the time this is done.
    GiveBack(Arc<HoldCell>),
}

impl Side {
    fn push(&self, aside: Aside) {
        let mut commands = lock(&self.commands);
        commands.push(aside);
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    fn take(&self) -> Vec<Aside> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut commands = lock(&self.commands);
        self.count.store(0, Ordering::Release);
        std::mem::take(&mut *commands)
    }

    /// To be asked after unlocking the shell, and before trying to lock it. The fence stands between the two on both sides:
    /// either what is pushed is seen here, or whoever pushes it sees that the shell is free.
    fn is_empty(&self) -> bool {
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Acquire) == 0
    }
}

/// What the lock protects.
struct Shell {
    node: Node,
    config: Config,
    network: Arc<dyn Network>,
    /// Keeps the vote, if this member has a data directory.
    disk: Option<Disk>,
    /// Reused from turn to turn.
    outputs: Vec<Output>,
    slots: Map<RequestId, Slot>,
    /// As many as held locks.
    holds: Ledger<Arc<HoldCell>>,
    /// One for each service that somebody has a handle of.
    lanes: BTreeMap<ServiceName, Weak<Lane>>,
    /// Those in which something was done of which the core has not heard.
    used: Mutex<Vec<Arc<Lane>>>,
    /// Cells of holds that are over, for those that come next as soon as nobody else has them: who takes one lock after the
    /// other would ask for memory each time. At most [`SPARE`].
    spare: VecDeque<Arc<HoldCell>>,
    /// The end of the member lease of this incarnation, shared with its holds.
    lease_end: Arc<AtomicU64>,
    /// What the timer task sleeps towards.
    armed: Time,
    /// It was told to leave.
    leaving: bool,
    /// In the first incarnation nobody has lost anything by its being abandoned.
    joined_before: bool,
    phase: Phase,
    /// As announced last.
    standing: Standing,
    /// Packets, counted for the timer task.
    mail: Mail,
    /// What has begun and not ended, for those who listen.
    watch: Watch,
}

/// A request whose future has been told to wait.
enum Slot {
    Waiting(Option<Waker>),
    Answered(Answer),
}

/// The right to change the shell.
type Entered<'a> = (RwLockWriteGuard<'a, Shell>, MutexGuard<'a, ()>);

/// What is left to do after unlocking.
#[derive(Default)]
struct After {
    wakers: Vec<Waker>,
    lost: Vec<Arc<HoldCell>>,
    /// Holds that are wanted back, and objects that have something new to tell.
    news: Vec<Arc<HoldCell>>,
    /// Values whose destructors may be the user's.
    trash: Vec<Slot>,
    announcements: Vec<News>,
    notes: Vec<Note>,
    rearm: bool,
    phase: bool,
    /// Packets were queued.
    sent: bool,
    /// Somebody waits for what comes of them, and has nothing else to do.
    hurry: bool,
    /// The core was stepped.
    stepped: bool,
    /// Something was done at once, or asked: nothing but a hold has changed.
    at_once: bool,
}

impl After {
    fn announce(&mut self, announcement: Announcement) {
        self.announcements.push(News::Happened(announcement));
    }
}

/// The request that the present turn was made for, and its answer.
struct Own {
    request: RequestId,
    answer: Option<Answer>,
}

impl Engine {
    pub(crate) fn new(options: EngineOptions) -> Arc<Engine> {
        let EngineOptions { config, network, disk } = options;
        let phase = Phase { ready: false, closed: None, stopped: false, changes: 0 };
        let me = config.me.clone();
        let shell = Shell {
            node: Node::new(config.clone(), clock::now()),
            config,
            network: network.clone(),
            disk,
            outputs: Vec::new(),
            slots: Map::default(),
            holds: Ledger::default(),
            lanes: BTreeMap::new(),
            used: Mutex::default(),
            spare: VecDeque::new(),
            lease_end: Arc::new(AtomicU64::new(0)),
            armed: Time::ZERO,
            leaving: false,
            joined_before: false,
            phase,
            standing: Standing::Lost,
            mail: Mail::new(),
            watch: Watch::default(),
        };
        Arc::new(Engine {
            gate: Mutex::default(),
            shell: RwLock::new(shell),
            network,
            side: Side::default(),
            announcements: Mutex::default(),
            readers: Mutex::new(Some(Readers {
                events: broadcast::Sender::new(EVENT_RING),
                standings: broadcast::Sender::new(STANDING_RING),
                told: Standing::Lost,
            })),
            me: Mutex::new(me),
            next_request: AtomicU64::new(1),
            rearm: Notify::new(),
            phase: watch::Sender::new(phase),
        })
    }

    /// Sets the core going and spawns the timer task on `runtime`. `shutdown` is run when the member has left.
    pub(crate) fn start<F>(self: &Arc<Self>, runtime: &tokio::runtime::Handle, shutdown: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        runtime.spawn(self.run(shutdown));
    }

    /// Sets the core going. Whoever has the timer task that this returns polls it until it ends.
    pub(crate) fn run<F>(self: &Arc<Self>, shutdown: F) -> impl Future<Output = ()> + Send + use<F>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Made before the task, so that a runtime that drops the task without ever polling it closes the engine too.
        let guard = TimerGuard(self.clone());
        self.input(Input::Timer);
        async move {
            guard.0.keep_time().await;
            shutdown.await;
            guard.0.phase.send_modify(|phase| phase.stopped = true);
        }
    }

    /// Who this process is, in its present incarnation.
    pub(crate) fn process(&self) -> ProcessId {
        lock(&self.me).process
    }

    /// The address that others reach it at.
    pub(crate) fn addr(&self) -> SocketAddr {
        lock(&self.me).addr
    }

    /// What the core sees.
    pub(crate) fn status(&self) -> Status {
        self.turn(|shell, _| shell.node.status(clock::now()))
    }

    /// Whether it has left, or is about to.
    pub(crate) fn is_over(&self) -> bool {
        self.turn(|shell, _| shell.is_over())
    }

    /// Whether it is the elder of its view.
    pub(crate) fn is_elder(&self) -> bool {
        self.turn(|shell, _| {
            let process = shell.node.process();
            shell.phase.closed.is_none() && shell.node.view().is_some_and(|view| view.elder().process == process)
        })
    }

    /// While joining: each seed address, with what answered there.
    pub(crate) fn seeking(&self) -> Vec<(SocketAddr, Option<String>)> {
        self.turn(|shell, _| shell.node.seeking())
    }

    /// How far it is, to be waited for.
    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Announcement> {
        let receiver = match &*lock(&self.readers) {
            Some(readers) => readers.events.subscribe(),
            // A channel without a sender: its end is what comes next.
            None => broadcast::channel(1).1,
        };
        self.announce();
        receiver
    }

    /// How it stands, as those know who were told all changes, and the changes from then on.
    pub(crate) fn subscribe_standing(&self) -> (Standing, broadcast::Receiver<Standing>) {
        let mut readers = lock(&self.readers);
        // First, so that nobody begins with what is known to be old.
        self.hand_out(&mut readers);
        let start = match &*readers {
            Some(readers) => (readers.told, readers.standings.subscribe()),
            None => (Standing::Lost, broadcast::channel(1).1),
        };
        drop(readers);
        // Whoever put something in meanwhile found the right to hand it out taken.
        self.announce();
        start
    }

    /// How it stands at this instant.
    pub(crate) fn standing(&self) -> Standing {
        self.turn(|shell, _| shell.stands())
    }

    /// The lane of a service: the same for all its handles.
    pub(crate) fn lane(&self, service: &ServiceName) -> Arc<Lane> {
        self.turn(|shell, _| {
            if let Some(lane) = shell.lanes.get(service).and_then(Weak::upgrade) {
                return lane;
            }
            // Now and then, or many services would be looked through for each new one.
            if shell.lanes.len().is_power_of_two() {
                shell.lanes.retain(|_, lane| lane.strong_count() > 0);
            }
            let lane = Arc::new(Lane::new(service.clone()));
            shell.lanes.insert(service.clone(), Arc::downgrade(&lane));
            lane
        })
    }

    /// Takes a free lock of a service that this member grants itself, beside others who do the same, and without a turn.
    /// Whatever becomes of it, [`end`](Self::end) ends it. `None`: that wants a turn. `destroyed`: as of [`ask`](Self::ask).
    pub(crate) fn take(
        &self,
        lane: &Arc<Lane>,
        name: &LockName,
        owner: Owner,
        destroyed: &AtomicBool,
    ) -> Option<Arc<HoldCell>> {
        let shell = self.shell.try_read().ok()?;
        if shell.is_over() || destroyed.load(Ordering::Acquire) {
            return None;
        }
        let now = clock::now();
        let offer = shell.node.offer(now, &lane.service, name)?;
        let (cell, is_first) = lane.take((name, owner, now), offer, |spare, token| {
            HoldCell::in_place_of(spare, None, token, Time::MAX, &shell.lease_end)
        })?;
        if is_first {
            lock(&shell.used).push(lane.clone());
        }
        Some(cell)
    }

    /// A hold is over, wherever it is kept. Never blocks but for the short lock of a name's shard, whoever calls it and
    /// wherever. `now`: as of [`give_back`](Self::give_back).
    pub(crate) fn end(&self, lane: &Lane, name: Option<&LockName>, cell: &Arc<HoldCell>, now: Time) {
        if let Some(request) = cell.request() {
            return self.give_back(request, now);
        }
        let Ok(shell) = self.shell.try_read() else {
            self.side.push(Aside::GiveBack(cell.clone()));
            return self.empty_side();
        };
        // The core hears of it under the other lock, and gives it its number.
        let request = cell.request();
        if let (None, Some(name)) = (request, name) {
            lane.give_back(name, cell);
        }
        if let Some(request) = request {
            drop(shell);
            self.give_back(request, now);
        }
    }

    /// The number of a hold's request; one that was taken in a lane gets it here.
    pub(crate) fn request_of(&self, cell: &HoldCell) -> RequestId {
        cell.request().unwrap_or_else(|| {
            self.turn(|_, _| ());
            cell.request().unwrap_or(RequestId(0))
        })
    }

    /// A number for a request, never used before by this member, in any of its incarnations.
    fn next_request(&self) -> RequestId {
        RequestId(self.next_request.fetch_add(1, Ordering::Relaxed))
    }

    /// Asks for what `command` says, in the name of a service handle. It gets its number here, in the turn: a member's requests
    /// are numbered in the order in which the core hears of them. `None`: wait, by way of [`poll`](Self::poll). Whatever is
    /// answered, [`give_back`](Self::give_back) ends it. `waker`: as of `poll`, if somebody polls already.
    ///
    /// `destroyed` belongs to the handle and is set, in the same turn, by the command that destroys its service: so
    /// nothing that is asked by way of the handle outlives it.
    pub(crate) fn ask(
        &self,
        command: &mut Command,
        destroyed: &AtomicBool,
        waker: Option<&Waker>,
    ) -> (RequestId, Option<Answer>) {
        // Cloned before locking: a waker is user code.
        let waker = waker.cloned();
        self.turn(|shell, after| {
            let request = self.next_request();
            command.number(request);
            (request, shell.ask((request, waker), command, destroyed, after))
        })
    }

    /// Whether this member grants the locks of the service now.
    pub(crate) fn is_grantor(&self, service: &ServiceName) -> bool {
        self.turn(|shell, _| {
            let mut grantors = shell.node.grantors();
            shell.phase.closed.is_none()
                && grantors.any(|(name, _, state)| name == service && state == GrantorState::Acting)
        })
    }

    /// The answer to a request that was told to wait, once; until then `waker` is kept to be woken.
    pub(crate) fn poll(&self, request: RequestId, waker: &Waker) -> Option<Answer> {
        // Cloned before locking: a waker is user code.
        let waker = waker.clone();
        let look = |shell: &mut Shell, after: &mut After| match shell.slots.get_mut(&request) {
            Some(Slot::Waiting(Some(_))) if is_planted(Planted::OldWaker) => None,
            Some(Slot::Waiting(kept)) => {
                after.trash.push(Slot::Waiting(kept.replace(waker)));
                None
            }
            Some(Slot::Answered(_)) => match shell.slots.remove(&request) {
                Some(Slot::Answered(answer)) => Some(answer),
                _ => None,
            },
            // Asked for and not given back, so there is a slot; were there none, nobody would ever answer.
            None => Some(closed(LostReason::Left)),
        };
        self.turn(|shell, after| {
            after.at_once = true;
            look(shell, after)
        })
    }

    /// Lets a hold end no earlier than `lease` from now; says whether it is still held.
    pub(crate) fn extend(&self, request: RequestId, lease: Duration) -> bool {
        self.turn(|shell, after| {
            if shell.phase.closed.is_some() {
                return false;
            }
            let answer = shell.step(Input::Command(Command::Extend { request, lease }), Some(request), after);
            matches!(answer, Some(Err(outcome)) if matches!(*outcome, Outcome::Extended { .. }))
        })
    }

    /// Lets a hold go on with less; says whether it is still held.
    pub(crate) fn narrow(&self, request: RequestId, want: Want) -> bool {
        self.turn(|shell, after| {
            if shell.phase.closed.is_some() {
                return false;
            }
            let is_share = matches!(want, Want::Share(_));
            let answer = shell.step(Input::Command(Command::Narrow { request, want }), Some(request), after);
            let narrowed = matches!(answer, Some(Err(outcome)) if *outcome == Outcome::Narrowed);
            if let Some(hold) = shell.holds.get(&request).filter(|_| narrowed && is_share) {
                hold.share();
            }
            narrowed
        })
    }

    /// As [`narrow`](Self::narrow), for those who do not want to know. Never blocks, whoever calls it and wherever.
    pub(crate) fn narrow_unheard(&self, request: RequestId, want: Want) {
        self.side.push(Aside::Command(Command::Narrow { request, want }));
        self.empty_side();
    }

    /// The request is over, whether it waits or holds. Never blocks, whoever calls it and wherever.
    /// `now`: a time of the clock that is not yet gone by long.
    pub(crate) fn give_back(&self, request: RequestId, now: Time) {
        let command = Command::Release { request };
        let Some(shell) = self.try_enter() else {
            self.side.push(Aside::Command(command));
            return self.empty_side();
        };
        self.turn_with(shell, |shell, after| shell.obey(command, now, after));
        if !is_planted(Planted::LooksOnce) {
            self.empty_side();
        }
    }

    /// Begins to leave. Never blocks. Follow [`phase`](Self::phase) to see the end.
    pub(crate) fn leave(&self) {
        self.side.push(Aside::Command(Command::Leave));
        self.empty_side();
    }

    /// Goes on without a quorum, if this member has none. False: its lease runs, or it is going.
    pub(crate) fn force(&self) -> bool {
        self.turn(|shell, after| {
            let before = shell.node.process();
            shell.step(Input::Command(Command::Force), None, after);
            shell.phase.closed.is_none() && shell.node.process() != before
        })
    }

    /// Ends it here and now, without a word to the others.
    pub(crate) fn close(&self, closed: Closed) {
        self.turn(|shell, after| shell.close(closed, after));
    }

    /// Runs the core's timers until the member has left.
    async fn keep_time(&self) {
        let mut sampler = Sampler::new();
        loop {
            let (deadline, sample) = self.turn(|shell, _| {
                shell.armed = shell.deadline();
                let is_open = shell.phase.closed.is_none();
                let read = || Sampler::read(&shell.node, &mut shell.mail);
                let sample = (sampler.is_due() || !is_open).then(read);
                (is_open.then_some(shell.armed), sample)
            });
            if let Some(sample) = sample {
                sampler.tell(sample);
            }
            let Some(deadline) = deadline else { return };
            let now = clock::now();
            if now >= deadline {
                self.input(Input::Timer);
                // A core that always has something due must not keep the thread for itself.
                tokio::task::yield_now().await;
                continue;
            }
            let until = deadline.min(sampler.due());
            let sleep = async {
                if until == Time::MAX {
                    std::future::pending::<()>().await;
                }
                clock::sleep(now, until.min(now + LONGEST_SLEEP)).await;
            };
            tokio::select! {
                // Which of them it was does not matter, so no dice are needed.
                biased;
                () = self.rearm.notified() => {}
                () = sleep => {}
            }
        }
    }

    /// One turn: under the lock `work`, after it whatever has to be told.
    fn turn<R>(&self, work: impl FnOnce(&mut Shell, &mut After) -> R) -> R {
        let result = self.turn_with(self.enter(), work);
        if !is_planted(Planted::SideQueueStays) {
            self.empty_side();
        }
        result
    }

    fn turn_with<R>(&self, (mut shell, gate): Entered<'_>, work: impl FnOnce(&mut Shell, &mut After) -> R) -> R {
        let mut after = After::default();
        // First of all: nothing happens to a core that does not know what was taken.
        let is_broken = is_poisoned(&self.shell);
        if !is_planted(Planted::LaneStays) {
            shell.take_in(is_broken, || self.next_request());
        }
        if is_broken {
            // The core panicked in an earlier turn and cannot be believed any more.
            shell.close(Closed::Broken, &mut after);
        }
        // Then: whoever has dropped a guard and asks for its lock again must not meet himself.
        for aside in self.side.take() {
            let command = match aside {
                Aside::Command(command) => Some(command),
                Aside::GiveBack(cell) => cell.request().map(|request| Command::Release { request }),
            };
            if let Some(command) = command {
                shell.obey(command, clock::now(), &mut after);
            }
        }
        let result = work(&mut shell, &mut after);
        if after.stepped || !after.at_once {
            shell.settle(&mut after);
        }
        if after.phase {
            shell.phase.changes += 1;
            *lock(&self.me) = shell.config.me.clone();
        }
        let announced = !after.announcements.is_empty();
        if announced {
            lock(&self.announcements).extend(after.announcements.drain(..));
        }
        let phase = shell.phase;
        drop(shell);
        drop(gate);

        if after.sent {
            self.network.flush(after.hurry);
        }
        seam();
        if after.phase {
            self.phase.send_modify(|seen| {
                // Two turns may arrive here in either order.
                if seen.changes < phase.changes || is_planted(Planted::PhaseGoesBack) {
                    *seen = Phase { stopped: seen.stopped, ..phase };
                }
            });
        }
        seam();
        for waker in after.wakers {
            waker.wake();
        }
        seam();
        for object in after.news {
            object.tell_news();
        }
        for hold in after.lost {
            if !is_planted(Planted::LossUntold) {
                hold.tell();
            }
        }
        seam();
        if after.rearm {
            self.rearm.notify_one();
        }
        if announced || phase.closed.is_some() {
            self.announce();
        }
        for note in after.notes {
            note.tell();
        }
        result
    }

    /// Empties the side queue, unless somebody has the shell: then that one does it after unlocking.
    fn empty_side(&self) {
        while !self.side.is_empty() {
            let Some(shell) = self.try_enter_past_readers() else { return };
            self.turn_with(shell, |_, _| ());
            if is_planted(Planted::LooksOnce) {
                return;
            }
        }
    }

    /// Hands events to the readers, unless somebody is at it: then that one looks again.
    fn announce(&self) {
        while !lock(&self.announcements).is_empty() || self.has_ended_unsaid() {
            let Ok(mut readers) = self.readers.try_lock() else { return };
            self.hand_out(&mut readers);
            if self.is_closed() && lock(&self.announcements).is_empty() {
                *readers = None;
            }
            drop(readers);
            if is_planted(Planted::EventStays) {
                return;
            }
        }
    }

    fn hand_out(&self, readers: &mut Option<Readers>) {
        let batch = std::mem::take(&mut *lock(&self.announcements));
        if let Some(readers) = readers {
            batch.into_iter().for_each(|news| readers.tell(news));
        }
    }

    fn has_ended_unsaid(&self) -> bool {
        self.is_closed() && self.readers.try_lock().is_ok_and(|readers| readers.is_some())
    }

    /// Whether everybody may know that it has left. Keeps no lock on the phase: others are taken after it.
    fn is_closed(&self) -> bool {
        self.phase.borrow().closed.is_some()
    }

    /// `None`: somebody changes it, or is about to, and will look at the side queue after it. Those who only look will not, and
    /// are soon done: waiting for them is worth a few tries, and then the timer task is told to have a turn.
    fn try_enter_past_readers(&self) -> Option<Entered<'_>> {
        let mut gate = self.try_gate()?;
        for _ in 0..TRIES {
            match self.try_shell(gate) {
                Ok(entered) => return Some(entered),
                Err(kept) => gate = kept,
            }
            spin_loop();
        }
        drop(gate);
        if !is_planted(Planted::ReaderKeepsSide) {
            self.rearm.notify_one();
        }
        None
    }

    fn enter(&self) -> Entered<'_> {
        let gate = lock(&self.gate);
        // Whether it is poisoned is asked in the turn.
        (self.shell.write().unwrap_or_else(PoisonError::into_inner), gate)
    }

    /// `None`: somebody has it, or looks at it.
    fn try_enter(&self) -> Option<Entered<'_>> {
        self.try_shell(self.try_gate()?).ok()
    }

    fn try_gate(&self) -> Option<MutexGuard<'_, ()>> {
        match self.gate.try_lock() {
            Ok(gate) => Some(gate),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn try_shell<'a>(&'a self, gate: MutexGuard<'a, ()>) -> Result<Entered<'a>, MutexGuard<'a, ()>> {
        match self.shell.try_write() {
            Ok(shell) => Ok((shell, gate)),
            Err(TryLockError::Poisoned(poisoned)) => Ok((poisoned.into_inner(), gate)),
            Err(TryLockError::WouldBlock) => Err(gate),
        }
    }
}

impl Inbox for Engine {
    fn status(&self) -> Option<Status> {
        Some(Engine::status(self))
    }

    fn input(&self, input: Input) {
        self.turn(|shell, after| {
            if shell.phase.closed.is_some() {
                return;
            }
            shell.step(input, None, after);
        });
    }

    fn hear(&self, packets: &mut Vec<Input>) {
        if packets.is_empty() {
            return;
        }
        self.turn(|shell, after| {
            let process = shell.node.process();
            // Those who are reborn by one of them do not hear the others: these were meant for who was there before.
            for packet in packets.drain(..) {
                if shell.phase.closed.is_some() || shell.node.process() != process {
                    break;
                }
                shell.step(packet, None, after);
            }
            // Nothing else is about to be sent by this thread, and somebody may wait for the answers.
            after.hurry = true;
        });
    }
}

impl Shell {
    /// Neither locks nor waits are taken any more.
    fn is_over(&self) -> bool {
        self.leaving || self.phase.closed.is_some()
    }

    /// When the timer is due, if not later: [`Time::MAX`] for never.
    fn deadline(&self) -> Time {
        self.node.wake_by().unwrap_or(Time::MAX)
    }

    /// A command from `Drop`.
    fn obey(&mut self, command: Command, now: Time, after: &mut After) {
        match command {
            Command::Release { request } => {
                after.trash.extend(self.slots.remove(&request));
                if let Some(cell) = self.holds.remove(&request)
                    && self.spare.len() < SPARE
                {
                    self.spare.push_back(cell);
                }
                if self.phase.closed.is_some() {
                    return;
                }
                if self.node.at_once(now, &command).is_some() {
                    after.at_once = true;
                } else {
                    self.step(Input::Command(command), None, after);
                }
            }
            Command::Narrow { .. } if self.phase.closed.is_none() => {
                self.step(Input::Command(command), None, after);
            }
            Command::Leave if !self.is_over() => {
                self.leaving = true;
                self.step(Input::Command(command), None, after);
            }
            _ => {}
        }
    }

    /// Tells the core what was done in the lanes; if it is broken, only what is held is kept, to be ended.
    fn take_in(&mut self, is_broken: bool, next_request: impl Fn() -> RequestId) {
        // Nobody else is here.
        let used = self.used.get_mut().unwrap_or_else(PoisonError::into_inner);
        for lane in used.drain(..) {
            let Doings { spent, held } = lane.empty();
            let mut taken = Vec::with_capacity(held.len());
            for (hold, cell) in held {
                let request = next_request();
                cell.settle(request);
                self.holds.insert(request, cell);
                taken.push((request, hold));
            }
            if !is_broken {
                self.node.take_in(&lane.service, spent, taken);
            }
        }
    }

    /// Asks the core. `None`: wait, and `waker` is woken.
    fn ask(
        &mut self,
        (request, waker): (RequestId, Option<Waker>),
        command: &Command,
        destroyed: &AtomicBool,
        after: &mut After,
    ) -> Option<Answer> {
        if self.is_over() {
            return Some(closed(LostReason::Left));
        }
        if destroyed.load(Ordering::Acquire) {
            return Some(closed(LostReason::Destroyed));
        }
        if let Some(hold) = self.grant_at_once(request, command, after) {
            return Some(Ok(hold));
        }
        destroyed.store(matches!(command, Command::Destroy { .. }), Ordering::Release);
        let answer = self.step(Input::Command(command.clone()), Some(request), after);
        if answer.is_none() {
            self.slots.insert(request, Slot::Waiting(waker));
            // If others wait as well, more of them are about to ask, and that goes in one write.
            after.hurry = self.slots.len() == 1;
        }
        answer
    }

    /// The short way of a command that is granted at once.
    fn grant_at_once(&mut self, request: RequestId, command: &Command, after: &mut After) -> Option<Arc<HoldCell>> {
        let Some(AtOnce::Granted(token, until)) = self.node.at_once(clock::now(), command) else { return None };
        after.at_once = true;
        if until < self.armed {
            self.armed = until;
            after.rearm = true;
        }
        Some(self.hold(request, token, until))
    }

    /// The cell of a hold that begins.
    fn hold(&mut self, request: RequestId, token: Token, until: Time) -> Arc<HoldCell> {
        let cell = HoldCell::in_place_of(self.spare.pop_front(), Some(request), token, until, &self.lease_end);
        self.holds.insert(request, cell.clone());
        cell
    }

    /// Steps the core and does what it says, in order. The answer to `own` is returned instead of kept.
    fn step(&mut self, input: Input, own: Option<RequestId>, after: &mut After) -> Option<Answer> {
        after.stepped = true;
        let mut own = own.map(|request| Own { request, answer: None });
        let mut inputs = VecDeque::new();
        let mut next = Some(input);
        while let Some(input) = next.take() {
            if let Input::Received { packet, .. } = &input {
                self.mail.received(packet);
            }
            let mut outputs = std::mem::take(&mut self.outputs);
            let now = clock::now();
            self.node.step(now, input, &mut outputs);
            let mut over = None;
            for output in outputs.drain(..) {
                match output {
                    Output::Send { to, process, packet } => {
                        after.sent = true;
                        self.mail.sent(&packet);
                        self.watch.sent(&packet, &self.node, now, &mut after.notes);
                        self.network.send(to, process, packet);
                    }
                    Output::Answer { request, outcome } => {
                        if let Some(unwanted) = self.on_answer(request, outcome, &mut own, after) {
                            inputs.push_back(unwanted);
                        }
                    }
                    Output::Value { request, content } => {
                        if let Some(object) = self.holds.get(&request) {
                            object.hear(content);
                            after.news.push(object.clone());
                        }
                    }
                    Output::Lost { request, reason } => self.on_lost(request, reason, after),
                    Output::Wanted { request, by } => {
                        if let Some(hold) = self.holds.get(&request) {
                            if planted!(WantTwice) {
                                hold.want(by.clone());
                            }
                            if !planted!(WantInSilence) {
                                hold.want(by);
                            }
                            after.news.push(hold.clone());
                        }
                    }
                    Output::Event(event) => {
                        self.watch.said(&event, &self.node, now, &mut after.notes);
                        self.on_event(event, &mut over, after);
                    }
                    Output::Store(stored) => {
                        if let Some(disk) = &self.disk
                            && let Err(error) = disk.store(&stored)
                        {
                            // Nothing that tells of this vote may leave, so nothing does any more.
                            tracing::error!(%error, "the vote cannot be kept in the data directory: this member ends");
                            self.close(Closed::Broken, after);
                            return None;
                        }
                    }
                }
            }
            self.outputs = outputs;
            match over {
                None => {}
                Some(Over::Left { heard }) => {
                    self.close(if heard { Closed::Heard } else { Closed::Unheard }, after);
                    break;
                }
                Some(Over::Reborn { expelled }) => {
                    self.give_birth(expelled, &mut own, after);
                    inputs.clear();
                    if self.phase.closed.is_some() {
                        break;
                    }
                    inputs.push_back(Input::Timer);
                }
            }
            next = inputs.pop_front();
        }
        own.and_then(|own| own.answer)
    }

    /// Fills the slot of `request`. Returns what to tell the core about a grant that nobody waits for.
    fn on_answer(
        &mut self,
        request: RequestId,
        outcome: Outcome,
        own: &mut Option<Own>,
        after: &mut After,
    ) -> Option<Input> {
        let answer = match outcome {
            Outcome::Granted { token, until } => Ok(self.hold(request, token, until)),
            Outcome::Opened { token, content } => {
                let object = Arc::new(HoldCell::of_object(request, token, content));
                self.holds.insert(request, object.clone());
                Ok(object)
            }
            outcome => {
                if let Outcome::Upgraded { hold, token } = &outcome
                    && let Some(hold) = self.holds.get(hold)
                {
                    hold.upgrade(*token);
                }
                if let (Outcome::Extended { until }, Some(hold)) = (&outcome, self.holds.get(&request)) {
                    hold.extend(*until);
                }
                Err(Box::new(outcome))
            }
        };
        if let Some(own) = own
            && own.request == request
        {
            own.answer = Some(answer);
            return None;
        }
        match self.slots.get_mut(&request) {
            Some(slot) => {
                if let Slot::Waiting(waker) = std::mem::replace(slot, Slot::Answered(answer)) {
                    after.wakers.extend(waker);
                }
                None
            }
            // Given back before: the core should have known. It is told again rather than left with a hold of nobody's.
            None => answer.is_ok().then(|| {
                self.holds.remove(&request);
                Input::Command(Command::Release { request })
            }),
        }
    }

    fn on_lost(&mut self, request: RequestId, reason: LostReason, after: &mut After) {
        let stays = match reason {
            LostReason::Revoked => planted!(TakenAndKept),
            LostReason::Suspended | LostReason::Expelled | LostReason::Left => planted!(GuardsOutliveMember),
            _ => false,
        };
        if stays {
            return;
        }
        if let Some(hold) = self.holds.remove(&request) {
            hold.mark_lost(reason);
            after.lost.push(hold);
        }
    }

    fn on_event(&mut self, event: Event, over: &mut Option<Over>, after: &mut After) {
        if event == Event::Suspended {
            // Here, or nobody would hear of it if the same step resumes it.
            self.note_standing(Standing::Suspended, after);
        }
        match event {
            Event::Expelled => *over = Some(Over::Reborn { expelled: true }),
            Event::Abandoned | Event::Forced => *over = Some(Over::Reborn { expelled: false }),
            Event::Left { heard } => *over = Some(Over::Left { heard }),
            Event::NeverGranted { .. } => {} // no gain, so no loss
            event => after.announce(Announcement::Event(event)),
        }
    }

    /// The incarnation is over: all that it held and waited for ends, and a new one begins.
    fn give_birth(&mut self, expelled: bool, own: &mut Option<Own>, after: &mut After) {
        let reason = LostReason::Expelled;
        if let Some(own) = own {
            own.answer.get_or_insert_with(|| closed(reason));
        }
        self.end_all(reason, after);
        self.note_standing(Standing::Lost, after);
        if self.phase.ready {
            self.joined_before = true;
            self.phase.ready = false;
            after.announce(Announcement::Lost);
        }
        after.phase = true;
        if self.leaving {
            return self.close(Closed::Unheard, after);
        }
        let process = match draw_process() {
            Ok(process) => process,
            Err(error) => {
                tracing::error!(%error, "no randomness for a new process id: this member leaves");
                return self.close(Closed::Broken, after);
            }
        };
        self.config = self.node.next_life(process, clock::founding_number());
        tracing::info!(%process, expelled, "starting again as a new process");
        self.lease_end = Arc::new(AtomicU64::new(0));
        // Before the first packet of the new incarnation.
        self.network.reborn(self.config.me.clone());
        self.node = Node::new(self.config.clone(), clock::now());
    }

    /// The member is gone, for good.
    fn close(&mut self, closed: Closed, after: &mut After) {
        if self.phase.closed.is_some() {
            return;
        }
        self.end_all(LostReason::Left, after);
        self.note_standing(Standing::Lost, after);
        self.phase.ready = false;
        self.phase.closed = Some(closed);
        self.disk = None;
        after.phase = true;
        after.rearm = true;
        after.announce(Announcement::Event(Event::Left { heard: closed == Closed::Heard }));
    }

    /// Ends every hold and every wait that the core has not ended already, and whatever else is under way.
    fn end_all(&mut self, reason: LostReason, after: &mut After) {
        self.watch.over(&mut after.notes);
        for hold in std::mem::take(&mut self.holds).values() {
            if planted!(GuardsOutliveMember) {
                continue;
            }
            hold.mark_lost(reason);
            after.lost.push(hold.clone());
        }
        // After the marks: a guard that sees no lease any more must find its reason.
        self.lease_end.store(0, Ordering::Release);
        for slot in self.slots.values_mut() {
            if let Slot::Waiting(waker) = slot {
                after.wakers.extend(waker.take());
                *slot = Slot::Answered(closed(reason));
            }
        }
    }

    /// How this member stands now.
    fn stands(&self) -> Standing {
        // Whoever is expelled and stays until others know of it still has a lease that runs.
        if self.is_over() || !self.phase.ready || !self.node.belongs() {
            Standing::Lost
        } else if self.node.is_ready(clock::now()) {
            Standing::Connected
        } else {
            Standing::Suspended
        }
    }

    fn note_standing(&mut self, standing: Standing, after: &mut After) {
        if std::mem::replace(&mut self.standing, standing) != standing
            && !(planted!(SuspendInSilence) && standing == Standing::Suspended)
        {
            after.announcements.push(News::Stands(standing));
        }
    }

    /// At the end of each turn: what the core says without being asked.
    fn settle(&mut self, after: &mut After) {
        if self.phase.closed.is_some() {
            return;
        }
        self.lease_end.store(self.node.lease_end().as_nanos(), Ordering::Release);
        if !self.phase.ready && self.node.is_ready(clock::now()) {
            self.phase.ready = true;
            after.phase = true;
            self.network.joined();
            if self.joined_before {
                after.announce(Announcement::Rejoined(self.config.me.process));
            }
        }
        self.note_standing(self.stands(), after);
        let deadline = self.deadline();
        if deadline < self.armed && !is_planted(Planted::TimerSleepsOn) {
            self.armed = deadline;
            after.rearm = true;
        }
    }
}

/// How an incarnation ended.
enum Over {
    Left { heard: bool },
    Reborn { expelled: bool },
}

/// Closes the engine when its timer task ends, or is dropped with its runtime: nobody would renew anything any more.
struct TimerGuard(Arc<Engine>);

impl Drop for TimerGuard {
    fn drop(&mut self) {
        self.0.close(Closed::Broken);
        self.0.phase.send_modify(|phase| phase.stopped = true);
    }
}

/// For mutexes whose holders cannot panic half-way: what they protect is whole even if somebody did.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl Engine {
    /// Says that it is suspended; at its end the turn says what is so.
    pub(crate) fn flicker(&self) {
        self.turn(|shell, after| shell.note_standing(Standing::Suspended, after));
    }
}

#[cfg(all(test, elderlock_shuttle))]
impl Engine {
    /// Commands that nobody has carried out yet. Not a turn: it mends nothing.
    pub(crate) fn undone(&self) -> usize {
        lock(&self.side.commands).len()
    }

    /// Slots and holds that are still kept. Not a turn either; to be asked when nothing is undone, for it holds the
    /// lock and would turn away whoever is about to empty the side queue.
    pub(crate) fn kept(&self) -> (usize, usize) {
        let shell = self.shell.read().expect("no turn panics");
        assert!(shell.lanes.values().filter_map(Weak::upgrade).all(|lane| lane.is_empty()));
        (shell.slots.len(), shell.holds.len())
    }
}

#[cfg(test)]
mod tests;
