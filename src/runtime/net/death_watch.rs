//! Vouched death: a member that shares the kernel of another sees for certain that it has ended.
//!
//! A process number alone proves nothing: the system may have reused it. So the process is first
//! held by a descriptor, which stays with that process even if the number is reused. *Then* the
//! start time under the number is compared with the start time from the handshake. If they are
//! equal, the descriptor is of the very process that shook hands. Had the number been reused before
//! it was opened, the start time would differ. When the descriptor says "ended", that process has
//! ended. If any of these steps fails, no death is reported.

use crate::protocol::ProcessId;
#[cfg(any(test, target_os = "linux"))]
use crate::protocol::{Host, MemberInfo};
#[cfg(target_os = "linux")]
use tokio_util::sync::CancellationToken;

#[cfg(target_os = "linux")]
pub(crate) use linux::{DeathWatch, here};
#[cfg(not(target_os = "linux"))]
pub(crate) use nowhere::{NoDeathWatch as DeathWatch, here};

/// A process that is watched.
pub(super) struct HeldProcess {
    pub(super) process: ProcessId,
    /// Cancelled when the process leaves the view.
    #[cfg(target_os = "linux")]
    let_go: CancellationToken,
    /// Stays with this process, also when the system uses its number again.
    #[cfg(target_os = "linux")]
    descriptor: std::os::fd::OwnedFd,
}

