//! Data directories: their content, and how a cluster that ended continues from them.

mod support;

use elderlock::{DataDirError, ForceError, JoinError, Member, Timing, VoteError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::ports;
use tokio::runtime::Runtime;

/// A directory that is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("elderlock-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }

    fn of(&self, member: usize) -> PathBuf {
        self.0.join(member.to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Other users of the machine cannot read a vote. A link in the directory leads no write to
/// another file.
#[cfg(unix)]
#[test]
fn the_files_of_a_data_directory_are_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new("private");
    let directory = scratch.of(0);
    std::fs::create_dir_all(&scratch.0).expect("it can be made");
    let elsewhere = scratch.0.join("elsewhere");
    std::fs::write(&elsewhere, "untouched").expect("it can be written");
    let runtime = runtime();
    let join = || runtime.block_on(builder(ports::free(1)[0], &[], &directory).found().join());
    let member = join().expect("it founds");
    let mode =
        |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&directory.join("vote"))), (0o700, 0o600));
    runtime.block_on(member.leave()).expect("it is alone");
    // A link in the place of the temporary file is removed and not followed.
    std::os::unix::fs::symlink(&elsewhere, directory.join("vote.next")).expect("it can be made");
    let member = join().expect("it founds again");
    // The error of this `leave` does not matter: the member's former incarnation may still be a
    // ghost.
    let _ = runtime.block_on(member.leave());
    assert_eq!(std::fs::read_to_string(&elsewhere).expect("it is there"), "untouched");
    std::fs::remove_file(directory.join("vote")).expect("it is there");
    std::os::unix::fs::symlink(&elsewhere, directory.join("vote")).expect("it can be made");
    assert!(
        matches!(join(), Err(JoinError::DataDir { why: DataDirError::Io(_), .. })),
        "a link is not a vote"
    );
}

/// A start on a damaged vote fails with an error that names the file. Each byte is damaged once,
/// and the file is cut at each length.
#[test]
fn a_vote_damaged_at_any_byte_is_refused_at_the_start_by_name() {
    let scratch = Scratch::new("damaged");
    let directory = scratch.of(0);
    let runtime = runtime();
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    let join = || runtime.block_on(builder(any, &[], &directory).found().join());
    let member = join().expect("it founds");
    let _ = runtime.block_on(member.leave());
    let path = directory.join("vote");
    let vote = std::fs::read(&path).expect("it is there");
    let mut damaged: Vec<Vec<u8>> = (0..vote.len()).map(|length| vote[..length].to_vec()).collect();
    damaged.push([vote.as_slice(), &[0]].concat());
    for byte in 0..vote.len() {
        for bits in [0x01, 0x80, 0xff] {
            let mut other = vote.clone();
            other[byte] ^= bits;
            damaged.push(other);
        }
    }
    for bytes in &damaged {
        std::fs::write(&path, bytes).expect("it can be written");
        let error = join().err().unwrap_or_else(|| panic!("it starts on {bytes:x?}"));
        let text = error.to_string();
        let names = text.contains("`vote`") && text.contains(directory.to_str().expect("text"));
        assert!(matches!(error, JoinError::DataDir { .. }) && names, "{text}");
        assert_eq!(&std::fs::read(&path).expect("it is there"), bytes, "nothing is changed");
    }
    std::fs::write(&path, &vote).expect("it can be written");
    let member = join().expect("the whole vote is taken");
    let _ = runtime.block_on(member.leave());
    assert!(damaged.len() > 4 * 50, "{} starts", damaged.len());
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}

fn builder(addr: SocketAddr, seeds: &[SocketAddr], dir: &Path) -> elderlock::MemberBuilder {
    Member::builder("kept")
        .bind(addr.to_string())
        .seeds(seeds.iter().map(ToString::to_string))
        .timing(Timing::fast())
        .data_dir(dir)
        .join_limit(Duration::from_secs(60))
}

/// Members on runtimes of their own, so that one can end without a goodbye, like a killed process.
fn start(addrs: &[SocketAddr], dirs: &[PathBuf]) -> Vec<(Runtime, Member)> {
    start_built(addrs.iter().zip(dirs).map(|(addr, dir)| builder(*addr, addrs, dir)))
}

fn start_built(
    builders: impl IntoIterator<Item = elderlock::MemberBuilder>,
) -> Vec<(Runtime, Member)> {
    let joins = builders.into_iter().map(|builder| {
        let runtime = runtime();
        let join = runtime.spawn(builder.join());
        (runtime, join)
    });
    let joins: Vec<_> = joins.collect();
    let wait = runtime_for_waiting();
    joins
        .into_iter()
        .map(|(runtime, join)| {
            let member = wait.block_on(join).expect("the task ends").expect("it joins");
            (runtime, member)
        })
        .collect()
}

fn runtime_for_waiting() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

/// Ends all these members without a goodbye.
fn end(members: Vec<(Runtime, Member)>) {
    for (runtime, member) in members {
        runtime.shutdown_timeout(Duration::from_secs(10));
        drop(member);
    }
}

