//! `--flows`: flow records beside or instead of packets.

use anyhow::Result;
use linerate_capture::engine::Metering;
use linerate_capture::privilege;
use linerate_capture::source::{OpenInterface, SourceKind};
use linerate_flow::export::{InterfaceName, RecordWriter};
use linerate_flow::file::Retention;
use linerate_flow::meter::MeterOptions;
use linerate_flow::outputs::OutputOptions;
use linerate_flow::schema::Group;
use linerate_net::ethtool;
use linerate_ring::packet::Mode;

use super::arguments::Arguments;
use crate::cli::stdio;

/// The warning that the two directions of a flow may have a record each, if they may reach two readers.
pub(super) fn split_flow_warning(opened: &OpenInterface, fanout: &Mode) -> Option<String> {
    if opened.sources.len() < 2 {
        return None;
    }
    let name = &opened.label;
    let why = match (opened.selection.kind, fanout) {
        (SourceKind::Packet, Mode::Hash) => return None,
        (SourceKind::Packet, mode) => {
            format!("--fanout {mode} does not keep the two directions of a flow together")
        }
        _ => match is_symmetric(opened) {
            Some(true) => return None,
            Some(false) => format!(
                "the receive hash of {name} is not symmetric (`linerate doctor capture -i {name}` says how to change \
                 it)"
            ),
            None => format!("the driver of {name} does not show its receive hash"),
        },
    };
    Some(format!(
        "{why}: if the two directions of a flow reach two readers, each direction has its own flow record; one reader \
         (without --threads) or --source packet --fanout hash keeps them in one record"
    ))
}

/// Whether the card gives both directions of a flow to one receive queue; `None` if the driver does not show it.
fn is_symmetric(opened: &OpenInterface) -> Option<bool> {
    let index = opened.interface.index;
    let ask = || ethtool::rss(index).ok().flatten();
    let found = match &opened.namespace {
        Some(namespace) => namespace.run(ask).ok().flatten(),
        None => ask(),
    };
    found?.is_symmetric()
}

/// Starts the record writer of flow records, if `--flows` is given.
///
/// # Errors
/// As [`RecordWriter::start`].
pub(super) fn metering(
    arguments: &Arguments,
    interfaces: Vec<InterfaceName>,
    sampling_probability: f64,
) -> Result<Option<Metering>> {
    if arguments.flows.is_empty() {
        return Ok(None);
    }
    let options = OutputOptions {
        destinations: arguments.flows.clone(),
        sensor: arguments.sensor.clone(),
        group: arguments.group,
        max_age: arguments.flow_file_time,
        retention: Retention { keep: arguments.flows_keep, keep_free: arguments.flows_keep_free },
        groups: match arguments.flow_fields.unwrap_or_default() {
            groups if arguments.finds_processes() => groups.with(Group::Process),
            groups => groups,
        },
        sealed: None,
    };
    let prepare_thread = privilege::keep_file_access;
    let warn: fn(&str) = if arguments.quiet { |_| () } else { |text| stdio::warn(text) };
    let record_writer =
        RecordWriter::start(&options, interfaces, sampling_probability, prepare_thread, warn)?;
    if arguments.read.is_some() {
        record_writer.set_blocking();
    }
    if record_writer.statistics().output.files.interruptions > 0 && !arguments.quiet {
        stdio::warn(
            "an earlier capture with --flows was interrupted: its flows that had not ended are missing, and its records \
             that were in no complete file",
        );
    }
    Ok(Some(Metering {
        record_writer,
        options: MeterOptions {
            max_flows: arguments.max_flows,
            active_timeout: arguments.active_timeout,
            idle_timeout: arguments.idle_timeout,
            groups: options.groups,
        },
    }))
}
