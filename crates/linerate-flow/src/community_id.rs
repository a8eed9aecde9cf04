//! The Community ID of a flow, version 1: what Zeek, Suricata and others call the same flow.
//!
//! The specification is that of <https://github.com/corelight/community-id-spec>.

use std::net::IpAddr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use linerate_wire::ip::Protocol;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

use crate::{FlowKey, icmp};

/// The Community ID of a flow, version 1. `None` if ports belong to it that are not known.
pub fn community_id(key: &FlowKey) -> Option<Box<str>> {
    let (mut ends, mut is_ordered) = ([(key.source, 0), (key.destination, 0)], true);
    let protocol = Protocol(key.protocol);
    let has_ports = match protocol {
        Protocol::TCP | Protocol::UDP | Protocol::SCTP => {
            (ends[0].1, ends[1].1) = (key.source_port?, key.destination_port?);
            true
        }
        Protocol::ICMP | Protocol::ICMPV6 => {
            let ports;
            (ports, is_ordered) = icmp_ports(protocol, key.icmp_type_code?);
            (ends[0].1, ends[1].1) = ports;
            true
        }
        _ => false,
    };
    if is_ordered {
        ends.sort_unstable();
    }
    let mut hash = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(&[0, 0]);
    for (address, _) in ends {
        match address {
            IpAddr::V4(address) => hash.update(&address.octets()),
            IpAddr::V6(address) => hash.update(&address.octets()),
        }
    }
    hash.update(&[protocol.0, 0]);
    for (_, port) in ends.iter().filter(|_| has_ports) {
        hash.update(&port.to_be_bytes());
    }
    Some(format!("1:{}", BASE64_STANDARD.encode(hash.finish())).into())
}

/// What stands for the ports, and whether both directions have one ID.
fn icmp_ports(protocol: Protocol, type_code: u16) -> ((u16, u16), bool) {
    let [kind, code] = type_code.to_be_bytes();
    let answer = icmp::counterpart(protocol, kind);
    ((kind.into(), answer.unwrap_or(code).into()), answer.is_some())
}

#[cfg(test)]
mod tests;
