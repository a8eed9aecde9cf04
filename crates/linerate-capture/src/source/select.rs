//! [`select`]: the source of a capture, and why.

use linerate_ring::packet::DirectionFilter;

use super::kind::SourceKind;
use super::options::SourceOptions;
use crate::interface::Interface;
use crate::{Error, Result};

/// The source that was selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Its kind.
    pub kind: SourceKind,
    /// Why this one, as a clause for the user.
    pub reason: String,
}

/// Selects a source. Nothing is attached; only `auto` probes what XDP can do.
///
/// `auto` takes `xdp` only on an interface that nothing else uses: no address but link-local IPv6
/// ones (which every interface has automatically), no bridge, bond or other upper device, no configured
/// route.
///
/// # Errors
///
/// [`Error::TakeOver`] for `xdp` on an interface in use, [`Error::Direction`] for outgoing frames
/// from a source that sees only incoming ones.
pub fn select(interface: &Interface, options: &SourceOptions) -> Result<Selection> {
    let selected = |kind, reason: String| Ok(Selection { kind, reason });
    let inbound_only = options.traffic == Some(DirectionFilter::In);
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
            if source == SourceKind::Xdp && !interface.users.is_empty() && !options.take_over {
                return Err(Error::TakeOver {
                    interface: interface.name.clone(),
                    users: joined(interface),
                });
            }
            selected(source, "requested".into())
        }
        Some(source) => selected(source, "requested".into()),
        None if options.split => selected(
            SourceKind::Packet,
            "--split needs the kernel's metadata of each super-packet, which only packet sockets have"
                .into(),
        ),
        None if options.threads > 1 && interface.rx_queues()? < 2 => selected(
            SourceKind::Packet,
            "several readers share one queue only through fanout".into(),
        ),
        None if !inbound_only && options.traffic.is_some() => {
            selected(SourceKind::Packet, "only packet sockets see outgoing frames".into())
        }
        None if !interface.users.is_empty() && !inbound_only => selected(
            SourceKind::Packet,
            format!(
                "the interface is in use ({}) and both directions are wanted",
                joined(interface)
            ),
        ),
        None => probe(interface),
    }
}

/// Selects among sources that all fit the options.
fn probe(interface: &Interface) -> Result<Selection> {
    let selected = |kind, reason: String| Ok(Selection { kind, reason });
    if interface.linktype()? != 1 {
        return selected(SourceKind::Packet, "XDP needs Ethernet frames".into());
    }
    let attached = linerate_bpf::xdp::attached(&interface.name).ok().flatten();
    if attached.is_some_and(|program| program.is_yielding()) {
        let reason = "another capture by XDP passes the frames on while there is this one";
        return selected(SourceKind::Packet, reason.into());
    }
    if let Some(reason) = linerate_ring::xdp::probe(&interface.name).why_not_native() {
        return selected(SourceKind::Packet, reason);
    }
    if interface.users.is_empty() {
        selected(SourceKind::Xdp, "nothing else uses the interface".into())
    } else {
        selected(
            SourceKind::Tee,
            format!(
                "the interface is in use ({}), only incoming frames are wanted, and its driver has \
                 XDP",
                joined(interface)
            ),
        )
    }
}

fn joined(interface: &Interface) -> String {
    interface.users.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::InterfaceUser;

    fn used() -> Interface {
        Interface {
            name: "eth9".into(),
            users: vec![InterfaceUser::Routes { default: true }],
            link_layer: 1,
            ..Interface::default()
        }
    }

    #[test]
    fn auto_never_takes_traffic_from_an_interface_in_use() {
        let selection = select(&used(), &SourceOptions::default()).expect("a choice");
        assert_eq!(selection.kind, SourceKind::Packet);
        assert!(
            selection.reason.contains("the default route leads through it"),
            "{}",
            selection.reason
        );
    }

    #[test]
    fn xdp_on_an_interface_in_use_says_what_it_cuts_off() {
        let options = SourceOptions { source: Some(SourceKind::Xdp), ..SourceOptions::default() };
        let error = select(&used(), &options).expect_err("a refusal").to_string();
        assert!(error.contains("--take-over") && error.contains("default route"), "{error}");
        assert!(select(&used(), &SourceOptions { take_over: true, ..options }).is_ok());
    }

    #[test]
    fn splitting_takes_packet_sockets() {
        let idle = Interface { link_layer: 1, ..Interface::default() };
        let options = SourceOptions {
            split: true,
            traffic: Some(DirectionFilter::In),
            ..SourceOptions::default()
        };
        let selection = select(&idle, &options).expect("a choice");
        assert_eq!(selection.kind, SourceKind::Packet);
        assert!(selection.reason.contains("--split"), "{}", selection.reason);
        for source in [SourceKind::Xdp, SourceKind::Tee] {
            let refusal = select(&idle, &SourceOptions { source: Some(source), ..options.clone() })
                .expect_err("refused");
            let text = refusal.to_string();
            assert!(text.contains("--split") && text.contains("--source packet"), "{text}");
        }
    }

    #[test]
    fn outgoing_frames_come_from_packet_sockets_only() {
        let idle = Interface { link_layer: 1, ..Interface::default() };
        let options =
            SourceOptions { traffic: Some(DirectionFilter::Out), ..SourceOptions::default() };
        assert_eq!(select(&idle, &options).expect("a choice").kind, SourceKind::Packet);
        assert!(
            select(&idle, &SourceOptions { source: Some(SourceKind::Tee), ..options }).is_err()
        );
    }
}
