//! Which source a capture takes, and why.

use std::fmt;
use std::str::FromStr;

use linerate_ring::packet::Traffic;

use crate::interface::Interface;
use crate::{Error, Result};

/// A way to get at an interface's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// AF_PACKET: sees both directions; the host keeps its traffic.
    Packet,
    /// XDP, through AF_XDP sockets or a BPF ring buffer: the fastest; takes the frames away from the
    /// host.
    Xdp,
    /// XDP and a BPF ring buffer: sees what comes in; the host keeps its traffic.
    Tee,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Packet => "packet",
            Self::Xdp => "xdp",
            Self::Tee => "tee",
        })
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "packet" => Ok(Self::Packet),
            "xdp" => Ok(Self::Xdp),
            "tee" => Ok(Self::Tee),
            _ => Err(format!("unknown source `{text}`: choose one of auto, packet, xdp, tee")),
        }
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish {
    /// The source; `None` leaves it to [`choose`].
    pub source: Option<Kind>,
    /// The direction; `None` if nobody said.
    pub traffic: Option<Traffic>,
    /// The user knows that `xdp` cuts off what uses the interface.
    pub take_over: bool,
    /// More than one reader is wanted.
    pub several_readers: bool,
    /// Super-packets are to be split, which takes what the kernel says of each.
    pub split: bool,
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The source.
    pub source: Kind,
    /// Why this one, as a clause for the user.
    pub reason: String,
}

/// Decides. Nothing is attached; only `auto` looks at what AF_XDP could do.
///
/// `auto` takes `xdp` only on an interface that nothing else uses: no address but link-local IPv6
/// ones (which every interface makes for itself), no bridge, bond or other device above, no route
/// that somebody set.
///
/// # Errors
///
/// [`Error::TakeOver`] for `xdp` on an interface in use, [`Error::Direction`] for outgoing frames
/// from a source that sees only incoming ones.
pub fn choose(interface: &Interface, wish: Wish) -> Result<Choice> {
    let choice = |source, reason: String| Ok(Choice { source, reason });
    let inbound_only = wish.traffic == Some(Traffic::In);
    match wish.source {
        Some(source @ (Kind::Xdp | Kind::Tee)) => {
            if wish.split {
                return Err(Error::Split { kind: source });
            }
            if matches!(wish.traffic, Some(Traffic::Out | Traffic::InOut)) {
                return Err(Error::Direction { interface: interface.name.clone(), kind: source });
            }
            if source == Kind::Xdp && !interface.uses.is_empty() && !wish.take_over {
                return Err(Error::TakeOver {
                    interface: interface.name.clone(),
                    uses: joined(interface),
                });
            }
            choice(source, "asked for".into())
        }
        Some(Kind::Packet) => choice(Kind::Packet, "asked for".into()),
        None if wish.split => choice(
            Kind::Packet,
            "--split needs the kernel's word on each super-packet, which only packet sockets hand on"
                .into(),
        ),
        None if wish.several_readers => {
            choice(Kind::Packet, "several readers share an interface through fanout".into())
        }
        None if !inbound_only && wish.traffic.is_some() => {
            choice(Kind::Packet, "only packet sockets see outgoing frames".into())
        }
        None if !interface.uses.is_empty() && !inbound_only => choice(
            Kind::Packet,
            format!(
                "the interface is in use ({}) and both directions are wanted",
                joined(interface)
            ),
        ),
        None => probe(interface),
    }
}

/// The choice between sources that all would do.
fn probe(interface: &Interface) -> Result<Choice> {
    let choice = |source, reason: String| Ok(Choice { source, reason });
    if interface.linktype()? != 1 {
        return choice(Kind::Packet, "XDP needs Ethernet frames".into());
    }
    let probe = linerate_ring::xdp::probe(&interface.name);
    if let Some(obstacle) = probe.obstacle {
        return choice(Kind::Packet, format!("XDP is not to be had: {obstacle}"));
    }
    if !probe.native {
        return choice(
            Kind::Packet,
            "the driver has no XDP of its own, and generic XDP is no faster".into(),
        );
    }
    if interface.uses.is_empty() {
        choice(Kind::Xdp, "nothing else uses the interface".into())
    } else {
        choice(
            Kind::Tee,
            format!(
                "the interface is in use ({}), only incoming frames are wanted, and its driver has \
                 XDP",
                joined(interface)
            ),
        )
    }
}

fn joined(interface: &Interface) -> String {
    interface.uses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::Use;

    fn used() -> Interface {
        Interface {
            name: "eth9".into(),
            uses: vec![Use::Routes { default: true }],
            link_layer: 1,
            ..Interface::default()
        }
    }

    #[test]
    fn auto_never_takes_traffic_from_an_interface_in_use() {
        let choice = choose(&used(), Wish::default()).expect("a choice");
        assert_eq!(choice.source, Kind::Packet);
        assert!(choice.reason.contains("the default route leads through it"), "{}", choice.reason);
    }

    #[test]
    fn xdp_on_an_interface_in_use_says_what_it_cuts_off() {
        let wish = Wish { source: Some(Kind::Xdp), ..Wish::default() };
        let error = choose(&used(), wish).expect_err("a refusal").to_string();
        assert!(error.contains("--take-over") && error.contains("default route"), "{error}");
        assert!(choose(&used(), Wish { take_over: true, ..wish }).is_ok());
    }

    #[test]
    fn splitting_takes_packet_sockets() {
        let idle = Interface { link_layer: 1, ..Interface::default() };
        let wish = Wish { split: true, traffic: Some(Traffic::In), ..Wish::default() };
        let choice = choose(&idle, wish).expect("a choice");
        assert_eq!(choice.source, Kind::Packet);
        assert!(choice.reason.contains("--split"), "{}", choice.reason);
        for source in [Kind::Xdp, Kind::Tee] {
            let refusal =
                choose(&idle, Wish { source: Some(source), ..wish }).expect_err("refused");
            let text = refusal.to_string();
            assert!(text.contains("--split") && text.contains("--source packet"), "{text}");
        }
    }

    #[test]
    fn outgoing_frames_come_from_packet_sockets_only() {
        let idle = Interface { link_layer: 1, ..Interface::default() };
        let wish = Wish { traffic: Some(Traffic::Out), ..Wish::default() };
        assert_eq!(choose(&idle, wish).expect("a choice").source, Kind::Packet);
        assert!(choose(&idle, Wish { source: Some(Kind::Tee), ..wish }).is_err());
    }
}
