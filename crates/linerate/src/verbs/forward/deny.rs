//! `linerate forward block`, `unblock` and `blocked`: what is dropped at the driver.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use linerate_forward::config::write_duration;
use linerate_forward::prefix::Prefix;
use linerate_forward::table::deny::{BlockOutcome as Outcome, Entry, Target};
use linerate_net::addresses;
use serde_json::json;

use super::arguments::{Block, Blocked, Unblock};
use super::columns::columns;
use crate::cli::json::{self, Schema};
use crate::cli::stdio::plural;

/// Blocks.
pub(super) fn block(arguments: &Block) -> Result<ExitCode> {
    let target = arguments.target;
    let instance = arguments.query.instance.open()?;
    if !arguments.force
        && let Target::Prefix(prefix) = target
        && let Some(reason) = cuts_off(prefix)?
    {
        bail!("{target} is not blocked: {reason}; --force blocks it nevertheless");
    }
    let outcome = instance.deny_list()?.block(target, arguments.duration)?;
    let (word, part, within) = match &outcome {
        Outcome::Added(part) => ("blocked", part.as_slice(), None),
        Outcome::Changed(part) => ("changed", part.as_slice(), None),
        Outcome::Within(within) => ("within", &[][..], Some(within)),
    };
    let object = json!({ "target": target, "outcome": word, "replaced": part, "within": within });
    json::print_or(arguments.query.json, Schema::ForwardBlock, &object, || {
        let mut text = match (within, arguments.duration) {
            (Some(within), _) => format!("{target} is blocked by {within}, and for as long"),
            (None, Some(time)) => format!("{target} is blocked for {}", write_duration(time)),
            (None, None) => format!("{target} is blocked"),
        };
        part.iter().for_each(|one| text += &format!("\n{one} is part of it"));
        text
    })
}

/// Why nobody could reach this host any more, or not from where the command is given.
fn cuts_off(prefix: Prefix) -> Result<Option<String>> {
    let client = std::env::var("SSH_CONNECTION").ok();
    let client = client.and_then(|text| text.split(' ').next()?.parse().ok());
    if let Some(client) = client.filter(|client| prefix.contains(*client)) {
        return Ok(Some(format!("it has {client}, the client of this SSH session")));
    }
    let own = addresses().context("cannot ask for the addresses of this host")?;
    let own = own.iter().map(|one| one.address).find(|address| prefix.contains(*address));
    Ok(own.map(|address| format!("it has {address}, an address of this host")))
}

/// Takes one entry off the list, or all.
pub(super) fn unblock(arguments: &Unblock) -> Result<ExitCode> {
    let mut list = arguments.query.instance.open()?.deny_list()?;
    let unblocked = match arguments.target {
        Some(target) => vec![list.unblock(target)?],
        None => list.unblock_all()?,
    };
    if unblocked.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let line = |Entry { target, dropped, .. }: &Entry| {
        format!("{target} is no longer blocked; {} dropped", plural(*dropped, "packet"))
    };
    let text = || unblocked.iter().map(line).collect::<Vec<_>>().join("\n");
    json::print_list_or(arguments.query.json, Schema::ForwardBlocked, &unblocked, text)
}

/// Prints the list.
pub(super) fn blocked(arguments: &Blocked) -> Result<ExitCode> {
    let list = arguments.query.instance.open()?.deny_list()?.list()?;
    let row = |entry: &Entry| {
        let left = entry.left.map_or_else(
            || "stays".to_owned(),
            |left| write_duration(std::time::Duration::from_secs(left.as_secs())),
        );
        [entry.target.to_string(), entry.dropped.to_string(), left]
    };
    let names = ["target", "dropped", "ends in"];
    let text = || columns(names, [false, true, true], list.iter().map(row));
    json::print_list_or(arguments.query.json, Schema::ForwardBlocked, &list, text)
}
