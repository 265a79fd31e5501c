//! The plan that is drawn before a run: the members, the clients' requests, and the faults with
//! their times.

use super::{NAMES, OBJECTS, SERVICES};
use crate::chance::Rng;
use crate::fault::{
    CRASH_ALL, DEAFEN, DUEL, FAILING_DISK, FALSE_ALARM, FULL_DISK, Fault, FaultContext, KINDS,
    LATE_NAMING, LOSE_DISK, LYING_STRANGER, NO_DATAGRAMS, ONE_NEIGHBOUR, PASSING_WAIT, REJECT,
    REJECT_PAIR, RING, RUSH, SLOW_DISK, TAKEOVER_BY_SUCCESSORS, TORN_STEP, TORN_SUM, TORN_VALUE,
    millis,
};
use crate::limits;
use crate::log::Scene;
use crate::network::{LinkConditions, MS, SECOND};
use crate::step::ClientWant;
use crate::world::World;
use elderlock::protocol::{Limits, Timing};
use elderlock::wire::VERSIONS;

/// Kinds of faults in each plan at least: one more than a run must show to count.
const MIN_KINDS: usize = 4;
/// How many plans have a seed list that fills up, in parts per million.
const SLOW_SEEDS: u32 = 60_000;
/// How many plans have members of two versions, in parts per million.
const TWO_VERSIONS: u32 = 150_000;
/// How many plans have requests that are told of circles, in parts per million.
const CIRCLES: u32 = 150_000;
/// How many plans have an operator that ends holds by force, in parts per million.
const FORCES: u32 = 100_000;
/// How many plans have members that keep locks, in parts per million.
const KEEPS: u32 = 250_000;
/// How many plans have members that follow the load, in parts per million.
const FOLLOWS: u32 = 150_000;
/// Seeds from this number on have plans in which members follow the load. Plans of lower seeds stay
/// as the table of planted breaks needs them.
const FOLLOWS_FROM: u64 = 3_000_000;
/// Seeds from this number on draw the later bounds.
const LATER_BOUNDS_FROM: u64 = 4_000_000;
/// Seeds from this number on draw the last bounds.
const LAST_BOUNDS_FROM: u64 = 5_000_000;
/// Seeds from this number on have plans in which members keep shares too.
const KEPT_SHARES_FROM: u64 = 4_500_000;
/// The time by which a seed list that fills up has all founders.
const RESOLVED: u64 = 6 * SECOND;
/// Seeds below this seed have neither small bounds nor the rarer faults: tests name some of them,
/// and depend on their outcome.
const PLAIN: u64 = 1_000;
/// From this seed on, half of the earlier releases are the one before this build. Seeds below it
/// keep their plans: the table of planted breaks names some of them.
const RELEASE_BEFORE: u64 = 3_000_000;

/// How often clients want something else than a lock, in parts per million of their requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientMix {
    /// Several locks at once.
    batches: u32,
    /// The suspension of the service.
    suspensions: u32,
    /// The service that is suspended.
    suspended: usize,
    /// The calls to become the grantor.
    turks: u32,
    /// The calls to end their member's part in the service.
    ends: u32,
    /// The queries.
    looks: u32,
    /// The requests to have a hold back.
    revocations: u32,
    /// A share of a lock.
    shares: u32,
    /// Permits of an object.
    permits: u32,
    /// The openings of objects.
    opens: u32,
    /// The changes of the value of an open object.
    puts: u32,
    /// The number of owners at each member; zero: always the whole member.
    owners: u64,
}

