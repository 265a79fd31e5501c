//! Steps, logs and scripts as text, in the form of the crate `goldenscript`: commands, `---`, and
//! their outcome.
//!
//! A *log* is written by a driver: a World, and steps that are taken `at` a time. A *script* is
//! written by a person and may also wait for a condition (`until`). A [`ScriptRunner`] runs both in
//! a World.

mod runner;
mod scene;
mod steps;
mod words;

pub use runner::ScriptRunner;
pub use steps::write_step;

use crate::log::Log;
use crate::network::SECOND;
use std::fmt::Write as _;

impl Log {
    /// Returns the log as a script, without the outcome. Each second with steps has a block.
    pub fn to_script(&self) -> String {
        let mut text = scene::write_scene(&self.scene) + "---\n";
        let mut second = None;
        for (at, step) in &self.steps {
            if second.replace(at / SECOND) != Some(at / SECOND) {
                text += if text.ends_with("---\n") { "\n" } else { "---\n\n" };
            }
            writeln!(text, "at {} {}", words::time(*at), write_step(step))
                .expect("a string takes what is written to it");
        }
        // A demand at the end takes its own time, so no time of the end is written.
        if self.steps.last().is_none_or(|(at, step)| *at < self.end && !step.takes_time()) {
            text += if text.ends_with("---\n") { "\n" } else { "---\n\n" };
            text += &format!("at {}\n", words::time(self.end));
        }
        text + "---\n"
    }
}
