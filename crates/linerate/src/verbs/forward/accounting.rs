//! `linerate forward accounting`: packets and bytes of connections.

use std::process::ExitCode;

use anyhow::Result;
use linerate_forward::table::accounting::Connection;

use super::arguments::Accounting;
use super::columns::columns;
use crate::cli::json::{self, Schema};

/// Prints them.
pub(super) fn run(arguments: &Accounting) -> Result<ExitCode> {
    let limit = if arguments.limit == 0 { usize::MAX } else { arguments.limit };
    let connections = arguments.query.instance.open()?.connections(limit);
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
    let text = || columns(names, [false, true, true, true, true], connections.iter().map(row));
    json::print_list_or(arguments.query.json, Schema::ForwardAccounting, &connections, text)
}
