//! What a capture file says: packets, interfaces, and where the file comes from.

use linerate_wire::frame::{Frame, Timestamp};

use crate::Resolution;

/// One packet of a capture file, lent until the next call.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The packet; its timestamp is `None` only where the file has none (simple packet blocks).
    pub frame: Frame<'a>,
    /// Index of its interface, in the order of their descriptions; always 0 for classic pcap.
    pub interface: u32,
    /// The packet's first comment, where it is valid UTF-8.
    pub comment: Option<&'a str>,
}

/// An interface as a file describes it. Classic pcap has only link type and snapshot length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceDescription {
    /// `if_name`, such as `eth0`.
    pub name: Option<String>,
    /// `if_description`.
    pub description: Option<String>,
    /// `if_filter`: the text of the capture filter.
    pub filter: Option<String>,
    /// `if_os`.
    pub os: Option<String>,
    /// The first comment.
    pub comment: Option<String>,
    /// Link type as in the LINKTYPE registry; 1 is Ethernet.
    pub linktype: u16,
    /// What classic pcap has above the link type: the length of the frame check sequence.
    pub link_extension: u32,
    /// Longest record, in bytes; 0 means no limit.
    pub snaplen: u32,
    /// `if_tsresol`: the unit of timestamps. Files written here always count nanoseconds.
    pub resolution: Resolution,
    /// `if_tsoffset`: seconds to add to timestamps. Files written here have none.
    pub offset: i64,
    /// The last statistics block so far, of a file that is read.
    pub statistics: Option<Box<InterfaceStatistics>>,
}

// The block of an interface may have 20 bytes, and a file millions of them.
const _: () = assert!(size_of::<InterfaceDescription>() <= 8 * 20);

/// What an interface statistics block says. Every count is since the start of the capture; `None` where
/// nobody counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceStatistics {
    /// `isb_starttime`: when the capture began.
    pub start: Option<Timestamp>,
    /// `isb_endtime`: when the counts were taken, or the capture ended.
    pub end: Option<Timestamp>,
    /// `isb_ifrecv`: packets that the interface received.
    pub received: Option<u64>,
    /// `isb_ifdrop`: packets that the interface dropped for lack of resources.
    pub interface_dropped: Option<u64>,
    /// `isb_filteraccept`: packets that the filter accepted.
    pub filter_accepted: Option<u64>,
    /// `isb_osdrop`: packets that the operating system dropped.
    pub system_dropped: Option<u64>,
    /// `isb_usrdeliv`: packets delivered to the user.
    pub delivered: Option<u64>,
    /// The first comment.
    pub comment: Option<String>,
}

/// What a section header says about where the file comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SectionHeader {
    /// `shb_hardware`: the processor.
    pub hardware: Option<String>,
    /// `shb_os`: kernel and release.
    pub os: Option<String>,
    /// `shb_userappl`: the program.
    pub application: Option<String>,
}
