//! `LastEvents`: the last events of a member, with their ages.

use super::super::events::member_event;
use super::super::member::Member;
use crate::protocol::Time;
use crate::runtime::engine::Announcement;
use serde::Serialize;
use std::collections::VecDeque;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

/// The number of events on the page.
const MOST: usize = 32;

/// The last events. They are read when a request comes, so that no task is needed in between. Until
/// then only as many are kept as the page shows.
pub(super) struct LastEvents {
    reader: Receiver<(Time, Announcement)>,
    last: VecDeque<(Time, String)>,
}

/// An event in the content of `/status.json`.
#[derive(Serialize)]
pub(super) struct ShownEvent {
    /// The event in words.
    text: String,
    /// The age of the event, in seconds.
    age: f64,
}

impl LastEvents {
    /// Collects the events of this member from now on.
    pub(super) fn of(member: &Member) -> LastEvents {
        LastEvents { reader: member.engine().subscribe_last(MOST), last: VecDeque::new() }
    }

    /// Reads the new events, and lists the last ones with their ages at this time, the latest
    /// first.
    pub(super) fn catch_up(&mut self, member: &Member) -> Vec<ShownEvent> {
        loop {
            let (time, event) = match self.reader.try_recv() {
                Ok((time, announcement)) => (time, member_event(announcement)),
                // The next events in the ring are the last ones.
                Err(TryRecvError::Lagged(_)) => continue,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            };
            let Some(event) = event else { continue };
            if self.last.len() == MOST {
                self.last.pop_front();
            }
            self.last.push_back((time, event.to_string()));
        }
        let now = member.engine().now();
        let shown = self.last.iter().rev().map(|(time, text)| ShownEvent {
            text: text.clone(),
            age: now.since(*time).as_secs_f64(),
        });
        shown.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemberEvent;

    #[tokio::test]
    async fn a_view_that_is_not_read_keeps_no_more_events_than_it_shows() {
        let member = Member::local().await.expect("it joins");
        let mut all = member.events();
        let [mut last, mut other] = [LastEvents::of(&member), LastEvents::of(&member)];
        let mut services = Vec::new();
        for number in 0..MOST + 8 {
            let service = member.lock_service(format!("s{number}")).await.expect("a good name");
            drop(service.lock("a").await.expect("it is free"));
            let begins = |event| matches!(event, Some(MemberEvent::BecameGrantor { .. }));
            while !begins(all.next().await) {}
            services.push(service);
        }
        assert!(matches!(other.reader.try_recv(), Err(TryRecvError::Lagged(8..))));
        let shown = last.catch_up(&member);
        assert_eq!(shown.len(), MOST);
        for (at, event) in shown.iter().enumerate() {
            let grantor = format!("became grantor of s{} in epoch ", MOST + 7 - at);
            assert!(event.text.starts_with(&grantor), "{at}: {}", event.text);
        }
        // The next event pushes the oldest one out.
        member.leave().await.expect("it is alone");
        let shown = last.catch_up(&member);
        assert_eq!((shown.len(), shown[0].text.as_str()), (MOST, "left"));
    }
}
