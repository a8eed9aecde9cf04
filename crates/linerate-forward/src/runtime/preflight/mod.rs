//! The preflight: whether each interface can be a port, and what has to be put right first.
//!
//! A redirected frame that an interface cannot send is dropped without a word, so that is found out before
//! any is. [`prepare`] looks at the interfaces before programs are attached, puts right what can be undone,
//! and refuses the rest with the reason and the command to type. [`prove`] comes after the attaching, for
//! drivers that can send redirected frames only with a program of their own on the interface: it asks the
//! driver again, and sends a few frames to see them go. [`restore`] undoes what was put right.
//!
//! Everything is of the network namespace of the calling thread. The far end of a veth is looked at, and
//! changed, wherever it is, if a name or a process leads there.

mod host;
mod offload;
mod port;
mod probe;
mod report;
mod veth;

use std::io;

pub use report::{Check, Finding, Fix, Outcome, Report, Stub};

use linerate_net::namespace::Namespace;
use linerate_net::{ethtool, link};
use report::refused;

use crate::{Error, Result};

include!(concat!(env!("OUT_DIR"), "/preflight.rs"));

/// How the preflight is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// Puts right what can be undone; otherwise that is refused like the rest. True.
    pub fix: bool,
    /// The programs take frames in several buffers, so that the MTU is not bounded by one. False.
    pub multi_buffer: bool,
    /// Indices of the interfaces that have our program on them already, from a daemon before this one.
    pub adopted: Vec<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self { fix: true, multi_buffer: false, adopted: Vec::new() }
    }
}

/// Looks at these interfaces, which programs are to be attached to.
///
/// # Errors
/// When the kernel does not answer. What is wrong with an interface is in the report.
pub fn prepare(names: &[String], options: &Options) -> Result<Report> {
    let mut report = Report::default();
    let links = link::all().map_err(failed("list the interfaces"))?;
    host::examine(names, &mut report);
    for name in names {
        let Some(link) = links.iter().find(|link| link.name == *name) else {
            let there: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
            let remedy = format!("there are {}", there.join(", "));
            report.add(Some(name), Check::Kind, refused("there is no such interface", remedy));
            continue;
        };
        let action = format!("examine interface {name}");
        port::examine(link, &links, names, options, &mut report).map_err(failed(&action))?;
    }
    Ok(report)
}

/// Looks at an interface again, once programs are attached; `probe` sends eight frames a CPU out of
/// it. They have an EtherType for local experiments (0x88B5, IEEE 802) and go to an address that no bridge
/// forwards to (01-80-C2-00-00-0E), so that the next device drops them. A card may take seconds to count them:
/// `meanwhile` is called five times a second or more.
///
/// # Errors
/// As [`prepare`], and what `meanwhile` returns.
pub fn prove(name: &str, probe: bool, meanwhile: &mut dyn FnMut() -> Result<()>) -> Result<Report> {
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

/// Undoes what was put right. Programs on far ends go with their links. Interfaces and namespaces that are
/// gone need nothing; what else fails is returned.
pub fn restore(fixes: &[Fix]) -> Vec<Error> {
    let undo = |Fix::Offload { interface, index, namespace, offload }: &Fix| {
        let Some(namespace) = Namespace::by_inode(*namespace) else { return Ok(()) };
        let set = namespace.run(|| match link::by_index(*index)? {
            // The index may be another's by now.
            Some(link) if link.name == *interface => ethtool::set_feature(*index, offload, true),
            _ => Ok(()),
        });
        set.and_then(|set| set).map_err(failed(&format!("turn {offload} of {interface} on again")))
    };
    fixes.iter().filter_map(|fix| undo(fix).err()).collect()
}

fn failed<E: Into<io::Error>>(action: &str) -> impl FnOnce(E) -> Error {
    let action = action.to_owned();
    move |source| Error::system(action, source.into())
}