impl ClientMix {
    fn draw(rng: &mut Rng) -> ClientMix {
        let mut rate = |chance, low, high| {
            let rate = rng.between(low, high) as u32;
            if rng.chance(chance) { rate } else { 0 }
        };
        ClientMix {
            batches: rate(500_000, 50_000, 400_000),
            suspensions: rate(400_000, 10_000, 100_000),
            turks: rate(500_000, 10_000, 150_000),
            ends: rate(300_000, 3_000, 30_000),
            looks: rate(400_000, 10_000, 60_000),
            revocations: rate(400_000, 10_000, 100_000),
            shares: 0,
            permits: 0,
            opens: 0,
            puts: 0,
            suspended: rng.below(SERVICES.len() as u64) as usize,
            owners: if rng.chance(500_000) { rng.between(1, 3) } else { 0 },
        }
    }

    /// Adds requests for shares and objects to the mix, from a random stream of their own.
    fn and_shares(self, rng: &mut Rng) -> ClientMix {
        let mut rate = |chance, low, high| {
            let rate = rng.between(low, high) as u32;
            if rng.chance(chance) { rate } else { 0 }
        };
        let (shares, opens) = (rate(500_000, 100_000, 800_000), rate(600_000, 20_000, 150_000));
        let (permits, puts) = (rate(700_000, 50_000, 500_000), rate(900_000, 50_000, 400_000));
        if opens == 0 {
            return ClientMix { shares, ..self };
        }
        ClientMix { shares, permits, opens, puts, ..self }
    }

    /// Returns whether any client uses shares or objects.
    pub(super) fn shares(&self) -> bool {
        self.shares > 0 || self.opens > 0
    }

    /// A client's request for a share or an object instead of one lock, if it makes one. `opened`
    /// lists the objects that it has open.
    pub(super) fn pick_shared(
        &self,
        rng: &mut Rng,
        name: &str,
        opened: &[(usize, String)],
    ) -> Option<ClientWant> {
        let pool = opened.iter().find(|(_, name)| name == OBJECTS[0]);
        // The value of the pool is a limit, which now and then is zero for a while.
        let value = |rng: &mut Rng, name: &str| match name == OBJECTS[0] {
            true if rng.chance(100_000) => "0".to_string(),
            true => rng.between(1, 5).to_string(),
            false => format!("text{}", rng.below(1 << 40)),
        };
        if rng.chance(self.opens) || (pool.is_none() && rng.chance(self.permits / 4)) {
            let name = *rng.pick(&OBJECTS);
            return Some(ClientWant::Open(name.to_string(), value(rng, name)));
        }
        if rng.chance(self.puts) && !opened.is_empty() {
            let (call, name) = rng.pick(opened);
            if name == OBJECTS[0] && rng.chance(300_000) {
                return Some(ClientWant::Add(*call, rng.between(0, 3) as i32 - 1));
            }
            let to = value(rng, name);
            return Some(if rng.chance(400_000) {
                ClientWant::PutIf(*call, to)
            } else {
                ClientWant::Put(*call, to)
            });
        }
        if pool.is_some() && rng.chance(self.permits) {
            return Some(ClientWant::Permits(OBJECTS[0].to_string(), rng.between(1, 3) as u32));
        }
        rng.chance(self.shares).then(|| ClientWant::Share(name.to_string()))
    }

    /// A client's request to a service instead of one lock, with its owner.
    pub(super) fn pick(
        &self,
        rng: &mut Rng,
        service: &str,
        name: String,
        calls: usize,
    ) -> (ClientWant, u64) {
        let owner = rng.below(self.owners + 1);
        let wanted = if rng.chance(self.turks) {
            ClientWant::Become
        } else if rng.chance(self.ends) {
            ClientWant::Destroy
        } else if rng.chance(self.looks) {
            match rng.below(5) {
                0 => ClientWant::SeeSuspension,
                1 => ClientWant::SeeHeld,
                4 => ClientWant::SeeWaiting(name),
                2 if calls > 0 => {
                    ClientWant::SeePosition(calls - 1 - rng.below(calls.min(20) as u64) as usize)
                }
                _ => ClientWant::SeeLock(name),
            }
        } else if rng.chance(self.revocations) {
            if calls > 0 && rng.chance(500_000) {
                ClientWant::ForceRevoke(calls - 1 - rng.below(calls.min(40) as u64) as usize)
            } else {
                ClientWant::RequestRevocation(name)
            }
        } else if rng.chance(self.suspensions) && service == SERVICES[self.suspended] {
            ClientWant::Suspension
        } else if rng.chance(self.batches) {
            let mut names: Vec<String> =
                NAMES.iter().filter(|_| rng.chance(600_000)).map(ToString::to_string).collect();
            if names.is_empty() {
                names.push(name);
            }
            ClientWant::Batch(names)
        } else {
            ClientWant::Lock(name)
        };
        (wanted, owner)
    }
}

