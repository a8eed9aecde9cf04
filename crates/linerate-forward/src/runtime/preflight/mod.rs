//! The preflight: whether each interface can be a port, and what must be fixed first.
//!
//! A redirected frame that an interface cannot send is dropped silently, so the preflight checks this first.
//! [`prepare`] checks the interfaces before programs are attached, fixes what can be undone, and refuses the
//! rest with the reason and a command. [`verify_transmit`] runs after that, for drivers that can send redirected frames
//! only with an XDP program on the interface: it queries the driver again, and sends a few frames to verify
//! that they leave. [`restore`] undoes the fixes.
//!
//! All checks run in the calling thread's network namespace. A veth's peer is checked and changed in any
//! namespace that a name or a process gives access to.

mod host;
mod offload;
mod port;
mod probe;
mod report;
mod veth;

use std::io;

pub use report::{Check, Finding, Fix, Outcome, PeerProgram, Report};

use linerate_net::namespace::Namespace;
use linerate_net::{NoInterface, ethtool, link, privilege};
use report::refused;

use crate::{Error, Result};

include!(concat!(env!("OUT_DIR"), "/preflight.rs"));

/// Options of the preflight.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fix what can be undone; otherwise refuse it like the rest. Default: true.
    pub fix: bool,
    /// TC may forward. Default: true.
    pub tc: bool,
    /// [`verify_transmit`] will send test frames, so that nothing is refused that they show. Default: false.
    pub probe: bool,
    /// The programs accept frames in several buffers, so that one buffer does not limit the MTU where the driver
    /// can do that. Default: false.
    pub multi_buffer: bool,
    /// Indices of the interfaces that already have our program, from a former daemon.
    pub adopted: Vec<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self { fix: true, tc: true, probe: false, multi_buffer: false, adopted: Vec::new() }
    }
}

/// Checks these interfaces before programs are attached to them.
///
/// # Errors
/// When the kernel does not answer. Problems of an interface are in the report.
pub fn prepare(names: &[String], options: &Options) -> Result<Report> {
    let mut report = Report::default();
    let links = link::all().map_err(failed("list the interfaces"))?;
    host::examine(names, &mut report);
    for name in names {
        let Some(link) = links.iter().find(|link| link.name == *name) else {
            let known = links.iter().map(|link| link.name.clone()).collect();
            let missing = NoInterface { name: name.clone(), known };
            report.add(Some(name), Check::Kind, refused(missing.reason(), missing.remedy()));
            continue;
        };
        let action = format!("examine interface {name}");
        port::examine(link, &links, names, options, &mut report).map_err(failed(&action))?;
    }
    Ok(report)
}

/// Checks an interface again after programs were attached; `probe` sends eight frames per CPU out of it. They
/// have an EtherType for local experiments (0x88B5, IEEE 802) and an address that no bridge forwards to
/// (01-80-C2-00-00-0E), so that the next device drops them. A card may take seconds to count them:
/// `meanwhile` is called at least five times a second.
///
/// # Errors
/// As [`prepare`], and what `meanwhile` returns.
pub fn verify_transmit(
    name: &str,
    probe: bool,
    meanwhile: &mut dyn FnMut() -> Result<()>,
) -> Result<Report> {
    let mut report = Report::default();
    let links = link::all().map_err(failed("list the interfaces"))?;
    if let Some(link) = links.iter().find(|link| link.name == name) {
        let action = format!("ask what interface {} can", link.name);
        let xdp = ethtool::xdp_features(link.index).map_err(failed(&action))?;
        let outcome = match xdp {
            Some(xdp) if !xdp.can_transmit() => refused(
                "its driver does not send redirected frames, also with a program on it",
                "take another interface, or a newer kernel",
            ),
            _ if probe => probe::send(link, meanwhile)?,
            _ => Outcome::Fine,
        };
        report.add(Some(&link.name), Check::Transmit, outcome);
    }
    Ok(report)
}

/// Undoes the fixes. Programs on peers end with their links. Interfaces and namespaces that are gone are
/// skipped; other failures are returned, with the command that undoes them there.
pub fn restore(fixes: &[Fix]) -> Vec<Error> {
    let undo = |Fix::Offload { interface, index, namespace: inode, offload }: &Fix| {
        let reason = match Namespace::by_inode(*inode) {
            // Whoever sees all processes knows that it is gone.
            None if !privilege::lacks("CAP_SYS_PTRACE") => return Ok(()),
            None => "its network namespace cannot be seen from here".to_owned(),
            Some(namespace) => {
                let set = namespace.run(|| match link::by_index(*index)? {
                    // The index may have been reused.
                    Some(link) if link.name == *interface => {
                        ethtool::set_feature(*index, offload, true)
                    }
                    _ => Ok(()),
                });
                match set.and_then(|set| set) {
                    Ok(()) => return Ok(()),
                    Err(error) => error.to_string(),
                }
            }
        };
        let there = format!("{reason}; in net:[{inode}]: `ethtool -K {interface} {offload} on`");
        let action = format!("turn {offload} of {interface} on again");
        Err(Error::system(action, io::Error::other(there)))
    };
    fixes.iter().filter_map(|fix| undo(fix).err()).collect()
}

fn failed<E: Into<io::Error>>(action: &str) -> impl FnOnce(E) -> Error {
    let action = action.to_owned();
    move |source| Error::system(action, source.into())
}
