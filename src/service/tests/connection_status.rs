//! A member's connection to its cluster: its reported status, and the behaviour of its guards, in
//! each state.

use super::rejoin::Lan;
use super::*;

async fn pair() -> (Arc<Lan>, Member, Member) {
    let lan = Arc::new(Lan::default());
    let (elder, other) = (lan.start(1), lan.start(2));
    come(|| sees(&elder, 2) && sees(&other, 2)).await;
    (lan, elder, other)
}

async fn next(connection: &mut Connection) -> Option<ConnectionEvent> {
    tokio::time::timeout(HANG, connection.next()).await.expect("it never came")
}

/// Curator `ConnectionState`: SUSPENDED, LOST and RECONNECTED, in this order, each once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_cut_off_and_expelled_is_suspended_lost_and_reconnected() {
    let (lan, elder, other) = pair().await;
    let mut connection = other.connection();
    assert_eq!(next(&mut connection).await, Some(ConnectionEvent::Connected));
    let stock = other.lock_service("inventory").await.unwrap();
    let guard = stock.lock("a").await.unwrap();
    let watch = guard.watch();
    assert_eq!(watch.reason(), None);

    lan.cut(&other);
    assert_eq!(next(&mut connection).await, Some(ConnectionEvent::Suspended));
    // The state is reported after the guard is lost, never before.
    assert_eq!(
        (guard.fence().unwrap_err().reason, watch.reason()),
        (LostReason::Suspended, Some(LostReason::Suspended))
    );
    assert_eq!(other.connection_status(), ConnectionStatus::Suspended);
    assert_eq!(stock.try_lock("b").await.unwrap_err(), TryLockError::Undecided);
    come(|| sees(&elder, 1)).await;
    lan.heal();

    assert_eq!(next(&mut connection).await, Some(ConnectionEvent::Lost));
    assert_eq!(next(&mut connection).await, Some(ConnectionEvent::Reconnected));
    assert_eq!(
        (other.connection_status(), elder.connection_status()),
        (ConnectionStatus::Connected, ConnectionStatus::Connected)
    );
    assert!(guard.fence().is_err(), "a lost guard stays lost");
    drop(guard);
    stock.lock("a").await.unwrap().release().await.unwrap();

    other.leave().await.unwrap();
    assert_eq!(next(&mut connection).await, Some(ConnectionEvent::Lost));
    assert_eq!(next(&mut connection).await, None);
    assert_eq!(next(&mut other.connection()).await, Some(ConnectionEvent::Lost));
}

/// Curator `ConnectionState`: SUSPENDED, then RECONNECTED within the session. With Curator the
/// member would have its lock again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_without_a_quorum_for_a_while_reconnect_as_the_same_processes_without_their_guards()
{
    let lan = Arc::new(Lan::default());
    let members = [lan.start(1), lan.start(2), lan.start(3)];
    come(|| members.iter().all(|member| sees(member, 3))).await;
    let stock = members[1].lock_service("inventory").await.unwrap();
    let guard = stock.lock("a").await.unwrap();
    let waiting =
        tokio::spawn(members[2].lock_service("inventory").await.unwrap().lock("a").into_future());
    come(|| left_over(&members[2]).2 == 1).await;
    let processes = members.each_ref().map(Member::process);
    let mut connections = members.each_ref().map(Member::connection);
    for connection in &mut connections {
        assert_eq!(next(connection).await, Some(ConnectionEvent::Connected));
    }

    members.iter().for_each(|member| lan.cut(member));
    for connection in &mut connections {
        assert_eq!(next(connection).await, Some(ConnectionEvent::Suspended));
    }
    assert_eq!(members.each_ref().map(Member::connection_status), [ConnectionStatus::Suspended; 3]);
    assert_eq!(guard.fence().unwrap_err().reason, LostReason::Suspended);
    assert!(!waiting.is_finished(), "a waiter keeps its position");
    lan.heal();
    for connection in &mut connections {
        assert_eq!(next(connection).await, Some(ConnectionEvent::Reconnected));
    }
    assert_eq!(members.each_ref().map(Member::process), processes);
    assert!(guard.fence().is_err(), "lost for good, though no other member was given the lock");
    drop(guard);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_slow_reader_of_the_connection_hears_how_many_changes_it_missed_and_the_present_one() {
    let (member, _stock) = service().await;
    let mut connection = member.connection();
    for _ in 0..100 {
        member.note_brief_suspension();
    }
    assert_eq!(next(&mut connection).await, Some(ConnectionEvent::Connected));
    let missed = ConnectionEvent::Missed { count: 200, status: ConnectionStatus::Connected };
    assert_eq!(next(&mut connection).await, Some(missed));
    assert!(missed.is_connected());
    member.note_brief_suspension();
    assert_eq!(next(&mut connection).await, Some(ConnectionEvent::Suspended));
    assert_eq!(next(&mut connection).await, Some(ConnectionEvent::Reconnected));
}

#[tokio::test]
async fn a_watch_does_not_keep_the_lock_and_tells_how_the_hold_ended() {
    let (member, stock) = service().await;
    let guard = stock.lock("a").await.unwrap();
    let (watch, inner) = (guard.watch(), guard.reenter().unwrap());
    drop(guard);
    assert_eq!(watch.reason(), None, "another guard has it");
    let waiting = tokio::spawn({
        let watch = watch.clone();
        async move { watch.lost().await }
    });
    tokio::task::yield_now().await;
    drop(inner);
    assert_eq!(left_over(&member), NOTHING);
    assert_eq!(watch.reason(), Some(LostReason::Released));
    assert_eq!(waiting.await.unwrap(), LostReason::Released);

    let guard = stock.lock("a").lease(5 * MS).await.unwrap();
    let watch = guard.watch();
    assert_eq!(watch.lost().await, LostReason::LeaseEnded);
    drop(guard);
    assert_eq!(watch.reason(), Some(LostReason::LeaseEnded), "the first reason stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_the_connection_can_be_dropped_at_any_poll_and_loses_no_state() {
    let (member, _stock) = service().await;
    let connection = Arc::new(tokio::sync::Mutex::new(member.connection()));
    assert_eq!(connection.lock().await.next().await, Some(ConnectionEvent::Connected));
    let began = Arc::new(tokio::sync::Notify::new());
    let brief_suspensions = tokio::spawn({
        let (member, began) = (member.clone(), began.clone());
        async move {
            began.notified().await;
            member.note_brief_suspension();
        }
    });
    let heard = Mutex::new(Vec::new());
    let mut made = 0;
    poll_k_then_drop(
        async || {
            // The fourth service is made last: the earlier ones have to wait.
            made += 1;
            if made > 3 {
                began.notify_one();
            }
            async {
                let next = connection.lock().await.next().await;
                heard.lock().unwrap().extend(next);
            }
        },
        async |_| (),
    )
    .await;
    brief_suspensions.await.unwrap();
    let last = next(&mut *connection.lock().await).await;
    heard.lock().unwrap().extend(last);
    assert_eq!(*heard.lock().unwrap(), [ConnectionEvent::Suspended, ConnectionEvent::Reconnected]);
}
