//! `--flows`: flow records beside or instead of packets.

use std::time::Duration;

use anyhow::{Context, Result};
use linerate_capture::engine::Metering;
use linerate_capture::privilege;
use linerate_flow::export::{Exporter, InterfaceName};
use linerate_flow::file::FilesOptions;
use linerate_flow::meter::MeterOptions;

use super::arguments::Arguments;
use crate::cli::stdio;

/// The most records in a file.
const MAX_RECORDS: u64 = 1 << 22;

/// Starts what writes flow records, if that is asked for.
///
/// # Errors
///
/// As [`Exporter::start`].
pub(super) fn metering(
    arguments: &Arguments,
    interfaces: Vec<InterfaceName>,
    sampling_probability: f64,
) -> Result<Option<Metering>> {
    let Some(folder) = &arguments.flows else { return Ok(None) };
    let sensor = match &arguments.sensor {
        Some(name) => name.clone(),
        None => {
            let name = nix::unistd::gethostname().context("cannot ask for the host's name")?;
            name.to_string_lossy().into_owned()
        }
    };
    let options = FilesOptions {
        folder: folder.clone(),
        sensor,
        max_age: Duration::from_secs(arguments.flow_file_seconds),
        max_records: MAX_RECORDS,
    };
    let exporter = Exporter::start(options, interfaces, sampling_probability, privilege::drop_all)?;
    if exporter.statistics().files.interruptions > 0 && !arguments.quiet {
        stdio::eprintln(format_args!(
            "linerate: an earlier capture with --flows was interrupted: the records of its last {} seconds or less are \
             missing",
            arguments.flow_file_seconds
        ));
    }
    Ok(Some(Metering {
        exporter,
        options: MeterOptions {
            max_flows: arguments.max_flows,
            active_timeout: Duration::from_secs(arguments.active_timeout),
            idle_timeout: Duration::from_secs(arguments.idle_timeout),
        },
    }))
}
