//! The two file formats, and the numbers that both their readers and writers need.

/// The file format, without its compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Classic pcap (draft-ietf-opsawg-pcap); `nanoseconds` says which of its two precisions.
    Pcap {
        /// Timestamps count nanoseconds, not microseconds.
        nanoseconds: bool,
    },
    /// pcapng (draft-ietf-opsawg-pcapng).
    Pcapng,
}

/// Classic pcap: bytes of the headers.
pub(crate) mod pcap {
    pub(crate) const FILE_HEADER_LEN: usize = 24;
    pub(crate) const RECORD_HEADER_LEN: usize = 16;
}

/// pcapng: block types, and the magic number of a section header.
pub(crate) mod pcapng {
    pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
    pub(crate) const INTERFACE_DESCRIPTION: u32 = 1;
    pub(crate) const OBSOLETE_PACKET: u32 = 2;
    pub(crate) const SIMPLE_PACKET: u32 = 3;
    pub(crate) const NAME_RESOLUTION: u32 = 4;
    pub(crate) const INTERFACE_STATISTICS: u32 = 5;
    pub(crate) const ENHANCED_PACKET: u32 = 6;
    pub(crate) const DECRYPTION_SECRETS: u32 = 10;

    pub(crate) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

    /// Bytes of an enhanced or an obsolete packet block before the packet.
    pub(crate) const PACKET_HEADER_LEN: usize = 28;
}
