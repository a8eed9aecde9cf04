//! [`select`]: the source of a capture, and why.

use linerate_net::link::Link;
use linerate_net::privilege::{XDP_CAPABILITIES, lacks};
use linerate_ring::packet::DirectionFilter;

use super::kind::SourceKind;
use super::options::SourceOptions;
use crate::filter::ETHERNET;
use crate::interface;
use crate::{Error, Result};

/// The source that was selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Its kind.
    pub kind: SourceKind,
    /// Why this one, as a clause for the user.
    pub reason: String,
    /// With the user's consent ([`SourceOptions::take_over`]) it would be `xdp`.
    pub awaits_consent: bool,
}

impl Selection {
    pub(super) fn new(kind: SourceKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), awaits_consent: false }
    }
}

/// Selects a source. Nothing is attached; only `auto` probes what XDP can do.
///
/// `auto` leaves each packet to the host: it takes `packet` or `tee`. Only with [`SourceOptions::take_over`] it takes
/// `xdp`, where that works.
///
/// # Errors
///
/// [`Error::Direction`] for outgoing frames from a source that sees only incoming ones.
pub fn select(interface: &Link, options: &SourceOptions) -> Result<Selection> {
    match options.source {
        Some(source) if source != SourceKind::Packet => {
            if options.split {
                return Err(Error::Split { kind: source });
            }
            if source == SourceKind::Drops && options.traffic.is_some() {
                return Err(Error::NoDirection);
            }
            if matches!(options.traffic, Some(DirectionFilter::Out | DirectionFilter::InOut)) {
                return Err(Error::Direction { interface: interface.name.clone(), kind: source });
            }
            Ok(Selection::new(source, "requested"))
        }
        Some(source) => Ok(Selection::new(source, "requested")),
        None => automatic(interface, options),
    }
}

fn automatic(interface: &Link, options: &SourceOptions) -> Result<Selection> {
    if let Some(reason) = why_not_xdp(interface, options)? {
        return Ok(Selection::new(SourceKind::Packet, reason));
    }
    if options.take_over {
        return Ok(Selection::new(SourceKind::Xdp, "with consent"));
    }
    let selection = match options.traffic {
        Some(_) => {
            let reason = "only incoming frames are wanted, and the driver has XDP";
            Selection::new(SourceKind::Tee, reason)
        }
        None => Selection::new(SourceKind::Packet, BOTH_DIRECTIONS),
    };
    Ok(Selection { awaits_consent: true, ..selection })
}

/// Why packet sockets.
const BOTH_DIRECTIONS: &str = "both directions, and the host keeps its frames";

/// Why neither `xdp` nor `tee` can do what is wanted.
fn why_not_xdp(interface: &Link, options: &SourceOptions) -> Result<Option<String>> {
    if options.split {
        let reason = "splitting needs the kernel's metadata of each super-packet, which only packet sockets have";
        return Ok(Some(reason.into()));
    }
    if options.threads > 1 && interface::rx_queues(interface)? < 2 {
        return Ok(Some("several readers share one queue only through fanout".into()));
    }
    if matches!(options.traffic, Some(DirectionFilter::Out | DirectionFilter::InOut)) {
        return Ok(Some("only packet sockets see outgoing frames".into()));
    }
    if interface::linktype(interface)? != ETHERNET {
        return Ok(Some("XDP needs Ethernet frames".into()));
    }
    // Who may capture by packet sockets alone, as the group of `linerate-capture`, lacks nothing for that.
    if !options.take_over && options.traffic.is_none() && lacks(XDP_CAPABILITIES) {
        return Ok(Some(BOTH_DIRECTIONS.into()));
    }
    Ok(linerate_ring::xdp::probe(&interface.name).why_not_native())
}

#[cfg(test)]
mod tests;
