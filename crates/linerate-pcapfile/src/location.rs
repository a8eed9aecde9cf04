//! [`PacketLocation`] and [`ByteRange`]: where packets are in files, and in an output that becomes files.

use std::sync::Arc;

/// A range of bytes in the output of one reader: one packet, or all packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte.
    pub begin: u64,
    /// After the last byte; not 0.
    pub end: u64,
}

/// Where the packets of a flow are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketLocation {
    /// The packet file that has the first packet.
    pub file: Arc<str>,
    /// An offset in `file` where a packet begins, at or before the flow's first packet.
    pub first: u64,
    /// An offset at or after the end of the flow's last packet; `None` if it is in a later file.
    pub end: Option<u64>,
}
