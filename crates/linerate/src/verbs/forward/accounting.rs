//! `linerate forward accounting`: packets and bytes of connections.

use std::process::ExitCode;

use anyhow::Result;
use linerate_forward::table::accounting::Connection;

use super::arguments::Accounting;
use super::columns::columns;
use crate::cli::json::{self, Schema};
use crate::cli::stdio;

/// Prints them.
pub(super) fn run(arguments: &Accounting) -> Result<ExitCode> {
    let limit = if arguments.limit == 0 { usize::MAX } else { arguments.limit };
    let connections = arguments.instance.open()?.connections(limit);
    if arguments.json {
        for connection in &connections {
            json::print(Schema::ForwardAccounting, connection)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let row = |one: &Connection| {
        let Connection { tuple, original, reply, .. } = one;
        [
            tuple.to_string(),
            original.packets.to_string(),
            original.bytes.to_string(),
            reply.packets.to_string(),
            reply.bytes.to_string(),
        ]
    };
    let names = ["connection", "packets", "bytes", "reply packets", "reply bytes"];
    stdio::println(columns(names, [false, true, true, true, true], connections.iter().map(row)))?;
    Ok(ExitCode::SUCCESS)
}