/// Start time in clock ticks since boot from the text of `/proc/<pid>/stat`: field 22. The name in
/// field 2 may contain anything, parentheses too, but no later field does.
#[cfg(any(test, target_os = "linux"))]
fn start_time(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Returns the host of the process in `info`, if the process can be watched from here.
#[cfg(any(test, target_os = "linux"))]
fn neighbour(mine: Option<Host>, info: &MemberInfo) -> Option<Host> {
    info.host.filter(|other| mine.is_some_and(|mine| mine.sees(other)))
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{HeldProcess, neighbour, start_time};
    use crate::protocol::{Host, MemberInfo, ProcessId, View};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::fd::OwnedFd;
    use std::os::linux::fs::MetadataExt as _;
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;
    use tokio_util::sync::CancellationToken;

    /// Processes watched at one time: a descriptor and a small task each.
    const MAX_WATCHED: usize = 1024;

    /// Returns the host on which this process runs; `None` where `/proc` does not tell.
    pub(crate) fn here() -> Option<Host> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).ok()?;
        let namespace = fs::metadata("/proc/self/ns/pid").ok()?.st_ino();
        let started = start_time(&fs::read_to_string("/proc/self/stat").ok()?)?;
        Some(Host { boot, namespace, pid: std::process::id(), started })
    }

    /// A descriptor of the process that `host` names, if it is surely that process.
    pub(super) fn hold(host: &Host) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(host.pid).ok()?)?;
        let held = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // The file is read only after the process is held: see the module.
        let stat = fs::read_to_string(format!("/proc/{}/stat", host.pid)).ok()?;
        (start_time(&stat)? == host.started).then_some(held)
    }

    /// Completes when the held process has ended. An error says nothing of the process.
    pub(super) async fn ended(held: OwnedFd) -> std::io::Result<()> {
        // The function is deprecated in favour of an unsafe one, because a descriptor may change
        // meanwhile. This descriptor is owned and does not change.
        #[allow(deprecated)]
        let held = AsyncFd::with_interest(held, Interest::READABLE)?;
        held.readable().await?.retain_ready();
        Ok(())
    }

    /// The neighbours that are watched in one incarnation.
    pub(crate) struct DeathWatch {
        mine: Option<Host>,
        /// The most processes that are watched.
        most: usize,
        /// The watched processes, each with the token that ends its watch.
        watched: Mutex<BTreeMap<ProcessId, CancellationToken>>,
    }

    impl DeathWatch {
        pub(crate) fn new(mine: Option<Host>) -> Self {
            DeathWatch { mine, most: MAX_WATCHED, watched: Mutex::default() }
        }

        #[cfg(test)]
        pub(in super::super) fn with_most(mine: Option<Host>, most: usize) -> Self {
            DeathWatch { most, ..DeathWatch::new(mine) }
        }

        /// Holds a process of the view, if it runs on this host and is not yet watched.
        pub(in super::super) fn hold(&self, info: &MemberInfo) -> Option<HeldProcess> {
            let host = neighbour(self.mine, info)?;
            let process = info.process;
            let mut watched = self.watched();
            let is_full = watched.len() >= self.most && !planted!(WatchAll);
            if is_full || watched.contains_key(&process) {
                return None;
            }
            let descriptor = hold(&host)?;
            let let_go = CancellationToken::new();
            watched.insert(process, let_go.clone());
            Some(HeldProcess { process, let_go, descriptor })
        }

        fn watched(&self) -> MutexGuard<'_, BTreeMap<ProcessId, CancellationToken>> {
            self.watched.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Ends the watches of processes that this view does not list. Their deaths change nothing,
        /// and each watch has a descriptor.
        pub(in super::super) fn keep(&self, view: &View) {
            self.watched().retain(|process, let_go| {
                let is_kept = view.contains(*process);
                if !is_kept {
                    let_go.cancel();
                }
                is_kept
            });
        }

        /// Completes with `true` when the held process has ended, and with `false` when it has left
        /// the view before. An error says nothing of the process.
        pub(in super::super) async fn ended(&self, held: HeldProcess) -> std::io::Result<bool> {
            let HeldProcess { process, let_go, descriptor } = held;
            tokio::select! {
                biased;
                () = let_go.cancelled() => Ok(false),
                told = ended(descriptor) => {
                    // The process cannot come back: no later process has its start time.
                    self.watched().remove(&process);
                    told.map(|()| true)
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod nowhere {
    use super::HeldProcess;
    use crate::protocol::{Host, MemberInfo, View};

    /// On this platform no host is known for certain.
    pub(crate) fn here() -> Option<Host> {
        None
    }

    /// Watches no process.
    pub(crate) struct NoDeathWatch;

    impl NoDeathWatch {
        pub(crate) fn new(_mine: Option<Host>) -> Self {
            NoDeathWatch
        }

        pub(in super::super) fn hold(&self, _info: &MemberInfo) -> Option<HeldProcess> {
            None
        }

        pub(in super::super) fn keep(&self, _view: &View) {}

        pub(in super::super) async fn ended(&self, _held: HeldProcess) -> std::io::Result<bool> {
            std::future::pending().await
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::linux::{ended, hold};
    use super::*;
    use crate::protocol::{Slot, Timing, View};
    use std::process::{Child, Command};
    use std::time::Duration;

    fn sleeper() -> (Child, Host) {
        let child = Command::new("sleep").arg("600").spawn().expect("sleep runs");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()))
            .expect("/proc tells of a child");
        let started = start_time(&stat).expect("its start time");
        let host = Host { pid: child.id(), started, ..here().expect("/proc tells") };
        (child, host)
    }

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        for name in ["cat", "a b", "x) S 1 (y", ")) ("] {
            let stat = format!("7 ({name}) S {}\n", fields.join(" "));
            assert_eq!(start_time(&stat), Some(22), "{name}");
        }
        assert_eq!(start_time("7 (cat) S 1 2"), None);
        assert_eq!(start_time(""), None);
    }

    #[test]
    fn this_process_knows_where_it_is() {
        let host = here().expect("/proc tells");
        assert_eq!(host.pid, std::process::id());
        assert_eq!(here(), Some(host));
        assert!(host.boot != 0 && host.namespace != 0 && host.started != 0);
    }

    #[test]
    fn only_others_under_the_same_kernel_are_neighbours() {
        let mine = here().expect("/proc tells");
        let other = Host { pid: mine.pid + 1, ..mine };
        assert!(mine.sees(&other));
        assert!(!mine.sees(&mine));
        assert!(!mine.sees(&Host { boot: 0, ..other }));
        assert!(!mine.sees(&Host { namespace: 0, ..other }));
    }

    #[tokio::test]
    async fn a_killed_process_is_seen_to_end() {
        let (mut child, host) = sleeper();
        let held = hold(&host).expect("it lives");
        let mut end = tokio::spawn(ended(held));
        assert!(
            tokio::time::timeout(Duration::from_millis(50), &mut end).await.is_err(),
            "it still lives"
        );
        child.kill().expect("it can be killed");
        // The parent has not collected the exit status yet.
        tokio::time::timeout(Duration::from_secs(120), end)
            .await
            .expect("in time")
            .expect("no panic")
            .expect("told");
        child.wait().expect("it has ended");
        assert!(hold(&host).is_none(), "no member vouches for what is gone already");
    }

    #[tokio::test]
    async fn no_more_than_the_limit_are_watched() {
        let watch = DeathWatch::with_most(here(), 1);
        let (mut children, hosts): (Vec<Child>, Vec<Host>) =
            [sleeper(), sleeper()].into_iter().unzip();
        let addr = ([127, 0, 0, 1], 7400).into();
        let hold = |number: usize| {
            let info = MemberInfo::new(ProcessId(1 + number as u128), addr);
            watch.hold(&MemberInfo { host: Some(hosts[number]), ..info })
        };
        let first = hold(0).expect("there is room");
        assert!(hold(0).is_none(), "it is watched already");
        assert!(hold(1).is_none(), "there is room for one");
        children[0].kill().expect("it can be killed");
        assert!(watch.ended(first).await.expect("told"));
        assert!(hold(1).is_some(), "there is room again");
        children[1].kill().expect("it can be killed");
        children.iter_mut().for_each(|child| drop(child.wait()));
    }

    #[tokio::test]
    async fn a_process_that_leaves_the_view_is_watched_no_more() {
        let watch = DeathWatch::new(here());
        let (mut child, host) = sleeper();
        let info = MemberInfo::new(ProcessId(1), ([127, 0, 0, 1], 7400).into());
        let info = MemberInfo { host: Some(host), ..info };
        let other = MemberInfo::new(ProcessId(2), ([127, 0, 0, 1], 7401).into());
        let held = watch.hold(&info).expect("there is room");
        let view = |members| View::first(Slot(9), members, Timing::lan(), 7);
        watch.keep(&view(vec![info.clone(), other.clone()]));
        assert!(watch.hold(&info).is_none(), "it is watched still");
        watch.keep(&view(vec![other]));
        assert!(!watch.ended(held).await.expect("told"), "it lives, and is let go");
        assert!(watch.hold(&info).is_some(), "it may be watched again");
        child.kill().and_then(|()| child.wait()).expect("it can be killed");
    }

    #[tokio::test]
    async fn another_process_under_the_same_number_is_not_taken_for_it() {
        let (mut child, host) = sleeper();
        assert!(hold(&Host { started: host.started + 1, ..host }).is_none());
        assert!(hold(&Host { pid: 0, ..host }).is_none());
        assert!(hold(&Host { pid: u32::MAX, ..host }).is_none());
        child.kill().and_then(|()| child.wait()).expect("it can be killed");
    }
}
