//! The two file formats.

/// The file format, without its compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Classic pcap; `nanoseconds` says which of its two precisions.
    Pcap {
        /// Time stamps count nanoseconds, not microseconds.
        nanoseconds: bool,
    },
    /// pcapng (draft-ietf-opsawg-pcapng).
    Pcapng,
}
