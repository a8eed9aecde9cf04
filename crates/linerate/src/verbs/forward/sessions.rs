//! `linerate forward sessions`: what is forwarded.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use linerate_forward::config::write_duration;
use linerate_forward::table::session::{Selection, Session, Sort};

use super::arguments::Sessions;
use super::columns::columns;
use super::status;
use crate::cli::json::{self, Schema};
use crate::cli::progress::scaled;
use crate::cli::stdio;

/// Prints them.
pub(super) fn run(arguments: &Sessions) -> Result<ExitCode> {
    let instance = arguments.query.instance.open()?;
    let limit = if arguments.limit == 0 { usize::MAX } else { arguments.limit };
    let mut selection = Selection::new(arguments.filter.filter(), arguments.sort, limit);
    let rated = matches!(arguments.sort, Sort::PacketRate | Sort::ByteRate);
    let mut rates = rated.then(|| instance.rates());
    if let Some(rates) = &mut rates {
        instance.sessions(Some(rates), drop)?;
        std::thread::sleep(arguments.interval);
    }
    instance.sessions(rates.as_mut(), |session| selection.add(session))?;
    let accepted = selection.accepted();
    let sessions = selection.into_sessions();
    if arguments.query.json {
        for session in &sessions {
            json::print(Schema::ForwardSession, session)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    stdio::println(text(&sessions, rated))?;
    let kept = status::rules(&instance.snapshot()?.rules);
    if !kept.is_empty() {
        stdio::println(format!("\n{kept}"))?;
    }
    if accepted > sessions.len() as u64 {
        stdio::eprintln(format_args!(
            "linerate: {} of {accepted} sessions; --limit 0 shows all",
            sessions.len()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for each, below the names of the columns. What was not measured is left out.
pub(super) fn text(sessions: &[Session], rated: bool) -> String {
    let row = |session: &Session| {
        let rate = session.rate.filter(|_| rated);
        let rate = rate.map_or_else(String::new, |rate| {
            format!("{}, {}", scaled(rate.packets, "pps"), scaled(rate.bytes * 8.0, "b/s"))
        });
        [
            session.tuple.to_string(),
            session.ingress.to_string(),
            session.egress.to_string(),
            match &session.reason {
                Some(reason) => format!("{} ({reason})", session.datapath),
                None => session.datapath.to_string(),
            },
            session.state.to_string(),
            session.packets.to_string(),
            session.bytes.to_string(),
            rate,
            whole_seconds(session.age),
            whole_seconds(session.idle),
            notes(session),
        ]
    };
    let names = [
        "session", "in", "out", "datapath", "state", "packets", "bytes", "rate", "age", "idle",
        "changes",
    ];
    let numbers = [false, false, false, false, false, true, true, true, true, true, false];
    columns(names, numbers, sessions.iter().map(row))
}

fn whole_seconds(time: Duration) -> String {
    write_duration(Duration::from_secs(time.as_secs()))
}

/// What is matched beside addresses, and what is changed.
fn notes(session: &Session) -> String {
    let mut text = String::new();
    let mut note = |what: std::fmt::Arguments<'_>| {
        let space = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{space}{what}");
    };
    if let Some(nat) = &session.nat {
        if let Some(source) = nat.source {
            note(format_args!("snat={source}"));
        }
        if let Some(destination) = nat.destination {
            note(format_args!("dnat={destination}"));
        }
    }
    for (name, tags) in [("vlan", &session.vlan), ("out-vlan", &session.out_vlan)] {
        if !tags.is_empty() {
            let tags: Vec<_> = tags.iter().map(ToString::to_string).collect();
            note(format_args!("{name}={}", tags.join(".")));
        }
    }
    match (session.dscp, session.out_dscp) {
        (0, 0) => {}
        (from, to) if from == to => note(format_args!("dscp={from}")),
        (from, to) => note(format_args!("dscp={from}>{to}")),
    }
    text
}