fn token(member: &(Runtime, Member)) -> u64 {
    let (runtime, member) = member;
    runtime.block_on(async {
        let guard =
            member.lock_service("stock").await.expect("a service").lock("x").await.expect("a lock");
        guard.fence().expect("a token").get()
    })
}

#[test]
fn a_cluster_that_ended_whole_goes_on_with_its_directories() {
    let scratch = Scratch::new("whole");
    let addrs: Vec<SocketAddr> = ports::free(3);
    let dirs: Vec<PathBuf> = (0..3).map(|member| scratch.of(member)).collect();
    let members = start(&addrs, &dirs);
    let lineage = members[0].1.status().view.expect("a view").lineage;
    let first = token(&members[0]);
    end(members);

    // A write of a vote was cut off: the vote before it counts.
    std::fs::write(dirs[0].join("vote.next"), b"elderlock vo").expect("a file");
    let members = start(&addrs, &dirs);
    let view = members[0].1.status().view.expect("a view");
    assert_eq!(view.lineage, lineage, "it goes on, and nothing was founded anew");
    let second = token(&members[1]);
    assert!(second > first);
    end(members);

    // Two of three are a quorum.
    let members = start(&addrs[..2], &dirs[..2]);
    assert_eq!(members[0].1.status().view.expect("a view").lineage, lineage);
    assert!(token(&members[1]) > second);
    end(members);
}

#[test]
fn a_member_that_is_left_alone_goes_on_only_when_forced() {
    let scratch = Scratch::new("forced");
    let addrs = ports::free(3);
    let dirs: Vec<PathBuf> = (0..3).map(|member| scratch.of(member)).collect();
    let members = start(&addrs, &dirs);
    assert_eq!(members[0].1.force(), Err(ForceError::NotOrphaned));
    let lineage = members[0].1.status().view.expect("a view").lineage;
    let first = token(&members[0]);
    end(members);
    std::fs::remove_dir_all(&dirs[0]).expect("a directory");
    std::fs::remove_dir_all(&dirs[1]).expect("a directory");

    let runtime = runtime();
    let alone = || builder(addrs[2], &addrs, &dirs[2]);
    let error =
        runtime.block_on(alone().join_limit(Duration::from_secs(3)).join()).expect_err("no quorum");
    assert!(error.is_timeout(), "{error}");
    let member = runtime.block_on(alone().force().join()).expect("forced");
    assert!(member.status().view.expect("a view").lineage > lineage);
    let member = (runtime, member);
    assert!(token(&member) > first);
    end(vec![member]);
}

/// The start of one seed is forced beside the others, which run with a quorum.
fn is_refused_beside_a_quorum(built: impl Fn(usize) -> elderlock::MemberBuilder) {
    let members = start_built((0..2).map(&built));
    let before = members[0].1.status().view.expect("a view");
    let (waiting, guard) = members[1].0.block_on(async {
        let service = members[1].1.lock_service("stock").await.expect("a service");
        let guard = service.lock("x").await.expect("a lock");
        (runtime(), guard)
    });
    match waiting.block_on(built(2).force().join()) {
        Err(error @ JoinError::QuorumLives { addr, view, .. }) => {
            assert_eq!(view, before.number);
            assert!(members.iter().any(|(_, member)| member.addr() == addr), "{error}");
            assert!(error.to_string().contains("start without force()"), "{error}");
        }
        other => panic!("a cluster with a quorum runs: {other:?}"),
    }
    let after = members[0].1.status().view.expect("a view");
    assert_eq!((after.lineage, after.number), (before.lineage, before.number));
    guard.fence().expect("no lock is given up");
    let third = waiting.block_on(built(2).join()).expect("it joins without force");
    assert_eq!(third.status().view.expect("a view").lineage, before.lineage);
    drop(guard);
    end(members);
}

#[test]
fn a_start_is_not_forced_beside_a_cluster_with_a_quorum() {
    let scratch = Scratch::new("beside");
    let addrs = ports::free(3);
    is_refused_beside_a_quorum(|member| {
        let seeds = if member == 2 { &addrs[..] } else { &addrs[..2] };
        builder(addrs[member], seeds, &scratch.of(member)).timing(Timing::lan())
    });
}

/// Members with a key believe a later lineage at once, and would give up their locks.
#[cfg(feature = "secure")]
#[test]
fn a_start_with_the_cluster_key_is_not_forced_beside_a_cluster_with_a_quorum() {
    let scratch = Scratch::new("keyed");
    let addrs = ports::free(3);
    let key = elderlock::ClusterKey::generate().expect("random bytes").to_base64().to_string();
    is_refused_beside_a_quorum(|member| {
        let seeds = if member == 2 { &addrs[..] } else { &addrs[..2] };
        let ring = elderlock::Keyring::parse(&key).expect("a key");
        let builder = builder(addrs[member], seeds, &scratch.of(member));
        builder.timing(Timing::lan()).keyring(ring)
    });
}

