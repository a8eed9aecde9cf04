//! [`Cutoff`]: the beginning of each flow.

use std::time::Duration;

use linerate_flow::meter::{Meter, MeterOptions, MeteredPacket};
use linerate_ring::Timestamp;

/// The most flows that are remembered at one time, by all readers together.
const MAX_FLOWS: usize = 1 << 18;

/// The smallest table of one reader.
const MIN_FLOWS: usize = 1 << 12;

/// Decides which packets are among the first bytes of their flow. Both directions of a connection are one flow.
pub(super) struct Cutoff {
    bytes: u64,
    meter: Meter,
}

impl Cutoff {
    /// For one of this many readers. Nothing is allocated later.
    pub(super) fn new(bytes: u64, readers: usize) -> Self {
        let max_flows = (MAX_FLOWS / readers.max(1)).max(MIN_FLOWS) as u32;
        // An active timeout would reset the count of a flow that continues.
        let options =
            MeterOptions { max_flows, active_timeout: Duration::MAX, ..MeterOptions::default() };
        Self { bytes, meter: Meter::new(&options) }
    }

    /// Whether the packets of the flow before this one had fewer bytes. A packet that belongs to no flow is kept.
    #[inline]
    pub(super) fn keeps(
        &mut self,
        frame: &[u8],
        wire_len: u32,
        linktype: u16,
        interface: u32,
        time: Timestamp,
    ) -> bool {
        let (interface, Timestamp(time)) = (interface as u16, time);
        let packet = MeteredPacket {
            frame,
            wire_len,
            linktype,
            interface,
            time,
            byte_range: None,
            processes: None,
        };
        self.meter.packet(&packet, |_| {}).is_none_or(|before| before < self.bytes)
    }
}
