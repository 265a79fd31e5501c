//! A command whose standard error is joined with its standard output.

use std::process::Command;

/// The program behind a shell that joins both outputs in one pipe, in order. The caller adds the
/// arguments.
pub(crate) fn both_outputs(program: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.env_clear().env("PATH", "/usr/bin:/bin");
    shell.args(["-c", "exec \"$0\" \"$@\" 2>&1", program]);
    shell
}
