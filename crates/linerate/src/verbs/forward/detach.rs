//! `linerate forward detach`: takes everything away.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use linerate_forward::Error;
use linerate_forward::runtime::daemon;
use linerate_forward::runtime::pins::{BPFFS, Lock, Namespace, Pins, instance_name};
use linerate_net::text::list;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::arguments::Detach;
use crate::cli::json::{self, Schema};

/// Time that a running daemon gets to detach by itself: it waits for nothing but the kernel.
const DETACH_TIMEOUT: Duration = Duration::from_secs(30);

/// How often to try the lock meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Detaches the selected instances and prints their names.
pub(super) fn run(arguments: &Detach) -> Result<ExitCode> {
    let names = match &arguments.query.instance.instance {
        Some(name) => vec![name.clone()],
        None if arguments.all => of_this_namespace()?,
        None => vec![instance_name()?],
    };
    let mut detached = Vec::new();
    for name in names {
        let pins = Pins::of(&name);
        // Somebody who was killed while pinning has left a directory without a record.
        let directory = pins.directory();
        let there = directory
            .try_exists()
            .with_context(|| format!("cannot check for {}; run as root", directory.display()))?;
        if there {
            daemon::detach(&pins, lock(&pins)?).with_context(|| format!("cannot detach {name}"))?;
            detached.push(name);
        } else {
            Pins::check_visible(BPFFS.as_ref())?;
        }
    }
    let text = || match detached.is_empty() {
        true => "nothing is attached".to_owned(),
        false => format!("detached {}", list(&detached)),
    };
    json::print_or(
        arguments.query.json,
        Schema::ForwardDetach,
        &json!({ "detached": detached }),
        text,
    )
}

fn of_this_namespace() -> Result<Vec<String>> {
    Pins::check_visible(BPFFS.as_ref())?;
    let here = Namespace::current()?;
    let is_here =
        |name: &String| Pins::of(name).state().is_ok_and(|state| state.namespace.is(here));
    Ok(Pins::instances(BPFFS.as_ref())?.into_iter().filter(is_here).collect())
}

/// The right to take an instance away, of a daemon that runs too: it is told to, and then to end.
fn lock(pins: &Pins) -> Result<Lock> {
    let mut told = false;
    let end = Instant::now() + DETACH_TIMEOUT;
    loop {
        match pins.lock() {
            Err(Error::Running { process, .. }) if Instant::now() < end => {
                // None: somebody who is about to say that he has it, or to take it away, too.
                if let Some(daemon) = Pid::from_raw(process.cast_signed()).filter(|_| !told) {
                    kill_process(daemon, Signal::USR2)
                        .with_context(|| format!("cannot tell process {process} to detach"))?;
                    told = true;
                }
                std::thread::sleep(POLL_INTERVAL);
            }
            Err(error @ Error::Running { .. }) if told => {
                bail!(
                    "{error}; it does not answer: it was told to detach {} s ago. `kill -KILL` ends it, \
                     and this command then detaches",
                    DETACH_TIMEOUT.as_secs()
                )
            }
            result => return Ok(result?),
        }
    }
}
