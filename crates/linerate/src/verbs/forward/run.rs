//! `linerate forward run`: the daemon.

use std::process::ExitCode;
use std::sync::mpsc;

use anyhow::Result;
use linerate_forward::config::{Config, ConfigError};
use linerate_forward::runtime::daemon::Daemon;

use super::arguments::Run;
use super::signals;
use crate::cli;

/// Runs it until a signal or somebody's `detach` ends it.
pub(super) fn run(arguments: &Run) -> Result<ExitCode> {
    let (events, received) = mpsc::channel();
    signals::register(events.clone(), arguments.config.is_some())?;
    // A wrong configuration stays wrong, and the unit does not try it again.
    let config = configure(arguments).map_err(cli::as_usage_error)?;
    let daemon = Daemon::start(config, events)?;
    daemon.run(&received, || configure(arguments))?;
    Ok(ExitCode::SUCCESS)
}

/// The file, if there is one, and what the command line says before it.
fn configure(arguments: &Run) -> Result<Config, ConfigError> {
    let mut config = match &arguments.config {
        Some(file) => Config::read(file)?,
        None => Config::default(),
    };
    if !arguments.interface.is_empty() {
        config.interfaces.clone_from(&arguments.interface);
    }
    if arguments.instance.instance.is_some() {
        config.instance.clone_from(&arguments.instance.instance);
    }
    fn set<T: Copy>(value: &mut T, given: Option<T>) {
        *value = given.unwrap_or(*value);
    }
    set(&mut config.datapath, arguments.datapath);
    set(&mut config.statistics, arguments.statistics);
    set(&mut config.max_sessions, arguments.max_sessions);
    set(&mut config.udp_idle, arguments.udp_idle);
    set(&mut config.tcp_idle, arguments.tcp_idle);
    set(&mut config.lifetime, arguments.lifetime);
    set(&mut config.revalidate, arguments.revalidate);
    set(&mut config.fail_open_after, arguments.fail_open_after);
    set(&mut config.metrics, arguments.metrics);
    set(&mut config.metrics_connections, arguments.metrics_connections);
    set(&mut config.web, arguments.web);
    if !arguments.flows.is_empty() {
        config.flows.clone_from(&arguments.flows);
    }
    if arguments.sensor.is_some() {
        config.sensor.clone_from(&arguments.sensor);
    }
    if arguments.group.is_some() {
        config.group.clone_from(&arguments.group);
    }
    set(&mut config.active_timeout, arguments.active_timeout);
    set(&mut config.flow_file_time, arguments.flow_file_time);
    set(&mut config.flows_keep, arguments.flows_keep);
    if arguments.flows_keep_free.is_some() {
        config.flows_keep_free.clone_from(&arguments.flows_keep_free);
    }
    config.verify_checksums |= arguments.verify_checksums;
    config.persist |= arguments.persist;
    config.fix &= !arguments.no_fix;
    config.probe &= !arguments.no_probe;
    config.check()?;
    Ok(config)
}
