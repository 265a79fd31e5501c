//! The display of the running demo, on standard error.

use super::crew::Crew;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// A bar with the state of the shop, and the events above it. Without a terminal, only the events.
pub(crate) struct DemoProgress {
    bar: ProgressBar,
    begun: Instant,
    shown: Cell<(Instant, u64)>,
}

/// The interval at which the bar is redrawn.
const REDRAW: Duration = Duration::from_millis(200);

impl DemoProgress {
    pub(crate) fn new(seconds: u32) -> DemoProgress {
        let style = ProgressStyle::with_template("{elapsed:>3} {bar:20.green} {msg}")
            .expect("the template is constant");
        let bar = ProgressBar::new(u64::from(seconds) * 1000).with_style(style);
        let now = Instant::now();
        DemoProgress { bar, begun: now, shown: Cell::new((now, 0)) }
    }

    /// Shows the text of an event.
    pub(crate) fn tell(&self, text: &str) {
        let line = format!("{:6.2} s  {text}", self.begun.elapsed().as_secs_f64());
        if self.bar.is_hidden() { eprintln!("{line}") } else { self.bar.println(line) }
    }

    /// Redraws the bar when it is due.
    pub(crate) fn show(&self, crew: &Crew) {
        let (last, sales) = self.shown.get();
        let passed = last.elapsed();
        if passed < REDRAW {
            return;
        }
        self.shown.set((Instant::now(), crew.sales));
        let rate = (crew.sales - sales) as f64 / passed.as_secs_f64();
        let name = |index: Option<usize>| {
            index.map_or("none".to_owned(), |index| format!("worker {index}"))
        };
        self.bar.set_position(self.begun.elapsed().as_millis() as u64);
        self.bar.set_message(format!(
            "{} members in view {}, elder {}, grantor {}, {} sales, {rate:.0}/s",
            crew.sight().map_or(0, |sight| sight.members.len()),
            crew.sight().map_or(0, |sight| sight.view),
            name(crew.elder()),
            name(crew.grantor()),
            crew.sales,
        ));
    }

    pub(crate) fn close(&self) {
        self.bar.finish_and_clear();
    }
}
