//! `--flows`: flow records beside or instead of packets.

use anyhow::Result;
use linerate_capture::engine::Metering;
use linerate_capture::privilege;
use linerate_flow::export::{Exporter, InterfaceName};
use linerate_flow::meter::MeterOptions;
use linerate_flow::outputs::OutputOptions;
use linerate_forward::config;

use super::arguments::Arguments;
use crate::cli::stdio;

/// Starts the exporter of flow records, if `--flows` is given.
///
/// # Errors
///
/// As [`Exporter::start`].
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
        max_age: arguments.flow_file_time,
        sealed: None,
    };
    let prepare_thread = privilege::keep_file_access;
    let exporter = Exporter::start(&options, interfaces, sampling_probability, prepare_thread)?;
    if arguments.read.is_some() {
        exporter.set_blocking();
    }
    if exporter.statistics().output.files.interruptions > 0 && !arguments.quiet {
        stdio::eprintln(format_args!(
            "linerate: an earlier capture with --flows was interrupted: records of at most its last {} are missing",
            config::write_duration(arguments.flow_file_time)
        ));
    }
    Ok(Some(Metering {
        exporter,
        options: MeterOptions {
            max_flows: arguments.max_flows,
            active_timeout: arguments.active_timeout,
            idle_timeout: arguments.idle_timeout,
        },
    }))
}
