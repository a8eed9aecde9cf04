//! [`Way`]: how frames that the program takes get here, by AF_XDP sockets or by a BPF ring buffer.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use linerate_bpf::filter::Instruction;
use linerate_ring::tee::{self, Tee};
use linerate_ring::xdp::{
    self, AttachMode, BusyPoll, Delivery, Sockets, TimestampSource, WaitStrategy,
};
use linerate_ring::{Frame, Result};

use crate::options::Options;

/// Frames up to which a chunk of 2048 bytes has room.
const SMALL_CHUNK: u32 = 2048;
const LARGE_CHUNK: u32 = 4096;

/// An XDP program on an interface, and what it fills. The reader waits by means of its own.
#[derive(Debug)]
pub(super) enum Way {
    /// One socket a queue, over one UMEM: where the driver writes into it.
    Sockets(Box<Sockets>),
    /// The program copies: where the kernel would have to.
    Buffer(Box<Tee>),
}

/// Which of them, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    delivery: Delivery,
    /// Why this way.
    pub(super) why: String,
    chunk: u32,
    /// Bytes of the longest frame that it can bring, and no longer than the interface takes.
    pub(super) longest: u32,
}

impl Plan {
    /// What `options` come to on `interface`.
    pub(super) fn of(options: &Options, interface: &str) -> Result<Self> {
        let only = options.busy_poll.map(|_| "only sockets poll the driver");
        let (delivery, why) = options.delivery.decided(interface, only);
        // With its Ethernet header and a tag.
        let longest = linerate_net::link::by_name(interface)?.mtu + 18;
        Ok(Self { delivery, why: why.to_owned(), chunk: SMALL_CHUNK, longest }.fitting())
    }

    /// The other way, where a ring buffer was not asked for by name and does not open: its program needs a
    /// newer kernel than AF_XDP does.
    pub(super) fn instead(&self, options: &Options, error: &crate::Error) -> Option<Self> {
        let free = options.delivery == Delivery::Auto && self.delivery == Delivery::RingBuffer;
        let why = format!("a ring buffer does not open here: {error}");
        free.then(|| Self { delivery: Delivery::AfXdp, why, ..*self }.fitting())
    }

    fn fitting(self) -> Self {
        if self.delivery == Delivery::RingBuffer {
            return Self { longest: self.longest.min(tee::MAX_SNAPLEN), ..self };
        }
        let small = self.longest <= SMALL_CHUNK - xdp::HEADROOM;
        let chunk = if small { SMALL_CHUNK } else { LARGE_CHUNK };
        Self { chunk, longest: chunk - xdp::HEADROOM, ..self }
    }

    /// Attaches the program, in the driver only, and has frames of `interface` that `filter` accepts come
    /// this way.
    pub(super) fn open(
        &self,
        options: &Options,
        interface: &str,
        filter: &[Instruction],
    ) -> Result<Way> {
        let batch = u32::try_from(options.batch).unwrap_or(u32::MAX);
        let stamps = options.metadata.timestamp;
        if self.delivery == Delivery::RingBuffer {
            let tee = Tee::builder(interface)
                .buffer(options.ring_size)
                .batch(batch)
                .wait_strategy(WaitStrategy::BLOCKING)
                .timestamps(stamps)
                .filter(Some(filter))
                .mode(Some(AttachMode::Native))
                .take(true)
                .build()?;
            return Ok(Way::Buffer(Box::new(tee)));
        }
        let source = Sockets::builder(interface)
            .buffer(options.ring_size)
            .chunk(self.chunk)
            .multi_buffer(false)
            .batch(batch)
            .prefetch(8)
            .busy_poll(options.busy_poll.map(|time| BusyPoll {
                microseconds: u32::try_from(time.as_micros()).unwrap_or(u32::MAX),
                budget: 64,
            }))
            .wait_strategy(WaitStrategy::BLOCKING)
            .timestamps(if stamps { TimestampSource::Kernel } else { TimestampSource::None })
            .filter(Some(filter))
            .mode(Some(AttachMode::Native))
            .build()?;
        Ok(Way::Sockets(Box::new(source)))
    }
}

impl Way {
    #[inline]
    pub(super) fn ready(&mut self) -> bool {
        match self {
            Self::Sockets(source) => source.ready(),
            Self::Buffer(tee) => tee.ready(),
        }
    }

    #[inline]
    pub(super) fn batch(&mut self) -> Option<Frames<'_>> {
        match self {
            Self::Sockets(source) => source.batch().map(Frames::Sockets),
            Self::Buffer(tee) => tee.batch().map(Frames::Buffer),
        }
    }

    /// To be called before the last look of a reader that then sleeps on the descriptors: the program of
    /// a ring buffer wakes nobody who did not ask for it.
    #[inline]
    pub(super) fn announce_sleep(&self) {
        if let Self::Buffer(tee) = self {
            tee.announce_sleep();
        }
    }

    #[inline]
    pub(super) fn awake(&self) {
        if let Self::Buffer(tee) = self {
            tee.awake();
        }
    }

    /// Gives back what was passed over and lent, so that descriptors are readable for new frames only.
    pub(super) fn release(&mut self) {
        match self {
            Self::Sockets(source) => source.release(),
            Self::Buffer(tee) => tee.release(),
        }
    }

    /// Whether the interface is still there and up.
    pub(super) fn check(&mut self) -> Result<()> {
        match self {
            Self::Sockets(source) => source.wait(Duration::ZERO).map(drop),
            Self::Buffer(tee) => tee.check(),
        }
    }

    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Sockets(source) => source.descriptors().collect(),
            Self::Buffer(tee) => vec![tee.as_fd()],
        }
    }

    pub(super) fn set_filter(&mut self, filter: &[Instruction]) -> Result<()> {
        match self {
            Self::Sockets(source) => source.set_filter(Some(filter)),
            Self::Buffer(tee) => tee.set_filter(Some(filter)),
        }
    }

    pub(super) fn stop(&mut self) -> Result<()> {
        match self {
            Self::Sockets(source) => source.stop(),
            Self::Buffer(tee) => tee.stop(),
        }
    }

    /// Frames that were taken from the stack and found no room.
    pub(super) fn lost(&self) -> Result<u64> {
        Ok(match self {
            Self::Sockets(source) => source.statistics()?.lost(),
            Self::Buffer(tee) => tee.statistics()?.lost(),
        })
    }

    /// In words.
    pub(super) fn mode(&self) -> String {
        match self {
            Self::Sockets(source) if source.mode().zero_copy => {
                format!("{} XDP, AF_XDP sockets, zero-copy", source.attach_mode())
            }
            Self::Sockets(source) => {
                format!("{} XDP, AF_XDP sockets, one copy by the kernel", source.attach_mode())
            }
            Self::Buffer(tee) => format!("{} XDP, a ring buffer", tee.mode()),
        }
    }
}

/// Frames of one queue, or of the ring buffer.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "made once a batch, on the stack")]
pub(super) enum Frames<'w> {
    Sockets(xdp::Batch<'w>),
    Buffer(tee::Batch<'w>),
}

impl Frames<'_> {
    #[inline]
    pub(super) fn peek(&mut self) -> Option<&[u8]> {
        match self {
            Self::Sockets(batch) => batch.peek(),
            Self::Buffer(batch) => batch.peek(),
        }
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<Frame<'_>> {
        match self {
            Self::Sockets(batch) => batch.next(),
            Self::Buffer(batch) => batch.next(),
        }
    }
}
