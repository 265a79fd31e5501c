//! The trace: the inputs and acts of members, a line each, for people.

use super::World;
use crate::network::SECOND;
use crate::site::Site;
use elderlock::protocol::{Input, Packet, View};
use std::collections::VecDeque;

/// Trace lines kept: enough to reach back to a break that only the history checker finds.
const TRACE_LINES: usize = 40_000;

impl World {
    /// Returns whether the trace has a line of the site with these words.
    pub fn said_at(&self, site: usize, words: &str) -> bool {
        let site_text = format!(" m{site} ");
        self.trace.iter().any(|line| line.contains(&site_text) && line.contains(words))
    }

    /// The last lines of the trace.
    pub fn story(&self, lines: usize) -> String {
        let skip = self.trace.len().saturating_sub(lines);
        self.trace.iter().skip(skip).cloned().collect::<Vec<_>>().join("\n")
    }

    /// The last lines of the trace until this true time, in nanoseconds.
    pub fn story_until(&self, at: u64, lines: usize) -> String {
        let end = format!("{}~", seconds(at));
        let told = self.trace.partition_point(|line| *line < end);
        self.trace.range(told.saturating_sub(lines)..told).cloned().collect::<Vec<_>>().join("\n")
    }

    /// The trace is kept, and begins here.
    pub(crate) fn trace_from_here(&mut self) {
        self.tracing = true;
        self.trace.clear();
    }

    /// The trace since it was last taken.
    pub(crate) fn take_trace(&mut self) -> VecDeque<String> {
        std::mem::take(&mut self.trace)
    }

    pub(crate) fn note(&mut self, site: usize, text: impl FnOnce(&Site) -> String) {
        if self.tracing {
            let line = format!("{} m{site} {}", seconds(self.now), text(&self.sites[site]));
            self.note_line(line);
        }
    }

    pub(super) fn note_line(&mut self, line: String) {
        if self.tracing {
            if self.trace.len() == TRACE_LINES {
                self.trace.pop_front();
            }
            self.trace.push_back(line);
        }
    }

    pub(super) fn trace_input(&mut self, site: usize, input: &Input) {
        let text = match input {
            Input::Received { from, packet, .. } => {
                let from = self
                    .site_of(*from)
                    .map_or_else(|| format!("({from})"), |site| format!("m{site}"));
                format!("<- {from} {}", show_packet(packet))
            }
            Input::Command(command) => format!("** {command:?}"),
            Input::Hint(hint) => format!("?? {hint:?}"),
            Input::Stored { number } => format!("!! write {number} is done"),
            Input::StoreFailed { number } => format!("!! write {number} failed"),
            Input::Timer => return,
        };
        self.note(site, |_| text);
    }
}

/// True time for people.
pub(super) fn seconds(now: u64) -> String {
    format!("{:>4}.{:06}", now / SECOND, now % SECOND / 1_000)
}

/// A view for people.
pub(super) fn show(view: &View) -> String {
    let members: Vec<String> = view
        .members
        .iter()
        .map(|member| {
            let (ghost, learner) = (member.ghost, member.learner);
            let state = if ghost {
                "(ghost)"
            } else if learner {
                "(learner)"
            } else {
                ""
            };
            format!("{}{state}", member.info.process)
        })
        .collect();
    format!("v{} of {}: {}", view.number, view.lineage.founder, members.join(" "))
}

fn show_packet(packet: &Packet) -> String {
    match packet {
        Packet::Relay { from, to, packet, .. } => {
            format!("Relay {} -> {to}: {}", from.process, show_packet(packet))
        }
        Packet::Notice(notice) => match &**notice {
            elderlock::protocol::Notice::FullView { view, .. } => {
                format!("FullView {}", show(view))
            }
            notice => format!("{notice:?}"),
        },
        Packet::Linked { view, seq, ack, message } => {
            format!("[v{view} #{seq} ack {ack}] {message:?}")
        }
        Packet::VoteSuccessor { claim, me, notice, .. } => {
            format!("{} for {}: {notice:?}", me.process, claim.voter)
        }
        Packet::Sealed { bytes, .. } => format!("{} sealed bytes", bytes.len()),
        Packet::Ack { view, ack, again } => {
            format!("[v{view} ack {ack}{}]", if *again { " again" } else { "" })
        }
    }
}
