//! `elderlock members`: the members of a cluster.

use crate::CommandResult;
use crate::control_escaper::to_json;
use crate::status::{MemberAddress, joins};
use clap::Args;
use elderlock::{Status, StatusReport};
use serde_json::json;
use serde_json::ser::PrettyFormatter;
use std::process::ExitCode;

/// The member to ask. The exit code is 0 if the member answered and is in a view. It is 1 if the
/// member joins and is in no view yet, and 2 if it was not reached.
#[derive(Args)]
pub(crate) struct MembersArgs {
    #[command(flatten)]
    address: MemberAddress,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: MembersArgs) -> CommandResult {
    let status = args.address.ask().await?;
    if args.json {
        let members = StatusReport::new(&status).view.map(|view| view.members);
        let list = json!({ "version": 1, "members": members.unwrap_or_default() });
        println!("{}", to_json(&list, PrettyFormatter::new())?);
    } else {
        print!("{}", lines(&status));
    }
    if status.view.is_none() {
        eprintln!("elderlock: {}", joins(&status.me.addr.to_string()));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for each member, oldest first.
pub(crate) fn lines(status: &Status) -> String {
    let mut text = String::new();
    let Some(view) = &status.view else { return text };
    let names = view.members.iter().map(|member| member.info.name.as_str().len());
    let width = names.max().unwrap_or(0);
    for member in &view.members {
        let process = member.info.process;
        let notes = [
            (status.elder == Some(process), "elder"),
            (view.has_vote(process), "council"),
            (member.ghost, "ghost"),
            (member.learner, "learner"),
            (status.suspected.contains(&process), "suspected"),
        ];
        let notes: Vec<&str> =
            notes.into_iter().filter(|(is_so, _)| *is_so).map(|(_, note)| note).collect();
        let line = format!(
            "{process}  {:<width$}  {:<21}  wire {}  since {}  {}",
            member.info.name,
            member.info.addr,
            member.info.versions,
            member.joined,
            notes.join(", ")
        );
        text += &format!("{}\n", line.trim_end());
    }
    text
}
