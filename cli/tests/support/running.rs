//! A running process of the command, and an address for it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

#[path = "../../../tests/support/ports.rs"]
mod ports;

/// An address that no other process takes before its use.
#[allow(dead_code)] // some tests know their addresses
pub(crate) fn free_addr() -> String {
    ports::free(1)[0].to_string()
}

/// A process that ends with this value.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) out: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it can be started");
        let out = BufReader::new(child.stdout.take().expect("it was piped"));
        Running { child, out }
    }

    /// Reads the output up to a line with this text. Returns the line.
    pub(crate) fn line_with(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.out.read_line(&mut line).expect("text") > 0, "it never says {text:?}");
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
