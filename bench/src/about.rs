//! The circumstances of a run: its command and its machine.

use crate::BenchArgs;
use serde_json::{Value, json};

pub(crate) struct About {
    command: String,
    rounds: u32,
    millis: u32,
    processors: usize,
    model: String,
    kernel: String,
    /// The load of the machine before the run, as Linux counts it.
    load: String,
    has_equal_addresses: bool,
}

impl About {
    pub(crate) fn of(args: &BenchArgs, has_equal_addresses: bool) -> About {
        let arguments = std::env::args().skip(1);
        let cpus = read("/proc/cpuinfo");
        About {
            command: std::iter::once("elderlock-bench".to_owned())
                .chain(arguments)
                .collect::<Vec<_>>()
                .join(" "),
            rounds: args.rounds,
            millis: args.millis,
            // The usable processors only: `taskset` limits them.
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            model: model(&cpus).unwrap_or(std::env::consts::ARCH).to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: read("/proc/loadavg").split_whitespace().next().unwrap_or("unknown").to_owned(),
            has_equal_addresses,
        }
    }

    /// The text as one line, valid as Markdown and as plain text.
    pub(crate) fn line(&self) -> String {
        let About { command, rounds, millis, processors, model, kernel, load, .. } = self;
        let version = env!("CARGO_PKG_VERSION");
        let build = if cfg!(debug_assertions) { ", a debug build" } else { "" };
        let [rounds, processors] =
            [counted(*rounds as usize, "round"), counted(*processors, "processor")];
        let addresses = if self.has_equal_addresses { "equal" } else { "random" };
        format!(
            "`{command}`, version {version}{build}, on {processors} ({model}), Linux {kernel}, \
             load {load} before it, all processes at {addresses} addresses. \
             Medians of {rounds} of {millis} ms"
        )
    }

    /// The circumstances as JSON, for programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "command": self.command,
            "version": env!("CARGO_PKG_VERSION"),
            "debug": cfg!(debug_assertions),
            "rounds": self.rounds,
            "millis": self.millis,
            "processors": self.processors,
            "model": self.model,
            "kernel": self.kernel,
            "load": self.load,
            "equal_addresses": self.has_equal_addresses,
        })
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The content of the file, or an empty text where Linux has no such file.
fn read(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// The name of the first processor.
fn model(cpus: &str) -> Option<&str> {
    let line = cpus.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_called_as_linux_calls_it() {
        let cpus = "processor\t: 0\nmodel\t\t: 143\n\
            model name\t: Intel(R) Xeon(R) Processor\nstepping\t: 8\n";
        assert_eq!(model(cpus), Some("Intel(R) Xeon(R) Processor"));
        assert_eq!(model("processor\t: 0\nBogoMIPS\t: 50.00\n"), None);
    }
}
