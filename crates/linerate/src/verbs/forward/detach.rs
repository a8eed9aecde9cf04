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

/// The name of an instance, and why its record cannot be read.
type Unread = (String, Error);

/// Detaches the selected instances and prints their names.
pub(super) fn run(arguments: &Detach) -> Result<ExitCode> {
    let (names, unread) = match &arguments.query.instance.instance {
        Some(name) => (vec![name.clone()], Vec::new()),
        None if arguments.all => of_this_namespace()?,
        None => (vec![instance_name()?], Vec::new()),
    };
    let (mut detached, mut failures) = (Vec::new(), Vec::new());
    for name in names {
        match detach(&name) {
            Ok(true) => detached.push(name),
            Ok(false) => {}
            // The others are independent of it.
            Err(error) => failures.push(error),
        }
    }
    if detached.is_empty() && unread.is_empty() && failures.len() == 1 {
        return Err(failures.remove(0));
    }
    let text = || match detached.is_empty() {
        true if unread.is_empty() && failures.is_empty() => "nothing is attached".to_owned(),
        true => "detached nothing".to_owned(),
        false => format!("detached {}", list(&detached)),
    };
    let names: Vec<_> = unread.iter().map(|(name, _)| name).collect();
    let printed = json::print_or(
        arguments.query.json,
        Schema::ForwardDetach,
        &json!({ "detached": detached, "unreadable": names }),
        text,
    )?;
    let mut failures: Vec<_> = failures.iter().map(|error| format!("{error:#}")).collect();
    if !unread.is_empty() {
        let reasons: Vec<_> =
            unread.iter().map(|(name, error)| format!("{name} ({error})")).collect();
        failures.push(format!(
            "of these instances the network namespace is unknown, because their records cannot be read, and they \
             stay: {}. `linerate forward detach --instance NAME` detaches one of them wherever it is",
            list(&reasons)
        ));
    }
    match failures.is_empty() {
        true => Ok(printed),
        false => bail!("{}", failures.join("; ")),
    }
}

/// Takes this instance away; whether it was there.
fn detach(name: &str) -> Result<bool> {
    let pins = Pins::of(name);
    // Somebody who was killed while pinning has left a directory without a record.
    let directory = pins.directory();
    let there = directory
        .try_exists()
        .with_context(|| format!("cannot check for {}; run as root", directory.display()))?;
    if !there {
        Pins::check_visible(BPFFS.as_ref())?;
        return Ok(false);
    }
    daemon::detach(&pins, lock(&pins)?).with_context(|| format!("cannot detach {name}"))?;
    Ok(true)
}

/// The instances of this network namespace, and those that may be, because their records cannot be read.
fn of_this_namespace() -> Result<(Vec<String>, Vec<Unread>)> {
    Pins::check_visible(BPFFS.as_ref())?;
    let here = Namespace::current()?;
    let (mut found, mut unread) = (Vec::new(), Vec::new());
    for name in Pins::instances(BPFFS.as_ref())? {
        match Pins::of(&name).state_if_any() {
            Ok(Some(state)) if state.namespace.is(here) => found.push(name),
            // Of another one, or removed meanwhile.
            Ok(_) => {}
            Err(error) => unread.push((name, error)),
        }
    }
    Ok((found, unread))
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
