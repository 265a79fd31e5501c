//! Files that follow from the definition of the command line: completions and man pages.

use crate::Done;
use clap::{Args, Command};
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;

/// For example: elderlock completions bash >/etc/bash_completion.d/elderlock
#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// For example: elderlock man /usr/local/share/man/man1
#[derive(Args)]
pub(crate) struct ManArgs {
    /// The directory. It is made if it is not there.
    dir: PathBuf,
}

pub(crate) fn completions(args: CompletionsArgs, mut command: Command) -> Done {
    // Into memory first: the generator panics if its writer fails, as a closed pipe does.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "elderlock", &mut text);
    std::io::Write::write_all(&mut std::io::stdout(), &text)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(args: ManArgs, command: Command) -> Done {
    std::fs::create_dir_all(&args.dir)?;
    clap_mangen::generate_to(command, &args.dir)?;
    Ok(ExitCode::SUCCESS)
}
