//! The Community ID of a flow, version 1: what Zeek, Suricata and others call the same flow.
//!
//! The specification is that of <https://github.com/corelight/community-id-spec>.

use std::net::IpAddr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use linerate_wire::ip::Protocol;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

use crate::FlowKey;

/// Types of messages that ask and answer: they stand for the ports of both ends.
const ICMP_PAIRS: [(u8, u8); 5] = [(8, 0), (13, 14), (15, 16), (17, 18), (9, 10)];
const ICMPV6_PAIRS: [(u8, u8); 6] =
    [(128, 129), (130, 131), (133, 134), (135, 136), (139, 140), (144, 145)];

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
    let pairs = if protocol == Protocol::ICMP { &ICMP_PAIRS[..] } else { &ICMPV6_PAIRS };
    let mut both_ways = pairs.iter().flat_map(|(one, other)| [(*one, *other), (*other, *one)]);
    let answer = both_ways.find(|(from, _)| *from == kind).map(|(_, to)| to);
    ((kind.into(), answer.unwrap_or(code).into()), answer.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The specification's baseline, router discovery, and one flow each of Zeek's and Vector's tests: protocol, addresses,
    /// ports, ID.
    const BASELINE: &str = "\
1 192.168.0.1 192.168.0.89 9 10 ZCE6FYKtYq6/Z5/7VYclhgEesAg=
1 192.168.0.89 192.168.0.1 10 9 ZCE6FYKtYq6/Z5/7VYclhgEesAg=
58 fe80::200:86ff:fe05:80da fe80::260:97ff:fe07:69ea 135 136 dGHyGvjMfljg6Bppwm3bg0LO8TY=
58 fe80::260:97ff:fe07:69ea fe80::200:86ff:fe05:80da 136 135 dGHyGvjMfljg6Bppwm3bg0LO8TY=
58 fe80::260:97ff:fe07:69ea fe80::200:86ff:fe05:80da 135 136 zavyT/cezQr1fmImYCwYnMXbgck=
58 fe80::200:86ff:fe05:80da fe80::260:97ff:fe07:69ea 136 135 zavyT/cezQr1fmImYCwYnMXbgck=
58 3ffe:501:1800:2345::2 3ffe:507:0:1:200:86ff:fe05:80da 3 0 2ObVBgIn28oZvibYZhZMBgh7WdQ=
58 3ffe:501:410:0:2c0:dfff:fe47:33e 3ffe:507:0:1:200:86ff:fe05:80da 1 4 hLZd0XGWojozrvxqE0dWB1iM6R0=
58 3ffe:507:0:1:200:86ff:fe05:80da 3ffe:501:0:1001::2 128 129 +TW+HtLHvV1xnGhV1lv7XoJrqQg=
58 3ffe:501:0:1001::2 3ffe:507:0:1:200:86ff:fe05:80da 129 128 +TW+HtLHvV1xnGhV1lv7XoJrqQg=
58 fe80::200:86ff:fe05:80da ff02::2 133 134 hO+sN4H+MG5MY/8hIrXPqc4ZQz0=
58 fe80::260:97ff:fe07:69ea ff02::1 134 133 pkvHqCL88/tg1k4cPigmZXUtL00=
1 192.168.0.89 192.168.0.1 8 0 X0snYXpgwiv9TZtqg64sgzUn6Dk=
1 192.168.0.1 192.168.0.89 0 8 X0snYXpgwiv9TZtqg64sgzUn6Dk=
1 10.0.0.1 10.0.0.2 11 0 YHxtAirCG//0OzkcVAukqKQN9xM=
6 2001:470:e5bf:dead:4957:2174:e82c:4887 2607:f8b0:400c:c03::1a 63943 25 /qFaeAR+gFe1KYjMzVDsMv+wgU4=
6 2607:f8b0:400c:c03::1a 2001:470:e5bf:dead:4957:2174:e82c:4887 25 63943 /qFaeAR+gFe1KYjMzVDsMv+wgU4=
132 192.168.170.8 192.168.170.56 7 7 MP2EtRCAUIZvTw6MxJHLV7N7JDs=
132 192.168.170.56 192.168.170.8 7 7 MP2EtRCAUIZvTw6MxJHLV7N7JDs=
6 128.232.110.120 66.35.250.204 34855 80 LQU9qZlK+B5F3KDmev6m5PMibrg=
6 66.35.250.204 128.232.110.120 80 34855 LQU9qZlK+B5F3KDmev6m5PMibrg=
17 192.168.1.52 8.8.8.8 54585 53 d/FP5EW3wiY1vCndhwleRRKHowQ=
17 8.8.8.8 192.168.1.52 53 54585 d/FP5EW3wiY1vCndhwleRRKHowQ=
46 10.1.12.1 10.1.12.2 0 0 KHlLkgoJW7ifUTyTSgyVfkFHzKw=
46 10.1.12.2 10.1.12.1 0 0 KHlLkgoJW7ifUTyTSgyVfkFHzKw=
58 fe80:1:203:405:607:809:a0b:c0d fe80:1011:1213:1415:1617:1819:1a1b:1c1d 128 129 0bf7hyMJUwt3fMED7z8LIfRpBeo=
46 1.2.3.4 5.6.7.8 0 0 ikv3kmf89luf73WPz1jOs49S768=";

    #[test]
    fn ids_equal_those_of_the_specification() {
        for line in BASELINE.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let [protocol, source, destination, from, to, id] = words[..] else { panic!("{line}") };
            let (protocol, from, to): (u8, u16, u16) =
                (protocol.parse().unwrap(), from.parse().unwrap(), to.parse().unwrap());
            // The baseline has the type of the answer, or else the code, as the second port of ICMP.
            let (kind, code) = (from as u8, if [0, 4].contains(&to) { to as u8 } else { 0 });
            let is_icmp = [Protocol::ICMP, Protocol::ICMPV6].contains(&Protocol(protocol));
            let has_ports =
                [Protocol::TCP, Protocol::UDP, Protocol::SCTP].contains(&Protocol(protocol));
            let port = |port| has_ports.then_some(port);
            let key = FlowKey {
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
                source_port: port(from),
                destination_port: port(to),
                icmp_type_code: is_icmp.then_some(u16::from_be_bytes([kind, code])),
                protocol,
                ..FlowKey::default()
            };
            assert_eq!(community_id(&key), Some(format!("1:{id}").into()), "{key:?}");
        }
    }

    #[test]
    fn a_flow_without_its_ports_has_none() {
        let with_ports = [Protocol::TCP, Protocol::UDP, Protocol::SCTP];
        for Protocol(protocol) in with_ports.into_iter().chain([Protocol::ICMP, Protocol::ICMPV6]) {
            assert_eq!(community_id(&FlowKey { protocol, ..FlowKey::default() }), None);
        }
    }
}
