//! Members that follow the load of a service, over real members with sockets on the loopback
//! interface.

#[path = "support/local.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod local;

use elderlock::MemberEvent;
use local::{Leases, Local, nothing_is_left, soon};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_makes_most_requests_becomes_the_grantor() {
    // The load is measured over quarters of a member lease.
    let local = Local::start_with(3, Leases::Short).await;
    let services = local.services("inventory").await;
    soon(services[0].become_grantor()).await.expect("it grants");
    services[1].follow_load(true);
    let busy = local.alive().nth(1).expect("three");
    let mut events = busy.events();
    let locks = async {
        loop {
            soon(services[1].lock("x")).await.expect("granted").release().await.expect("held");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let grants = async {
        let mut follows = false;
        loop {
            match events.next().await {
                Some(MemberEvent::FollowsLoad { service }) => {
                    assert_eq!(service.as_str(), "inventory");
                    follows = true;
                }
                Some(MemberEvent::BecameGrantor { .. }) => return follows,
                Some(_) => {}
                None => panic!("the member has left"),
            }
        }
    };
    let follows = tokio::select! {
        follows = soon(grants) => follows,
        () = locks => unreachable!("it goes on"),
    };
    assert!(follows, "it says why it asks");
    assert!(services[1].is_grantor());
    nothing_is_left(&local).await;
}
