//! Steps, logs and scripts as text, in the form of the crate `goldenscript`: commands, `---`, and what came of them.
//!
//! A *log* is written by a driver: a World, and steps that are taken `at` a time. A *script* is written by a person, who
//! may also wait for something to be so (`until`). Both are told to a World by a [`ScriptRunner`].

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
    /// As a script, without what came of it. A block for each second in which there are steps.
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
        // A demand takes its time itself.
        if self.steps.last().is_none_or(|(at, step)| *at < self.end && !step.takes_time()) {
            text += if text.ends_with("---\n") { "\n" } else { "---\n\n" };
            text += &format!("at {}\n", words::time(self.end));
        }
        text + "---\n"
    }
}
