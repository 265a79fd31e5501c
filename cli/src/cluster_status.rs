//! The state of a whole cluster: the answer of one member, with the tables of all grantors.
//!
//! Each member reports the services that it uses or grants. Only a grantor reports the locks of a
//! service. So the other members of the view are asked too, each with a question for its status: a
//! key of an observer is enough. They are asked at the addresses that the view lists, so that the
//! first member has little to do. A member that does not answer soon is also asked through the
//! first member, which may be the only one reachable from here. Nothing is stored. A member that
//! dies before it answers is listed as not reached. Its services come with the next answer, from
//! their next grantor.

use crate::status::MemberAddress;
use elderlock::{MemberInfo, ServiceStatus, Status};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The number of members that are asked at a time, each on a connection of its own.
const AT_A_TIME: usize = 256;

/// The number of members that are asked through the first one at a time. A member accepts few such
/// connections from one address.
const THROUGH_ONE: usize = 8;

/// The time after which a silent member is also asked through the first one.
const HEAD_START: Duration = Duration::from_millis(300);

/// The limit for all answers together. A member that is cut off uses half of it.
const LIMIT: Duration = Duration::from_secs(10);

/// The state of a cluster.
pub(crate) struct ClusterStatus {
    /// The status of the member that was asked first, with the services of all members.
    pub(crate) status: Status,
    /// The members whose answer is missing, and why.
    pub(crate) not_reached: Vec<(MemberInfo, String)>,
}

/// Asks a member, and then the others of its view.
pub(crate) async fn ask(
    address: &MemberAddress,
) -> Result<ClusterStatus, Box<dyn std::error::Error>> {
    let (first, status) = address.ask_first().await?;
    Ok(complete(status, &first).await)
}

