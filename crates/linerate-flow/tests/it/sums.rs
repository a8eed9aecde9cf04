//! Any traffic: a meter makes the records of the model. In a table that is too small, their sums are right.

use std::cell::RefCell;
use std::collections::HashMap;

use linerate_flow::meter::Flow;
use proptest::prelude::*;

use crate::frames::{Metered, SECOND};
use crate::model::{self, End, Model, text};
use crate::traffic::{Event, Output, events, metered, timed};

/// The frame of another protocol: an EtherType for experiments (IEEE 802).
const OTHER: [u8; 20] = [
    0x88, 0xb5, 0x88, 0xb5, 0x88, 0xb5, 0x88, 0xb5, 0x88, 0xb5, 0x88, 0xb5, 0x88, 0xb5, 0, 0, 0, 0,
    0, 0,
];

/// Packets and octets of one direction, by its ends, protocol, VLAN and interface.
type Sums = HashMap<(End, End, u8, Option<u16>, u16), (u64, u64)>;

fn add(sums: &mut Sums, key: (End, End, u8, Option<u16>, u16), packets: u64, octets: u64) {
    if packets > 0 {
        let sum = sums.entry(key).or_default();
        *sum = (sum.0 + packets, sum.1 + octets);
    }
}

/// How many times each text is there.
fn counted<'t>(texts: impl Iterator<Item = &'t String>) -> HashMap<&'t str, usize> {
    let mut counts = HashMap::new();
    texts.for_each(|text| *counts.entry(text.as_str()).or_default() += 1);
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Records are those of the model, whenever the clock advances and whether packets come in batches. They are
    /// exported at most a second after they are due, and a step of the sweep.
    #[test]
    fn records_are_those_of_the_model(
        active in 1_u64..20,
        idle in 1_u64..20,
        events in events(200),
        batches: bool,
    ) {
        const MAX_DELAY: u64 = SECOND * 101 / 100;
        let Metered { mut meter, .. } = Metered::new(1000, active, idle);
        let (mut model, mut output) = (Model::new(active, idle), Output::default());
        let exported = RefCell::new(Vec::new());
        let export = |flow: &Flow| {
            exported.borrow_mut().push(text(&flow.record(), flow.byte_range(), flow.interface()));
        };
        let (mut packets, mut others) = (0, 0);
        for (now, event) in timed(&events) {
            match event {
                Event::Packet(packet) => {
                    packets += 1;
                    let (frame, byte_range) = (packet.frame(), output.push(packet));
                    let one = metered(&frame, packet.interface, now, byte_range);
                    let expected = model.packet(packet, now, byte_range).before;
                    match batches {
                        true => meter.push(&one, export),
                        false => prop_assert_eq!(meter.packet(&one, export), Some(expected)),
                    }
                }
                Event::Other => {
                    others += 1;
                    meter.push(&metered(&OTHER, 0, now, None), export);
                }
                Event::Flush => meter.flush(export),
                Event::Advance => {
                    let silence = now - meter.time();
                    meter.advance(now, export);
                    model.expire(now);
                    let exported = exported.borrow();
                    if silence > MAX_DELAY && !batches {
                        prop_assert_eq!(meter.statistics().active, model.active() as u64);
                        prop_assert_eq!(exported.len(), model.records.len());
                    }
                    let due = model.records.iter().filter(|(due, _)| due + MAX_DELAY <= now);
                    let exported = counted(exported.iter());
                    for (text, count) in counted(due.map(|(_, text)| text)) {
                        prop_assert!(exported.get(text) >= Some(&count), "late: {}", text);
                    }
                }
            }
        }
        meter.finish(export);
        model.finish(meter.time());
        let exported = exported.into_inner();
        let expected = model.records.iter().map(|(_, text)| text);
        prop_assert_eq!(counted(exported.iter()), counted(expected));
        let statistics = meter.statistics();
        prop_assert_eq!((statistics.packets, statistics.not_ip), (packets, others));
        prop_assert_eq!(statistics.without_ports, model.without_ports);
        prop_assert_eq!((statistics.active, statistics.overflow), (0, 0));
        prop_assert_eq!(statistics.exported, exported.len() as u64);
    }

    #[test]
    fn no_packet_is_lost_or_counted_twice(
        max_flows in 1_u32..12,
        active in 1_u64..20,
        idle in 1_u64..20,
        events in events(300),
    ) {
        let mut metered_here = Metered::new(max_flows, active, idle);
        let (mut model, mut sent, mut packets) = (Model::new(active, idle), Sums::new(), 0);
        for (time, event) in timed(&events) {
            match event {
                Event::Packet(packet) => {
                    packets += 1;
                    let frame = packet.frame();
                    metered_here.packet(&metered(&frame, 0, time, None));
                    let model::Metered { from, to, .. } = model.packet(packet, time, None);
                    add(&mut sent, (from, to, packet.protocol(), packet.vlan, 0), 1, packet.octets());
                }
                Event::Advance => {
                    let Metered { meter, records } = &mut metered_here;
                    meter.advance(time, |flow| records.push(flow.record()));
                }
                Event::Other | Event::Flush => {}
            }
            prop_assert!(metered_here.meter.statistics().active <= u64::from(max_flows));
        }
        let mut seen = Sums::new();
        for record in metered_here.finish() {
            let key = &record.key;
            let (from, to) = ((key.source, key.source_port), (key.destination, key.destination_port));
            let (forward, reverse) = (&record.forward, &record.reverse);
            add(&mut seen, (from, to, key.protocol, key.vlan, 0), forward.packets, forward.octets);
            add(&mut seen, (to, from, key.protocol, key.vlan, 0), reverse.packets, reverse.octets);
            prop_assert!(record.end - record.start <= active * SECOND);
        }
        prop_assert_eq!(seen, sent);
        let statistics = metered_here.meter.statistics();
        prop_assert_eq!(statistics.packets, packets);
        prop_assert_eq!((statistics.exported, statistics.active), (metered_here.records.len() as u64, 0));
    }

    /// A batch takes flows that end and begin again within it, full tables, and frames in no flow, like packets that
    /// come one by one.
    #[test]
    fn packets_in_batches_make_the_same_records(
        max_flows in 1_u32..12,
        active in 1_u64..20,
        idle in 1_u64..20,
        events in events(400),
    ) {
        let [mut single, mut batches] = [(); 2].map(|()| Metered::new(max_flows, active, idle));
        let mut output = Output::default();
        for (time, event) in timed(&events) {
            let Metered { meter, records } = &mut batches;
            let export = |flow: &Flow| records.push(flow.record());
            match event {
                Event::Packet(packet) => {
                    let (frame, byte_range) = (packet.frame(), output.push(packet));
                    let one = metered(&frame, packet.interface, time, byte_range);
                    single.packet(&one);
                    meter.push(&one, export);
                }
                Event::Other => {
                    let one = metered(&OTHER, 0, time, None);
                    single.packet(&one);
                    meter.push(&one, export);
                }
                Event::Advance => {
                    meter.advance(time, export);
                    let Metered { meter, records } = &mut single;
                    meter.advance(time, |flow| records.push(flow.record()));
                }
                Event::Flush => {
                    meter.flush(export);
                    prop_assert_eq!(meter.statistics(), single.meter.statistics());
                    prop_assert_eq!(meter.time(), single.meter.time());
                }
            }
        }
        prop_assert_eq!(single.finish(), batches.finish());
        prop_assert_eq!(single.meter.statistics(), batches.meter.statistics());
    }
}