/// A member that receives nothing after a healing in part, and is heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeafMember {
    /// An elder that was cut off and has heard of the view in which another one followed it.
    FormerElder,
    /// A member that has proposed a view, because the elder was cut off.
    Candidate,
}

/// Everything that is drawn before a run.
#[derive(Clone, PartialEq, Debug)]
pub struct ChaosPlan {
    /// The seed.
    pub seed: u64,
    /// Seeds that found the cluster.
    pub founders: usize,
    /// Members that join one after the other.
    pub joiners: usize,
    /// The least number of founders.
    pub expect: usize,
    /// The sites to which the seeds of a site resolve from a time on: time, site, sites. None: all
    /// founders, from the beginning.
    pub resolutions: Vec<(u64, usize, Vec<usize>)>,
    /// The size of the council.
    pub council: u8,
    /// The times of the cluster.
    pub timing: Timing,
    /// Clock rate of each member in parts per million.
    pub clocks: Vec<i32>,
    /// Whether the clocks keep their bound.
    pub bounded: bool,
    /// The host of each member.
    pub hosts: Vec<u32>,
    /// The members that hold locks for programs that are not members.
    pub sessions: Vec<usize>,
    /// The founders whose first process is of an earlier release.
    pub older: Vec<usize>,
    /// The highest version that the earlier release speaks.
    pub older_highest: u16,
    /// The members that let operators end holds that are not revocable.
    pub forcible: Vec<usize>,
    /// Requests of owners are told of circles, and clients walk chains of waits.
    pub detects: bool,
    /// Members keep locks after their release, and clients prefer a lock of their member.
    pub keeps: bool,
    /// Members keep shares too.
    pub keeps_shares: bool,
    /// Members follow the load, and most requests are those of one member at a time.
    pub follows: bool,
    /// The questions along chains of waits, in parts per million of the clients' acts.
    pub chains: u32,
    /// The operator's orders, in parts per million of the clients' acts.
    pub forces: u32,
    /// Processes are killed without regard to the quorum.
    pub reckless: bool,
    /// No member notices broken connections.
    pub without_hints: bool,
    /// Every member keeps its vote in a data directory.
    pub durable: bool,
    /// Each member runs real gossip.
    pub gossip: bool,
    /// The operator trusts refused connections. Then there are no false refusals.
    pub trust_refused: bool,
    /// The cluster has no key.
    pub keyless: bool,
    /// Only a part that can go on by itself is healed at the end; the rest stays broken for good.
    pub partial: bool,
    /// The member that receives nothing from then on and is heard, if one is chosen.
    pub deaf: Option<DeafMember>,
    /// Bounds and sizes of each member.
    pub limits: Limits,
    /// How often a client drops its future or its guard at some moment, in parts per million of its
    /// calls.
    pub drops: u32,
    /// The weather without faults.
    pub weather: LinkConditions,
    /// Clients release seldom: most holds outlive the fault that they met.
    pub tenacious: bool,
    /// The clients' requests besides single locks.
    pub mix: ClientMix,
    /// How long there are faults.
    pub span: u64,
    /// When clients fall silent. A next request often repairs a lost state: after this time there
    /// is none.
    pub hush: u64,
    /// Mean time between two acts of clients.
    pub pace: u64,
    /// The faults.
    pub faults: Vec<Fault>,
    /// The numbers of the faults in the full plan, for replay after shrinking.
    pub kept: Vec<usize>,
}