/// Adds the services of the other members to the status of the first one.
async fn complete(status: Status, first: &MemberAddress) -> ClusterStatus {
    let me = status.me.process;
    let members = status.view.iter().flat_map(|view| &view.members);
    let others = members.map(|member| &member.info).filter(|info| info.process != me);
    let mut asked = JoinSet::new();
    let until = Instant::now() + LIMIT;
    let room = Arc::new(Semaphore::new(AT_A_TIME));
    let through = Arc::new(Semaphore::new(THROUGH_ONE));
    for info in others.cloned() {
        let (first, room, through) = (first.clone(), room.clone(), through.clone());
        asked.spawn(async move {
            let ask = async {
                // The semaphore is never closed.
                let _place = room.acquire().await;
                ask_other(&info, &first, &through).await
            };
            let answer = tokio::time::timeout_at(until, ask).await;
            (info, answer.unwrap_or_else(|_| Err(format!("no answer within {LIMIT:?}"))))
        });
    }
    let (mut answers, mut not_reached) = (Vec::new(), Vec::new());
    while let Some(ended) = asked.join_next().await {
        match ended {
            Ok((_, Ok(answer))) => answers.push(answer),
            Ok((info, Err(why))) => not_reached.push((info, why)),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    not_reached.sort_by_key(|(info, _)| info.process);
    ClusterStatus { status: merged(status, answers), not_reached }
}

/// Asks another member at its address, and through the first member unless the answer comes soon.
/// Returns the first answer, or else the reasons of both failures.
async fn ask_other(
    info: &MemberInfo,
    first: &MemberAddress,
    through: &Semaphore,
) -> Result<Status, String> {
    let mut at_its_address = pin!(async {
        match first.at(info.addr).ask().await {
            Ok(answer) if answer.me.process == info.process => Ok(answer),
            Ok(_) => Err("another process answers at its address".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    });
    let mut through_first = pin!(async {
        tokio::time::sleep(HEAD_START).await;
        // The semaphore is never closed.
        let _place = through.acquire().await;
        first.ask_of(info.process).await.map_err(|error| error.to_string())
    });
    let mut reasons = [None, None];
    loop {
        tokio::select! {
            answer = &mut at_its_address, if reasons[0].is_none() => match answer {
                Ok(status) => return Ok(status),
                Err(why) => reasons[0] = Some(why),
            },
            answer = &mut through_first, if reasons[1].is_none() => match answer {
                Ok(status) => return Ok(status),
                Err(why) => reasons[1] = Some(why),
            },
            else => return Err(reasons.map(Option::unwrap_or_default).join("; ")),
        }
    }
}

/// The status of one member with the services of others. If two members claim to grant a service,
/// the one with the later epoch counts. The numbers of requests stay those of the one member.
fn merged(mut status: Status, answers: Vec<Status>) -> Status {
    let mut services: BTreeMap<_, ServiceStatus> =
        status.services.into_iter().map(|own| (own.service.clone(), own)).collect();
    let cut = answers.iter().map(|answer| answer.more_services).max().unwrap_or(0);
    status.more_services = status.more_services.max(cut);
    for mut told in answers.into_iter().flat_map(|answer| answer.services) {
        set_own_counts(&mut told, None);
        let Some(known) = services.get_mut(&told.service) else {
            services.insert(told.service.clone(), told);
            continue;
        };
        if (told.granting.is_some(), told.epoch) > (known.granting.is_some(), known.epoch) {
            set_own_counts(&mut told, Some(known));
            *known = told;
        }
    }
    status.services = services.into_values().collect();
    status
}

/// Gives a service the numbers of one member's own requests: those of `from`, or none.
fn set_own_counts(told: &mut ServiceStatus, from: Option<&ServiceStatus>) {
    let count = |of: fn(&ServiceStatus) -> usize| from.map_or(0, of);
    told.waiting_here = count(|of| of.waiting_here);
    told.held_here = count(|of| of.held_here);
    told.open_here = count(|of| of.open_here);
    told.kept_here = count(|of| of.kept_here);
    told.kept_in_use_here = count(|of| of.kept_in_use_here);
}

#[cfg(test)]
mod tests {
    use super::*;
    use elderlock::{Member, ProcessId, Timing};

    async fn member(seeds: &[String]) -> Member {
        let builder = Member::builder("shop").timing(Timing::wan());
        let builder = if seeds.is_empty() { builder.found() } else { builder.seeds(seeds) };
        builder.join().await.expect("it joins")
    }

    fn lines(of: &Status) -> Vec<(String, usize, usize)> {
        let services = of.services.iter();
        services.map(|of| (of.service.to_string(), of.locks.len(), of.held_here)).collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn any_member_is_asked_for_the_tables_of_all_grantors() {
        let first = member(&[]).await;
        let second = member(&[first.addr().to_string()]).await;
        let stock = first.lock_service("stock").await.expect("a good name");
        let _apple = stock.lock("apple").await.expect("it is free");
        let till = second.lock_service("till").await.expect("a good name");
        let _coin = till.lock("coin").await.expect("it is free");
        // The second member uses the service that the first grants.
        let _pear = second.lock_service("stock").await.expect("a good name").lock("pear").await;

        let at_first = MemberAddress::of(first.addr(), "shop");
        assert_eq!(lines(&at_first.ask().await.expect("it answers")), [("stock".into(), 2, 1)]);
        let found = ask(&at_first).await.expect("it answers");
        assert_eq!(lines(&found.status), [("stock".into(), 2, 1), ("till".into(), 1, 0)]);
        let found = ask(&MemberAddress::of(second.addr(), "shop")).await.expect("it answers");
        assert_eq!(lines(&found.status), [("stock".into(), 2, 1), ("till".into(), 1, 1)]);
        assert!(found.not_reached.is_empty());

        // At the address of the view no process listens, or another process does. The first member
        // still reaches the member.
        let all = lines(&ask(&at_first).await.expect("it answers").status);
        let mut status = at_first.ask().await.expect("it answers");
        for addr in ["127.0.0.1:9", &first.addr().to_string()] {
            let view = status.view.as_mut().expect("it is in one");
            view.members[1].info.addr = addr.parse().expect("an address");
            let found = complete(status.clone(), &at_first).await;
            assert!(found.not_reached.is_empty(), "{:?}", found.not_reached);
            assert_eq!(lines(&found.status), all);
        }
        // No process has the process id that the view lists.
        let view = status.view.as_mut().expect("it is in one");
        let gone = ProcessId(!second.process().0);
        view.members[1].info.process = gone;
        let found = complete(status, &at_first).await;
        let [(info, why)] = &found.not_reached[..] else { panic!("one is not reached") };
        assert_eq!(info.process, gone);
        for reason in ["another process answers at its address", "its view has no such process"] {
            assert!(why.contains(reason), "{why}");
        }
        assert_eq!(lines(&found.status), [("stock".into(), 2, 1)]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_of_many_members_is_asked() {
        const OTHERS: u128 = 100;
        let first = member(&[]).await;
        let at_first = MemberAddress::of(first.addr(), "shop");
        let mut status = at_first.ask().await.expect("it answers");
        // Another process answers at each of these members' addresses.
        let view = status.view.as_mut().expect("it is in one");
        let own = view.members[0].clone();
        view.members.extend((1..=OTHERS).map(|number| {
            let mut member = own.clone();
            member.info.process = ProcessId(member.info.process.0 ^ number);
            member
        }));
        let mut found = complete(status.clone(), &at_first).await;
        for _ in 0..10 {
            // On a busy machine the limit ends before all have answered.
            if !found.not_reached.iter().any(|(_, why)| why.contains(" within ")) {
                break;
            }
            found = complete(status.clone(), &at_first).await;
        }
        let asked = |why: &String| why.starts_with("another process answers at its address; ");
        let reasons = found.not_reached.iter().map(|(_, why)| why);
        let faults: Vec<_> = reasons.filter(|why| !asked(why)).collect();
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(found.not_reached.len(), OTHERS as usize);
    }
}
