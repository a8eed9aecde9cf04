//! Any traffic: the sums of all records are what was sent, flow by flow, in small tables and short timeouts, too.

use std::collections::HashMap;
use std::net::IpAddr;

use linerate_flow::meter::MeteredPacket;
use proptest::prelude::*;

use crate::frames::{ETHERNET, Metered, START, tcp, udp};

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

    /// A batch takes flows that end and begin again within it, full tables, and frames in no flow, like packets that
    /// come one by one.
    #[test]
    fn packets_in_batches_make_the_same_records(
        max_flows in 1_u32..12,
        active in 1_u64..20,
        idle in 1_u64..20,
        packets in prop::collection::vec((0_u8..6, 0_u8..6, 0_u8..32, 0_u32..500, any::<bool>()), 1..400),
        flush_every in 1_usize..100,
    ) {
        let [mut single, mut batches] = [(); 2].map(|()| Metered::new(max_flows, active, idle));
        let mut milliseconds = 0;
        for (number, (from, to, flags, wait, is_ip)) in packets.iter().enumerate() {
            milliseconds += u64::from(*wait);
            let frame = match is_ip {
                true => tcp((*from, 1), (*to, 2), *flags, 0),
                // An EtherType for experiments (IEEE 802).
                false => [0x88, 0xb5].repeat(10),
            };
            let packet = MeteredPacket {
                frame: &frame,
                wire_len: frame.len() as u32,
                linktype: ETHERNET,
                interface: 0,
                time: START + milliseconds * 1_000_000,
                byte_range: None,
            };
            single.packet(&packet);
            let Metered { meter, records } = &mut batches;
            meter.push(&packet, |flow| records.push(flow.record()));
            if number % flush_every == 0 {
                meter.flush(|flow| records.push(flow.record()));
                prop_assert_eq!(meter.statistics(), single.meter.statistics());
                prop_assert_eq!(meter.time(), single.meter.time());
            }
        }
        prop_assert_eq!(single.finish(), batches.finish());
        prop_assert_eq!(single.meter.statistics(), batches.meter.statistics());
    }
}