impl ChaosPlan {
    /// Draws the plan of a seed, with `members.0` to `members.1` members.
    pub fn draw(seed: u64, members: (usize, usize)) -> ChaosPlan {
        let mut rng = Rng::new(seed, 1);
        let count = rng.between(members.0 as u64, members.1 as u64) as usize;
        let joiners = if rng.chance(300_000) { rng.below(count as u64 - 1) as usize } else { 0 };
        let timing = if rng.chance(250_000) { Timing::lan() } else { Timing::fast() };
        let bounded = !rng.chance(100_000);
        let error = if bounded { timing.clock_error_ppm as u64 - 500 } else { 300_000 };
        let skewed = rng.chance(700_000);
        let mut clocks: Vec<i32> = (0..count)
            .map(|_| if skewed { rng.between(0, 2 * error) as i32 - error as i32 } else { 0 })
            .collect();
        if !bounded {
            // Two holders can believe in one lock only if the clock of one is far behind the
            // other's.
            let mut rng = Rng::new(seed, 5);
            let far =
                |rng: &mut Rng| if rng.chance(500_000) { error as i32 } else { -(error as i32) };
            clocks = clocks
                .into_iter()
                .map(|ppm| if rng.chance(600_000) { far(&mut rng) } else { ppm })
                .collect();
        }
        let shared = rng.chance(300_000);
        let hosts =
            (0..count).map(|site| if shared { rng.below(2) as u32 } else { site as u32 }).collect();
        let span = rng.between(60, 66) * SECOND;
        let gossip = rng.chance(250_000);
        let trust_refused = rng.chance(80_000);
        let keyless = seed >= PLAIN && Rng::new(seed, 23).chance(500_000);
        let durable = Rng::new(seed, 3).chance(400_000);
        let mut serving = Rng::new(seed, 26);
        let sessions = match seed >= PLAIN && serving.chance(300_000) {
            true => (0..count).filter(|_| serving.chance(400_000)).collect(),
            false => Vec::new(),
        };
        let mut deafness = Rng::new(seed, 25);
        let deaf =
            (seed >= PLAIN && deafness.chance(400_000)).then(|| match deafness.chance(500_000) {
                true => DeafMember::FormerElder,
                false => DeafMember::Candidate,
            });
        let fits = |kind: &usize| match *kind {
            FALSE_ALARM => !gossip,
            NO_DATAGRAMS => gossip,
            CRASH_ALL | LOSE_DISK => durable,
            REJECT => !trust_refused,
            _ => true,
        };
        let often = rng.between(100_000, 400_000) as u32;
        let mut kinds: Vec<usize> = (0..KINDS).filter(|_| rng.chance(often)).filter(fits).collect();
        while kinds.len() < MIN_KINDS {
            let more = rng.below(KINDS as u64) as usize;
            if fits(&more) && !kinds.contains(&more) {
                kinds.push(more);
            }
        }
        let context = FaultContext {
            sites: count,
            span,
            member_lease: timing.member_lease.as_nanos() as u64,
            clock_error: error,
        };
        // The plan has each of the first few kinds once, so that it has enough kinds. The other
        // kinds are random.
        let many = rng.between(MIN_KINDS as u64, 40) as usize;
        let mut faults: Vec<Fault> = (0..many)
            .map(|number| {
                let kind = if number < MIN_KINDS { kinds[number] } else { *rng.pick(&kinds) };
                Fault::draw(&mut rng, kind, &context)
            })
            .collect();
        let (mut late, mut hush) = (Rng::new(seed, 7), span);
        if late.chance(150_000) {
            hush -= late.between(2 * SECOND, 4 * SECOND);
            // No client makes a request except those of this fault.
            let at = hush + late.between(SECOND / 2, SECOND);
            faults.push(Fault { at, ..Fault::draw(&mut late, RUSH, &context) });
        }
        let mix = ClientMix::draw(&mut Rng::new(seed, 6)).and_shares(&mut Rng::new(seed, 8));
        let mut torn = Rng::new(seed, 9);
        for _ in 0..if mix.opens > 0 { torn.below(4) } else { 0 } {
            faults.push(Fault::draw(&mut torn, TORN_VALUE, &context));
        }
        let is_plain = seed < PLAIN;
        let mut duels = Rng::new(seed, 11);
        for _ in 0..if mix.suspensions > 0 && !is_plain { duels.below(4) } else { 0 } {
            faults.push(Fault::draw(&mut duels, DUEL, &context));
        }
        let mut disks = Rng::new(seed, 21);
        for _ in 0..if durable && !is_plain { disks.below(8) } else { 0 } {
            let kind = *disks.pick(&[SLOW_DISK, SLOW_DISK, SLOW_DISK, FAILING_DISK, FULL_DISK]);
            faults.push(Fault::draw(&mut disks, kind, &context));
        }
        for _ in 0..if is_plain { 0 } else { disks.below(5) } {
            faults.push(Fault::draw(&mut disks, TORN_STEP, &context));
        }
        let mut rarer = Rng::new(seed, 22);
        let mut some = |kind, chance, most| {
            for _ in 0..if !is_plain && rarer.chance(chance) { rarer.between(1, most) } else { 0 } {
                faults.push(Fault::draw(&mut rarer, kind, &context));
            }
        };
        some(TORN_SUM, if mix.opens > 0 { 500_000 } else { 0 }, 3);
        some(TAKEOVER_BY_SUCCESSORS, if durable { 300_000 } else { 0 }, 2);
        some(LATE_NAMING, 150_000, 3);
        some(DEAFEN, 150_000, 2);
        let mut strangers = Rng::new(seed, 24);
        for _ in 0..if keyless { strangers.below(6) } else { 0 } {
            faults.push(Fault::draw(&mut strangers, LYING_STRANGER, &context));
        }
        let mut circles = Rng::new(seed, 72);
        let detects = !is_plain && circles.chance(CIRCLES);
        let chains = if detects { circles.between(20_000, 100_000) as u32 } else { 0 };
        for _ in 0..if detects { circles.below(5) } else { 0 } {
            faults.push(Fault::draw(&mut circles, PASSING_WAIT, &context));
        }
        let mut rings = Rng::new(seed, 12);
        if !is_plain && rings.chance(200_000) {
            let kind = if rings.chance(500_000) { RING } else { ONE_NEIGHBOUR };
            // No other fault occurs meanwhile, since it could make leases run out.
            put_alone(Fault::draw(&mut rings, kind, &context), &mut faults);
        } else if !is_plain && trust_refused && rings.chance(700_000) {
            // No other fault occurs beside this one either: all others but one must hear the first
            // member.
            put_alone(Fault::draw(&mut rings, REJECT_PAIR, &context), &mut faults);
        }
        faults.sort_by_key(|fault| fault.at);
        let founders = count - joiners;
        let mut slow = Rng::new(seed, 70);
        let has_slow_seeds = !is_plain && founders > 1 && slow.chance(SLOW_SEEDS);
        let (expect, resolutions) =
            if has_slow_seeds { draw_slow_seeds(&mut slow, founders) } else { (1, Vec::new()) };
        // Members of the earlier release are founders. So no view raises its version before they
        // join.
        let mut versions = Rng::new(seed, 71);
        let has_versions = !is_plain && !has_slow_seeds && versions.chance(TWO_VERSIONS);
        let older = match has_versions {
            true => (0..founders).filter(|_| versions.chance(600_000)).collect(),
            false => Vec::new(),
        };
        let older_highest = match has_versions && seed >= RELEASE_BEFORE {
            // The release before this build speaks all versions but the highest. The first release
            // speaks the lowest version only.
            true if Rng::new(seed, 76).chance(500_000) => {
                (VERSIONS.highest - 1).max(VERSIONS.lowest)
            }
            _ => VERSIONS.lowest,
        };
        let mix =
            ClientMix { owners: if detects { circles.between(2, 4) } else { mix.owners }, ..mix };
        let mut operator = Rng::new(seed, 73);
        let has_operator = !is_plain && operator.chance(FORCES);
        let forces = if has_operator { operator.between(20_000, 100_000) as u32 } else { 0 };
        let forcible = (0..count).filter(|_| has_operator && operator.chance(500_000)).collect();
        let keeps = !is_plain && Rng::new(seed, 74).chance(KEEPS);
        let keeps_shares = keeps && seed >= KEPT_SHARES_FROM && Rng::new(seed, 77).chance(500_000);
        let follows = seed >= FOLLOWS_FROM && Rng::new(seed, 75).chance(FOLLOWS);
        ChaosPlan {
            seed,
            keeps,
            keeps_shares,
            follows,
            older,
            older_highest,
            forcible,
            detects,
            chains,
            forces,
            founders,
            joiners,
            expect,
            resolutions,
            council: if rng.chance(800_000) { 7 } else { rng.between(1, 5) as u8 },
            timing,
            clocks,
            bounded,
            hosts,
            sessions,
            reckless: rng.chance(30_000),
            without_hints: rng.chance(200_000),
            durable,
            gossip,
            trust_refused,
            keyless,
            partial: rng.chance(300_000),
            deaf,
            drops: if rng.chance(500_000) { rng.between(20_000, 500_000) as u32 } else { 0 },
            tenacious: Rng::new(seed, 4).chance(350_000),
            mix,
            limits: if is_plain {
                limits::SMALL_PARTS
            } else {
                let mut limits = limits::draw(&mut Rng::new(seed, 10));
                if seed >= LATER_BOUNDS_FROM {
                    limits::draw_later(&mut limits, &mut Rng::new(seed, 76));
                }
                if seed >= LAST_BOUNDS_FROM {
                    limits::draw_last(&mut limits, &mut Rng::new(seed, 78));
                }
                limits
            },
            weather: LinkConditions {
                slowest: rng.between(MS / 2, 5 * MS),
                ..LinkConditions::FAIR
            },
            span,
            hush,
            pace: rng.between(8, 100) * MS,
            kept: (0..faults.len()).collect(),
            faults,
        }
    }

