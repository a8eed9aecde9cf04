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
