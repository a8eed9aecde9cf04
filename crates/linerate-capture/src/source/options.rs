//! [`SourceOptions`]: what the user asks of a source.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use linerate_ring::packet::{DirectionFilter, Fanout, Mode};
use linerate_ring::region::Pages;
use linerate_ring::trace::Points;
use linerate_ring::{Delivery, TimestampSource};

use super::kind::SourceKind;
use crate::filter::{CookedHeader, FilterCache, FilterLocation, TagReading};

/// How to open the source of an interface.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// The source; `None` selects one ([`select`](super::select())).
    pub source: Option<SourceKind>,
    /// The direction of the frames; `None` if the user did not say.
    pub traffic: Option<DirectionFilter>,
    /// The user consents that the host does not get the frames: without a source by name it is `xdp` where that works.
    pub take_over: bool,
    /// `xdp` leaves the frames to the host until [`Receiver::set_action`](linerate_ring::Receiver::set_action); AF_XDP
    /// sockets cannot.
    pub copy_first: bool,
    /// All interfaces at once, as [`ANY`](crate::interface::ANY), with this header before each frame.
    pub cooked: Option<CookedHeader>,
    /// The link type, where it is another one of those that [`crate::interface::linktypes`] lists than the
    /// first.
    pub linktype: Option<u16>,
    /// Super-packets are to be split, which takes the kernel's metadata of each.
    pub split: bool,
    /// How frames that an XDP program takes reach the reader.
    pub delivery: Delivery,
    /// Longest piece of a frame to keep, in bytes.
    pub snaplen: u32,
    /// Bytes of buffer between the kernel and all readers; `None` takes each source's own default.
    pub buffer: Option<u64>,
    /// Pages of an AF_XDP buffer.
    pub pages: Pages,
    /// Also receive what is addressed to others.
    pub promiscuous: bool,
    /// Deliver each frame at once.
    pub immediate: bool,
    /// How long the kernel may gather frames in a block of a packet ring; `None` takes the ring's default.
    pub block_timeout: Option<Duration>,
    /// Busy-poll the driver this long before sleeping.
    pub busy_poll: Option<Duration>,
    /// Readers that share the interface; 0 for one a receive queue, and at most one a CPU.
    pub threads: usize,
    /// How packet rings share it.
    pub fanout: Mode,
    /// For one reader: the fanout group to join or create; other processes may be members, too.
    pub fanout_group: Option<Fanout>,
    /// The filter expression; `None` or empty accepts everything.
    pub filter: Option<String>,
    /// How the filter sees VLAN tags.
    pub filter_vlan: TagReading,
    /// Where the filter runs; `None` prefers the kernel.
    pub filter_in: Option<FilterLocation>,
    /// Where timestamps come from; packet sockets stamp each frame, and know only the kernel's clock and the card's.
    pub timestamps: TimestampSource,
    /// Where `trace` looks at frames.
    pub trace_points: Points,
    /// Packets a second that `drops` copies at most.
    pub rate_limit: Option<u32>,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            source: None,
            traffic: None,
            take_over: false,
            copy_first: false,
            cooked: None,
            linktype: None,
            split: false,
            delivery: Delivery::Auto,
            snaplen: 262_144,
            buffer: None,
            pages: Pages::Auto,
            promiscuous: true,
            immediate: false,
            block_timeout: None,
            busy_poll: None,
            threads: 1,
            fanout: Mode::Hash,
            fanout_group: None,
            filter: None,
            filter_vlan: TagReading::Live,
            filter_in: None,
            timestamps: TimestampSource::Software,
            trace_points: Points::Both,
            rate_limit: None,
        }
    }
}

impl SourceOptions {
    /// The filters for the expression; setting `stop` ends a compilation.
    pub(crate) fn filters(&self, stop: Arc<AtomicBool>) -> FilterCache {
        FilterCache::new(self.filter.as_deref(), self.filter_vlan, self.snaplen, stop)
    }
}
