//! [`Options`]: what to ask of a receiver.

use std::time::Duration;

use linerate_bpf::steer::TimestampSource;
use linerate_bpf::tee::{Action, MAX_SNAPLEN};
use linerate_bpf::xdp::AttachMode;

use crate::region::Pages;
use crate::wait::WaitStrategy;
use crate::xdp::{CopyMode, DEFAULT_CHUNK_SIZE};

/// How the XDP program delivers the frames that it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// [`Delivery::AfXdp`] where the driver writes into the UMEM itself, or where something was asked
    /// for that only sockets have; else [`Delivery::RingBuffer`].
    #[default]
    Auto,
    /// AF_XDP sockets over a UMEM.
    AfXdp,
    /// A BPF ring buffer: the program copies. On a driver without zero-copy the kernel copies in
    /// either case, and into a ring buffer it does so in the order of memory.
    RingBuffer,
}

linerate_net::named!(
    Delivery, "delivery": Auto = "auto", AfXdp = "af-xdp", RingBuffer = "ringbuf"
);

/// What to ask of a receiver.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the program delivers frames.
    pub delivery: Delivery,
    /// What happens to the frames that the filter accepts. [`Action::Copy`] makes a tee, which other captures share,
    /// and which always has a ring buffer. Sockets redirect from the start: with [`Action::CopyThenRedirect`] only a
    /// request for [`Delivery::AfXdp`] opens them.
    pub action: Action,
    /// Frames whose VLAN tag the driver took out are left to the stack, where the driver tells. Not with
    /// [`Action::Copy`] or [`TimestampSource::Hardware`].
    pub untagged: bool,
    /// Native or generic only; `None` takes native where the driver has it.
    pub mode: Option<AttachMode>,
    /// Receive queues that sockets read; `None` reads all. Frames of the others go to the stack.
    pub queues: Option<Vec<u32>>,
    /// Ring buffers; `None` takes those of [`RingLayout::new`](crate::tee::RingLayout::new).
    pub rings: Option<u32>,
    /// Bytes of memory for frames; `None` takes the default of the delivery. Queues share a UMEM evenly. Ring buffers
    /// are each rounded up to a power of two, in small pages of the kernel.
    pub buffer: Option<usize>,
    /// Pages of a UMEM.
    pub pages: Pages,
    /// Bytes of a chunk of a UMEM: 2048 or 4096. A frame longer than the chunk less 256 bytes takes several, where the
    /// kernel has multi-buffer frames, else it is lost and counted. A [`Receiver`](crate::Receiver) computes it from
    /// the MTU where `contiguous` is set.
    pub chunk_size: u32,
    /// Whether sockets accept a copy in the kernel.
    pub copy_mode: CopyMode,
    /// Bytes to keep of each frame in a ring buffer, at most.
    pub snaplen: u32,
    /// Every frame comes in one piece: chunks are as large as the MTU needs, up to 4096 bytes.
    pub contiguous: bool,
    /// Frames in a batch, at most; of sockets, descriptors. 64 to 512 make sense.
    pub batch: u32,
    /// Frames to fetch into the cache ahead of the reader, from a UMEM.
    pub prefetch: u32,
    /// Who stamps frames. A ring buffer has the kernel's stamps or none.
    pub timestamps: TimestampSource,
    /// Busy-poll the driver this long: the reader's system calls run the card's receive loop on the reader's core,
    /// instead of an interrupt elsewhere. Wants `napi_defer_hard_irqs` and `gro_flush_timeout` set on the interface to
    /// keep its interrupts off.
    pub busy_poll: Option<Duration>,
    /// Frames of [`Receiver::take_tx`](crate::Receiver::take_tx); 0 for a receiver that only receives.
    pub transmit: u32,
    /// How [`Ring::wait`](crate::Ring::wait) waits.
    pub wait_strategy: WaitStrategy,
    /// Also receive what is addressed to others.
    pub promiscuous: bool,
    /// Receivers of a group, such as [`Receiver::open_group`](crate::Receiver::open_group); where there are fewer queues
    /// or ring buffers, one for each.
    pub readers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            delivery: Delivery::Auto,
            action: Action::Redirect,
            untagged: false,
            mode: None,
            queues: None,
            rings: None,
            buffer: None,
            pages: Pages::Auto,
            chunk_size: DEFAULT_CHUNK_SIZE,
            copy_mode: CopyMode::Auto,
            snaplen: MAX_SNAPLEN,
            contiguous: false,
            batch: 256,
            prefetch: 0,
            timestamps: TimestampSource::Software,
            busy_poll: None,
            transmit: 0,
            wait_strategy: WaitStrategy::default(),
            promiscuous: false,
            readers: 1,
        }
    }
}
