use proptest::prelude::*;

use super::*;

#[test]
fn what_is_no_session_is_said() {
    for (bad, why) in [
        ("", "1 parts, not 5"),
        ("udp,192.0.2.1,1,192.0.2.2", "4 parts, not 5"),
        ("icmp,192.0.2.1,1,192.0.2.2,2", "tcp, udp"),
        ("udp,192.0.2,1,192.0.2.2,2", "\"192.0.2\" is not an address"),
        ("udp,192.0.2.1,1,192.0.2.2,65536", "\"65536\" is not a port"),
        ("tcp,192.0.2.1,1,2001:db8::1,2", "two families"),
    ] {
        let said = bad.parse::<FiveTuple>().unwrap_err();
        assert!(said.contains(why) && said.contains("write protocol"), "{bad}: {said}");
    }
}

proptest! {
    #[test]
    fn a_session_is_read_as_written(a: u128, b: u128, ports: (u16, u16), four: bool, tcp: bool) {
        let address = |bits: u128| -> IpAddr {
            if four { IpAddr::V4((bits as u32).into()) } else { IpAddr::V6(bits.into()) }
        };
        let tuple = FiveTuple {
            protocol: if tcp { Protocol::Tcp } else { Protocol::Udp },
            source: (address(a), ports.0).into(),
            destination: (address(b), ports.1).into(),
        };
        prop_assert_eq!(tuple.to_string().parse(), Ok(tuple));
        prop_assert_eq!(tuple.reversed().reversed(), tuple);
    }
}
