//! Frames to meter, and a meter that collects records.

use std::net::IpAddr;
use std::time::Duration;

use etherparse::PacketBuilder;
use linerate_flow::FlowRecord;
use linerate_flow::meter::{Meter, MeterOptions, MeteredPacket};
use linerate_flow::schema::Groups;

/// LINKTYPE_ETHERNET.
pub(crate) const ETHERNET: u16 = 1;

pub(crate) const SECOND: u64 = 1_000_000_000;

/// When the traffic of a test begins.
pub(crate) const START: u64 = 1_700_000_000 * SECOND;

/// FIN, SYN, RST and ACK.
pub(crate) const F: u8 = 1;
pub(crate) const S: u8 = 2;
pub(crate) const R: u8 = 4;
pub(crate) const A: u8 = 16;

/// A TCP segment between hosts `10.0.0.from` and `10.0.0.to`.
pub(crate) fn tcp(from: (u8, u16), to: (u8, u16), flags: u8, payload: usize) -> Vec<u8> {
    let mut builder = PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([10, 0, 0, from.0], [10, 0, 0, to.0], 64)
        .tcp(from.1, to.1, 1, 1000);
    for (bit, set) in [F, S, R].into_iter().enumerate().map(|(bit, flag)| (bit, flags & flag != 0))
    {
        builder = match (bit, set) {
            (0, true) => builder.fin(),
            (1, true) => builder.syn(),
            (2, true) => builder.rst(),
            _ => builder,
        };
    }
    let builder = if flags & A != 0 { builder.ack(1) } else { builder };
    let mut frame = Vec::new();
    builder.write(&mut frame, &vec![0; payload]).unwrap();
    frame
}

/// A UDP datagram.
pub(crate) fn udp(from: (IpAddr, u16), to: (IpAddr, u16), payload: usize) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let builder = match (from.0, to.0) {
        (IpAddr::V4(a), IpAddr::V4(b)) => ethernet.ipv4(a.octets(), b.octets(), 64),
        (IpAddr::V6(a), IpAddr::V6(b)) => ethernet.ipv6(a.octets(), b.octets(), 64),
        _ => panic!("addresses of two versions"),
    };
    let mut frame = Vec::new();
    builder.udp(from.1, to.1).write(&mut frame, &vec![0; payload]).unwrap();
    frame
}

/// A meter and what it exported.
pub(crate) struct Metered {
    pub(crate) meter: Meter,
    pub(crate) records: Vec<FlowRecord>,
}

impl Metered {
    pub(crate) fn new(max_flows: u32, active: u64, idle: u64) -> Self {
        Self::with_groups(max_flows, active, idle, Groups::default())
    }

    /// One whose records have these groups of fields.
    pub(crate) fn with_groups(max_flows: u32, active: u64, idle: u64, groups: Groups) -> Self {
        let meter = Meter::new(&MeterOptions {
            max_flows,
            active_timeout: Duration::from_secs(active),
            idle_timeout: Duration::from_secs(idle),
            groups,
        });
        Self { meter, records: Vec::new() }
    }

    /// Meters a frame that comes so many seconds after [`START`].
    pub(crate) fn frame(&mut self, seconds: f64, frame: &[u8]) -> &mut Self {
        self.cut(seconds, frame, frame.len() as u32)
    }

    /// The beginning of a frame of this length.
    pub(crate) fn cut(&mut self, seconds: f64, frame: &[u8], wire_len: u32) -> &mut Self {
        let time = START + (seconds * SECOND as f64) as u64;
        self.packet(&MeteredPacket {
            frame,
            wire_len,
            linktype: ETHERNET,
            interface: 0,
            time,
            byte_range: None,
            processes: None,
        })
    }

    pub(crate) fn packet(&mut self, packet: &MeteredPacket<'_>) -> &mut Self {
        let Self { meter, records } = self;
        meter.packet(packet, |flow| records.push(flow.record()));
        self
    }

    /// All records, with those of the flows that go on.
    pub(crate) fn finish(&mut self) -> &[FlowRecord] {
        let Self { meter, records } = self;
        meter.finish(|flow| records.push(flow.record()));
        &self.records
    }
}
