//! The state of a whole cluster: the answer of one member, with the tables of all grantors.
//!
//! Each member tells the services that it uses or grants, and a grantor alone the locks of a
//! service. So the members of the view are asked too, at the addresses that it lists, each with a
//! question for its status: a key of an observer is enough. Nothing is kept anywhere. A member that
//! dies before it answers is listed as not reached, and its services come with the next answer,
//! from their next grantor.

use crate::status::MemberAddress;
use elderlock::{MemberInfo, ServiceStatus, Status};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The members that are asked at a time, each on a connection of its own.
const AT_A_TIME: usize = 256;

/// All answers together take no longer. A member that is cut off takes half of it.
const LIMIT: Duration = Duration::from_secs(10);

/// The state of a cluster.
pub(crate) struct ClusterStatus {
    /// The status of the member that was asked first, with the services of all.
    pub(crate) status: Status,
    /// The members whose answer is missing, and why.
    pub(crate) not_reached: Vec<(MemberInfo, String)>,
}

/// Asks a member, and then the others of its view.
pub(crate) async fn ask(
    address: &MemberAddress,
) -> Result<ClusterStatus, Box<dyn std::error::Error>> {
    let status = address.ask().await?;
    Ok(complete(status, address).await)
}

/// Adds the services of the other members to the status of one.
async fn complete(status: Status, address: &MemberAddress) -> ClusterStatus {
    let me = status.me.process;
    let members = status.view.iter().flat_map(|view| &view.members);
    let others = members.map(|member| &member.info).filter(|info| info.process != me);
    let mut asked = JoinSet::new();
    let (room, until) = (Arc::new(Semaphore::new(AT_A_TIME)), Instant::now() + LIMIT);
    for info in others.cloned() {
        let (address, room) = (address.at(info.addr), room.clone());
        asked.spawn(async move {
            let ask = async {
                // It is never closed.
                let _place = room.acquire().await;
                match address.ask().await {
                    Ok(answer) if answer.me.process == info.process => Ok(answer),
                    Ok(_) => Err("another process answers at its address".to_owned()),
                    Err(error) => Err(error.to_string()),
                }
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

/// The status of one member with the services of others. Of two that claim to grant a service, the
/// one with the later epoch does. The counts of requests stay those of the one member.
fn merged(mut status: Status, answers: Vec<Status>) -> Status {
    let mut services: BTreeMap<_, ServiceStatus> =
        status.services.into_iter().map(|own| (own.service.clone(), own)).collect();
    let cut = answers.iter().map(|answer| answer.more_services).max().unwrap_or(0);
    status.more_services = status.more_services.max(cut);
    for mut told in answers.into_iter().flat_map(|answer| answer.services) {
        (told.waiting_here, told.held_here, told.open_here) = (0, 0, 0);
        let Some(known) = services.get_mut(&told.service) else {
            services.insert(told.service.clone(), told);
            continue;
        };
        if (told.granting.is_some(), told.epoch) > (known.granting.is_some(), known.epoch) {
            let here = (known.waiting_here, known.held_here, known.open_here);
            (told.waiting_here, told.held_here, told.open_here) = here;
            *known = told;
        }
    }
    status.services = services.into_values().collect();
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use elderlock::{Member, ProcessId, Timing};

    async fn member(seeds: &[String]) -> Member {
        let builder = Member::builder("shop").timing(Timing::fast());
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
        // The second member uses the service of the first.
        let _pear = second.lock_service("stock").await.expect("a good name").lock("pear").await;

        let at_first = MemberAddress::of(first.addr(), "shop");
        assert_eq!(lines(&at_first.ask().await.expect("it answers")), [("stock".into(), 2, 1)]);
        let found = ask(&at_first).await.expect("it answers");
        assert_eq!(lines(&found.status), [("stock".into(), 2, 1), ("till".into(), 1, 0)]);
        let found = ask(&MemberAddress::of(second.addr(), "shop")).await.expect("it answers");
        assert_eq!(lines(&found.status), [("stock".into(), 2, 1), ("till".into(), 1, 1)]);
        assert!(found.not_reached.is_empty());

        // The view lists an address at which no process listens, or another one.
        let mut status = at_first.ask().await.expect("it answers");
        for (addr, why) in [("127.0.0.1:9", "cannot"), (&first.addr().to_string(), "another")] {
            let view = status.view.as_mut().expect("it is in one");
            view.members[1].info.addr = addr.parse().expect("an address");
            let found = complete(status.clone(), &at_first).await;
            let [(info, told)] = &found.not_reached[..] else { panic!("one is not reached") };
            assert_eq!(info.process, second.process());
            assert!(why == "cannot" || told.contains(why), "{told}");
            assert_eq!(lines(&found.status), [("stock".into(), 2, 1)]);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_of_many_members_is_asked() {
        const OTHERS: u128 = 150;
        let first = member(&[]).await;
        let at_first = MemberAddress::of(first.addr(), "shop");
        let mut status = at_first.ask().await.expect("it answers");
        // A member that is asked is found to be another process.
        let view = status.view.as_mut().expect("it is in one");
        let own = view.members[0].clone();
        view.members.extend((1..=OTHERS).map(|number| {
            let mut member = own.clone();
            member.info.process = ProcessId(member.info.process.0 ^ number);
            member
        }));
        let found = complete(status, &at_first).await;
        let asked = |why: &String| why == "another process answers at its address";
        let reasons = found.not_reached.iter().map(|(_, why)| why);
        let faults: Vec<_> = reasons.filter(|why| !asked(why)).collect();
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(found.not_reached.len(), OTHERS as usize);
    }
}