    /// Returns whether the plan has neither small bounds nor the rarer faults.
    pub(super) fn is_plain(&self) -> bool {
        self.seed < PLAIN
    }

    /// The plan with only these of its faults.
    pub fn only(&self, kept: &[usize]) -> ChaosPlan {
        let of = |number: &usize| {
            self.kept.iter().position(|kept| kept == number).map(|index| self.faults[index])
        };
        ChaosPlan {
            faults: kept.iter().filter_map(of).collect(),
            kept: kept.to_vec(),
            ..self.clone()
        }
    }

    /// The World of this plan, before anything happens, as a scene.
    pub fn scene(&self) -> Scene {
        Scene {
            founders: self.founders,
            joiners: self.joiners,
            council: self.council,
            timing: self.timing,
            hosts: self.hosts.clone(),
            clocks: self.clocks.clone(),
            sessions: self.sessions.clone(),
            older: self.older.clone(),
            older_highest: self.older_highest,
            forcible: self.forcible.clone(),
            detects: self.detects,
            keeps: self.keeps,
            keeps_shares: self.keeps_shares,
            follows: self.follows,
            bounded: self.bounded,
            hints: !self.without_hints,
            durable: self.durable,
            gossip: self.gossip,
            trust_refused: self.trust_refused,
            keyless: self.keyless,
            expect: self.expect,
            limits: self.limits,
            ..Scene::new(self.seed)
        }
    }

