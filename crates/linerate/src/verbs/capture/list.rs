//! `-D`, and the names that `-i` takes.

use std::process::ExitCode;

use anyhow::{Result, bail};
use linerate_capture::filter::{LINUX_SLL, LINUX_SLL2};
use linerate_capture::interface::{self, ANY};
use linerate_capture::link_type;
use linerate_capture::source::{SourceOptions, select};
use linerate_net::Connection;
use linerate_net::link::{self, Link};
use serde_json::json;

use crate::cli::json::{self, Schema};
use crate::cli::stdio;

/// Lists the interfaces, numbered from 1, with the source that `auto` would select on each.
pub(super) fn run(as_json: bool) -> Result<ExitCode> {
    let connection = Connection::open()?;
    let interfaces = connection.links()?;
    let refused = linerate_ring::packet::probe().err().map(linerate_capture::Error::from);
    let none = |error: &linerate_capture::Error| ("none".to_owned(), error.to_string());
    let source = |interface: &Link| match &refused {
        Some(error) => none(error),
        None => match select(interface, &SourceOptions::default()) {
            Ok(selection) => (selection.kind.to_string(), selection.reason),
            Err(error) => none(&error),
        },
    };
    if as_json {
        let all = connection.addresses()?;
        let list: Vec<_> = interfaces
            .iter()
            .map(|one| {
                let (source, reason) = source(one);
                let own = all.iter().filter(|found| found.index == one.index);
                let addresses: Vec<_> = own.map(|found| found.address.to_string()).collect();
                let kind = Some(&one.kind).filter(|kind| !kind.is_empty());
                json!({
                    "name": one.name, "index": one.index, "up": one.is_up(), "running": one.is_running(),
                    "kind": kind, "mtu": one.mtu, "addresses": addresses,
                    "source": source, "reason": reason, "xdp_program": interface::xdp_program(one).map(|program| json!({
                        "id": program.id, "name": program.name, "mode": program.mode.to_string(),
                    })),
                })
            })
            .collect();
        json::print(Schema::CaptureInterfaces, &json!({ "interfaces": list }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for (number, one) in interfaces.iter().enumerate() {
        let state = match (one.is_up(), one.is_running()) {
            (true, true) => "up, running",
            (true, false) => "up, no carrier",
            (false, _) => "down",
        };
        let kind = if one.kind.is_empty() { String::new() } else { format!(", {}", one.kind) };
        let (source, reason) = source(one);
        let number = number + 1;
        let traced = interface::xdp_program(one).map_or_else(String::new, |program| {
            format!("; trace: XDP program \"{}\" (id {})", program.name, program.id)
        });
        stdio::println(format_args!(
            "{number}.{} [{state}{kind}] {source}: {reason}{traced}",
            one.name
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the link types of the interfaces meant by `given`, as tcpdump does.
pub(super) fn link_types(given: &[String], as_json: bool) -> Result<ExitCode> {
    let any = given.iter().any(|name| name == ANY);
    let mut list = Vec::new();
    for name in resolve(given, any)? {
        let linktypes = match any {
            true => &[LINUX_SLL, LINUX_SLL2],
            false => interface::linktypes(&interface::by_name(&name)?)?,
        };
        let named = linktypes.iter().map(|number| (number, link_type::name(*number)));
        if as_json {
            let one = |(number, (word, what))| json!({ "number": number, "name": word, "description": what });
            let types: Vec<_> = named.map(one).collect();
            list.push(json!({ "name": name, "link_types": types }));
        } else {
            let lines: String =
                named.map(|(_, (word, what))| format!("\n  {word} ({what})")).collect();
            stdio::println(format_args!(
                "Data link types for {name} (use option -y to set):{lines}"
            ))?;
        }
    }
    if as_json {
        json::print(Schema::CaptureLinkTypes, &json!({ "interfaces": list }))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is missing for [`resolve`] to find interfaces that exist; `None` if they do.
pub(super) fn missing(given: &[String], at_once: bool) -> Result<Option<String>> {
    let all = link::all()?;
    let Ok(names) = resolve(given, at_once) else {
        return Ok(Some("an interface that is up".to_owned()));
    };
    let exists = |name: &String| name == ANY || all.iter().any(|one| one.name == *name);
    let missing = names.into_iter().find(|name| !exists(name));
    Ok(missing.map(|name| format!("the interface {name}, which does not exist")))
}

/// The interfaces meant by `given`: names, or numbers as `-D` prints them; the first one that is up
/// and not the loopback interface if none is given, all that are up for [`ANY`]. With `at_once` both cases are all
/// interfaces at once.
pub(super) fn resolve(given: &[String], at_once: bool) -> Result<Vec<String>> {
    if at_once && (given.is_empty() || given.iter().any(|name| name == ANY)) {
        return Ok(vec![ANY.to_owned()]);
    }
    let all = link::all()?;
    if given.is_empty() {
        return match all.iter().find(|one| one.is_up() && one.is_running() && !one.is_loopback()) {
            Some(first) => Ok(vec![first.name.clone()]),
            None => bail!("no interface is up but the loopback interface; choose one with -i"),
        };
    }
    if given.iter().any(|name| name == ANY) {
        let usable = all.iter().filter(|one| one.is_up() && interface::linktype(one).is_ok());
        let names: Vec<_> = usable.map(|one| one.name.clone()).collect();
        if names.is_empty() {
            bail!(
                "no interface is up whose link layer is known; `ip link set NAME up` brings one up"
            );
        }
        return Ok(names);
    }
    let by_number = |text: &str| {
        let number: usize = text.parse().ok()?;
        all.get(number.checked_sub(1)?).map(|one| one.name.clone())
    };
    let resolve = |text: &String| match all.iter().any(|one| one.name == *text) {
        true => text.clone(),
        false => by_number(text).unwrap_or_else(|| text.clone()),
    };
    Ok(given.iter().map(resolve).collect())
}