#[test]
fn a_directory_is_used_by_one_process_and_one_cluster() {
    let scratch = Scratch::new("used");
    let addrs = ports::free(2);
    let dir = scratch.of(0);
    let runtime = runtime();
    let found = |addr: SocketAddr| builder(addr, &[addr], &dir);
    let member = runtime.block_on(found(addrs[0]).join()).expect("it founds alone");
    match runtime.block_on(found(addrs[1]).join()) {
        Err(JoinError::DataDir { why: DataDirError::InUse, path }) => assert_eq!(path, dir),
        other => panic!("the directory is in use: {other:?}"),
    }
    runtime.block_on(member.leave()).expect("it leaves");

    let other = Member::builder("another").bind(addrs[1].to_string()).found().data_dir(&dir);
    match runtime.block_on(other.join()) {
        Err(JoinError::DataDir { why: DataDirError::Vote(VoteError::Cluster(name)), .. }) => {
            assert_eq!(name, "kept")
        }
        other => panic!("it belongs to another cluster: {other:?}"),
    }

    // `found` may be repeated: the directory remembers the first founding.
    let again = runtime.block_on(found(addrs[0]).found().join()).expect("it goes on");
    let view = again.status().view.expect("a view");
    assert!(view.number.0 > view.lineage.founded.0);
    runtime.block_on(again.leave()).expect("it leaves");

    std::fs::write(dir.join("vote"), b"not a vote").expect("a file");
    match runtime.block_on(found(addrs[0]).join()) {
        Err(error @ JoinError::DataDir { why: DataDirError::Vote(VoteError::Foreign), .. }) => {
            assert!(error.to_string().contains(&dir.display().to_string()), "{error}");
        }
        other => panic!("the file is not a vote: {other:?}"),
    }
}

#[test]
fn a_vote_that_cannot_be_kept_is_not_given() {
    let scratch = Scratch::new("full");
    let addrs = ports::free(1);
    let dir = scratch.of(0);
    // A directory stands in the place of the vote, so that no write succeeds.
    let obstacle = dir.join("vote.next");
    std::fs::create_dir_all(&obstacle).expect("a directory");
    let runtime = runtime();
    let found = || builder(addrs[0], &addrs, &dir);
    let error = runtime
        .block_on(found().join())
        .expect_err("a cluster is not founded without a stored vote");
    assert!(!dir.join("vote").exists(), "{error}");
    std::fs::remove_dir(&obstacle).expect("a directory");
    let member = runtime.block_on(found().join()).expect("it founds");
    runtime.block_on(member.leave()).expect("it leaves");
}

/// A process with the cluster key has a copy of a dead member's directory, but not its secret. It
/// claims that member's vote. With the vote, the remaining member would have a quorum.
#[cfg(feature = "secure")]
#[test]
fn the_vote_of_a_dead_member_is_claimed_only_with_its_secret() {
    use elderlock::protocol::VoteSecret;
    use elderlock::wire::{read_vote, write_vote};

    let scratch = Scratch::new("claims");
    let addrs: Vec<SocketAddr> = ports::free(3);
    let dirs: Vec<PathBuf> = (0..3).map(|member| scratch.of(member)).collect();
    let key = elderlock::ClusterKey::generate().expect("random bytes").to_base64().to_string();
    let built = |member: usize, dir: &Path| {
        let ring = elderlock::Keyring::parse(&key).expect("a key");
        builder(addrs[member], &addrs, dir).keyring(ring)
    };
    let mut members = start_built((0..3).map(|member| built(member, &dirs[member])));
    end(members.split_off(1));
    let left = &members[0].1;
    let before = left.status().view.expect("a view");

    let file = std::fs::read(dirs[1].join("vote")).expect("a vote");
    let mut vote = read_vote("kept", &file).expect("a vote");
    assert!(before.contains(vote.voter.process));
    vote.voter.secret = VoteSecret::new([7; 32]);
    let forged = scratch.of(9);
    std::fs::create_dir_all(&forged).expect("a directory");
    std::fs::write(forged.join("vote"), write_vote("kept", &vote).expect("a vote"))
        .expect("a file");
    // On a busy machine a limit may end before the claim has arrived.
    support::wait::until("the claim is refused", || {
        let thief = built(1, &forged).join_limit(Duration::from_secs(3));
        let refused = runtime().block_on(thief.join());
        assert!(matches!(refused, Err(JoinError::NoCluster { .. })), "{refused:?}");
        match left.counters().vote_claims {
            0 => Err(format!("{:?}", left.counters())),
            _ => Ok(()),
        }
    });
    assert_eq!(left.status().view.expect("a view").number, before.number);

    let refusals = left.counters().vote_claims;
    members.extend(start_built([built(1, &dirs[1])]));
    let left = &members[0].1;
    assert!(left.status().view.expect("a view").number > before.number);
    assert_eq!(left.counters().vote_claims, refusals, "the true vote successor is believed");
    end(members);
}
