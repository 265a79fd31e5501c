//! Files that are generated from the definition of the command line: completions and man pages.

use crate::{CommandResult, keys, lock, node};
use clap::{Arg, Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::Write as _;
use std::path::{Path, PathBuf};
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
    /// The directory. It is created if it does not exist.
    dir: PathBuf,
}

pub(crate) fn completions(args: CompletionsArgs, mut command: Command) -> CommandResult {
    // The text is generated in memory first: the generator panics if its writer fails, as a closed
    // pipe does.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "elderlock", &mut text);
    std::io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(args: ManArgs, command: Command) -> CommandResult {
    std::fs::create_dir_all(&args.dir)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_pages(command, &args.dir)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of the command, and those of its subcommands.
fn write_pages(mut command: Command, dir: &Path) -> std::io::Result<()> {
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_pages(subcommand.clone(), dir)?;
    }
    let variables = environment(&command);
    let usage = command.render_usage().to_string();
    let man = Man::new(command).source(concat!("elderlock ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render(&mut page)?;
    let page = with_synopsis(&String::from_utf8_lossy(&page), &usage) + &variables;
    std::fs::write(dir.join(man.get_filename()), page)
}

/// The page with the usage that `--help` prints. The generator leaves out the values of flags and
/// the two dashes before another command.
fn with_synopsis(page: &str, usage: &str) -> String {
    let usage = usage.trim_start_matches("Usage: ").replace('\\', "\\e").replace('-', "\\-");
    let mut is_synopsis = false;
    let mut text = String::new();
    for line in page.lines() {
        text += if std::mem::replace(&mut is_synopsis, line == ".SH SYNOPSIS") {
            usage.trim_end()
        } else {
            line
        };
        text.push('\n');
    }
    text
}

/// The section about the variables of a command, which the generator of the pages leaves out. Empty
/// for a command without variables.
fn environment(command: &Command) -> String {
    let of_flags = command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(of_flag);
    let mut entries: Vec<(String, String)> = of_flags.collect();
    let mut add = |name: &str, text: &str| entries.push((name.to_owned(), text.to_owned()));
    if command.get_arguments().any(|arg| arg.get_env().is_some() && arg.get_id() == "key_file") {
        let text = "The keys themselves, separated by commas. --key-file wins over it.";
        add(keys::VARIABLE, text);
    }
    match command.get_name() {
        "node" => add(
            node::HTTP_TOKEN,
            "With --http: the token that requests need. --http-token-file wins over it.",
        ),
        "lock" => {
            add(lock::TOKEN, "Set for the command: the fencing token of the lock.");
            add(lock::LINEAGE, "Set for the command: the lineage of the token, in hexadecimal.");
            add(
                lock::OWNER,
                "Set for the command: the owner of the lock, as `why` prints it. A \
                 lock that the command takes has the same owner.",
            );
        }
        _ => {}
    }
    if entries.is_empty() {
        return String::new();
    }
    let lines = entries.iter().map(|(name, text)| {
        // A bare hyphen may be printed as another letter.
        format!(".TP\n\\fB{name}\\fR\n{}\n", text.replace('-', "\\-"))
    });
    format!(".SH ENVIRONMENT\n{}", lines.collect::<String>())
}

/// The variable of a flag, and its description.
fn of_flag(arg: &Arg) -> Option<(String, String)> {
    let name = arg.get_env()?.to_str()?.to_owned();
    let flag = arg.get_long()?;
    Some((name, format!("The same as --{flag}, which wins over it.")))
}
