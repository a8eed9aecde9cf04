//! Any traffic: the sums of all records are what was sent, flow by flow, in small tables and short timeouts, too.

use std::collections::HashMap;
use std::net::IpAddr;

use proptest::prelude::*;

use crate::frames::{Metered, udp};

/// Packets and octets of one direction.
type Sums = HashMap<(IpAddr, u16, IpAddr, u16), (u64, u64)>;

fn add(sums: &mut Sums, key: (IpAddr, u16, IpAddr, u16), packets: u64, octets: u64) {
    if packets > 0 {
        let sum = sums.entry(key).or_default();
        *sum = (sum.0 + packets, sum.1 + octets);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_packet_is_lost_or_counted_twice(
        max_flows in 1_u32..30,
        active in 1_u64..20,
        idle in 1_u64..20,
        packets in prop::collection::vec((0_u8..12, 0_u8..12, any::<bool>(), 0_u32..3000, 0_usize..200), 1..300),
    ) {
        let mut metered = Metered::new(max_flows, active, idle);
        let mut sent = Sums::new();
        let mut milliseconds = 0;
        for (from, to, v6, wait, payload) in &packets {
            milliseconds += wait;
            let address = |last: u8| -> IpAddr {
                if *v6 { IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]) } else { IpAddr::from([10, 0, 0, last]) }
            };
            let ends = ((address(*from), 7), (address(*to), 7));
            let frame = udp(ends.0, ends.1, *payload);
            metered.frame(f64::from(milliseconds) / 1000.0, &frame);
            add(&mut sent, (ends.0.0, 7, ends.1.0, 7), 1, frame.len() as u64 - 14);
        }
        let mut seen = Sums::new();
        for record in metered.finish() {
            let key = &record.key;
            let ports = (key.source_port.unwrap(), key.destination_port.unwrap());
            add(&mut seen, (key.source, ports.0, key.destination, ports.1), record.forward.packets, record.forward.octets);
            add(&mut seen, (key.destination, ports.1, key.source, ports.0), record.reverse.packets, record.reverse.octets);
            prop_assert!(record.end - record.start <= active * 1_000_000_000);
        }
        prop_assert_eq!(seen, sent);
        let counted = metered.meter.statistics();
        prop_assert_eq!(counted.packets, packets.len() as u64);
        prop_assert_eq!((counted.exported, counted.active), (metered.records.len() as u64, 0));
    }
}