    /// The World of this plan, before anything happens.
    pub fn world(&self) -> World {
        self.scene().world()
    }
}

/// A number of founders that is more than half of them, and lists of seeds that fill up at times of
/// their own. At first each founder resolves only itself.
fn draw_slow_seeds(rng: &mut Rng, founders: usize) -> (usize, Vec<(u64, usize, Vec<usize>)>) {
    let expect = rng.between(founders as u64 / 2 + 1, founders as u64) as usize;
    let mut resolutions = Vec::new();
    for site in 0..founders {
        let mut known = vec![site];
        let mut at = 0;
        while known.len() < founders && at < RESOLVED {
            resolutions.push((at, site, known.clone()));
            at += rng.between(SECOND / 10, RESOLVED / 3);
            known.extend((0..founders).filter(|_| rng.chance(400_000)));
            known.sort_unstable();
            known.dedup();
        }
        resolutions.push((at.min(RESOLVED), site, (0..founders).collect()));
    }
    resolutions.sort_by_key(|(at, site, _)| (*at, *site));
    (expect, resolutions)
}

/// Puts a fault into a plan, and takes all others away that would go on at the same time.
fn put_alone(lone: Fault, faults: &mut Vec<Fault>) {
    let ends = lone.may_last_until();
    faults.retain(|fault| fault.may_last_until() + SECOND < lone.at || ends < fault.at);
    faults.push(lone);
}

/// A plan for people.
pub fn describe(plan: &ChaosPlan) -> String {
    let mut text = format!(
        "{} founders, {} joiners, council {}, member lease {:?}, clocks {:?} ppm, hosts \
         {:?}{}{}{}{}{}{}{}{}{}",
        plan.founders,
        plan.joiners,
        plan.council,
        plan.timing.member_lease,
        plan.clocks,
        plan.hosts,
        if plan.bounded { "" } else { ", clocks out of bound" },
        if plan.reckless { ", reckless" } else { "" },
        if plan.without_hints { ", no hints" } else { "" },
        if plan.durable { ", votes on disk" } else { "" },
        if plan.tenacious { ", holds for long" } else { "" },
        if plan.gossip { ", real gossip" } else { "" },
        if plan.trust_refused { ", refusals trusted" } else { "" },
        if plan.keyless { ", no key" } else { "" },
        match plan.deaf.filter(|_| plan.partial) {
            Some(DeafMember::FormerElder) => ", healed in part (the former elder deaf)",
            Some(DeafMember::Candidate) => ", healed in part (a candidate deaf)",
            None if plan.partial => ", healed in part",
            None => "",
        },
    );
    if !plan.sessions.is_empty() {
        text.push_str(&format!("\n  sessions at {:?}", plan.sessions));
    }
    if !plan.older.is_empty() {
        text.push_str(&format!(
            "\n  of a release that speaks up to version {}: {:?}",
            plan.older_highest, plan.older
        ));
    }
    if plan.detects {
        text.push_str(&format!("\n  requests are told of circles, questions {} ppm", plan.chains));
    }
    if plan.keeps {
        text.push_str("\n  members keep locks");
        text.push_str(if plan.keeps_shares { " and shares" } else { "" });
    }
    if plan.follows {
        text.push_str("\n  members follow the load");
    }
    if plan.forces > 0 {
        text.push_str(&format!(
            "\n  an operator gives orders, {} ppm, allowed at {:?}",
            plan.forces, plan.forcible
        ));
    }
    if !plan.resolutions.is_empty() {
        text.push_str(&format!("\n  expects {} founders; seeds resolve", plan.expect));
    }
    for (at, site, to) in &plan.resolutions {
        text.push_str(&format!(", m{site} {to:?} at {:?}", millis(*at)));
    }
    if plan.limits != limits::SMALL_PARTS {
        text.push_str(&format!("\n  limits{}", limits::write(plan.limits)));
    }
    for (number, fault) in plan.kept.iter().zip(&plan.faults) {
        text.push_str(&format!(
            "\n  fault {number}: at {:?} for {:?}: {:?}",
            millis(fault.at),
            millis(fault.lasts),
            fault.what
        ));
    }
    text
}
