//! Where frames come from: [`Source`] has one interface for all rings, without dynamic dispatch for a frame.

mod affinity;
mod kind;
mod open;
mod options;
mod select;
mod trace;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use linerate_bpf::LoadedProgram;
use linerate_bpf::filter::{ClassicProgram, translate};
use linerate_ring::tee::Action;
use linerate_ring::xdp::Share;
use linerate_ring::{Frame, Timestamp, packet, tee, trace as ring_trace, xdp};

use crate::filter::PACKET_HOST;
use crate::statistics::{DropCause, Drops};

pub use kind::SourceKind;
pub(crate) use open::inside;
pub use open::{OpenInterface, TakenFrames};
pub use options::{SourceOptions, TimestampSource};
pub use select::{Selection, select};

/// The frames of an interface.
#[derive(Debug)]
pub enum Source {
    /// A packet socket's ring.
    Packet(Box<packet::Ring>),
    /// An XDP program, which takes the frames or copies them as a tee.
    Xdp(Box<xdp::Receiver>),
    /// A ring buffer that tracing programs copy to: of an XDP program, or of what the kernel drops.
    Trace(Box<ring_trace::Trace>),
}

/// What a source counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStatistics {
    /// Frames that the filter in the kernel accepted, lost ones included.
    pub received: u64,
    /// Those that were lost.
    pub drops: Drops,
}

/// Reads the statistics of a source from any thread. Created by [`Source::statistics_reader`].
#[derive(Debug)]
pub enum StatisticsReader {
    /// Of a packet ring.
    Packet(packet::StatisticsReader),
    /// Of an XDP program.
    Xdp(xdp::ReceiverStatisticsReader),
    /// Of tracing programs.
    Trace(ring_trace::StatisticsReader),
}

impl StatisticsReader {
    /// The counts since the source was opened.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub fn statistics(&self) -> linerate_ring::Result<SourceStatistics> {
        Ok(match self {
            Self::Packet(counters) => counters.read().into(),
            Self::Xdp(counters) => counters.read()?.into(),
            Self::Trace(counters) => counters.read()?.into(),
        })
    }
}

impl From<packet::Statistics> for SourceStatistics {
    fn from(counts: packet::Statistics) -> Self {
        let drops = Drops::from([
            (DropCause::PacketRingFull, counts.drops),
            (DropCause::Freezes, counts.freezes),
        ]);
        Self { received: counts.packets, drops }
    }
}

impl From<xdp::Statistics> for SourceStatistics {
    fn from(counts: xdp::Statistics) -> Self {
        let drops = Drops::from([
            (DropCause::XdpFillEmpty, counts.fill_empty),
            (DropCause::ReceiveRingFull, counts.ring_full),
            (DropCause::TooLong, counts.too_long),
            (DropCause::RingBufferFull, counts.ring_buffer_full),
            (DropCause::InvalidDescriptors, counts.invalid_receive),
            (DropCause::OutOfOrder, counts.disordered),
        ]);
        Self { received: counts.matched, drops }
    }
}

impl From<ring_trace::Statistics> for SourceStatistics {
    fn from(counts: ring_trace::Statistics) -> Self {
        let drops = Drops::from([
            (DropCause::RingBufferFull, counts.lost()),
            (DropCause::RateLimited, counts.limited),
            (DropCause::MissedRuns, counts.missed),
            (DropCause::Cut, counts.cut),
            (DropCause::UnknownNamespace, counts.unknown),
        ]);
        Self { received: counts.captured + counts.lost() + counts.limited, drops }
    }
}

/// Outcome of draining one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainOutcome {
    /// There was none.
    Nothing,
    /// This many frames, every one of the batch.
    All(u64),
    /// The handler stopped.
    Enough,
}

/// Which frames still come after [`Source::stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopOutcome {
    /// All are in the ring: the source is empty when nothing is ready.
    Whole,
    /// The kernel retires the last block when its timeout ends.
    Late,
    /// The source could not be stopped: frames still come.
    Open,
}

/// A batch; if it is dropped with frames left, these come next.
struct Kept<B: Keep>(Option<B>);

impl<B: Keep> Drop for Kept<B> {
    #[inline]
    fn drop(&mut self) {
        if let Some(batch) = self.0.take() {
            batch.suspend();
        }
    }
}

/// Operations common to the batches of all rings.
trait Keep {
    fn suspend(self);
}

macro_rules! suspend {
    ($($ring:ident),*) => {
        $(
            impl Keep for $ring::Batch<'_> {
                #[inline]
                fn suspend(self) {
                    self.suspend();
                }
            }
        )*
    };
}

suspend!(packet, tee, xdp);

impl Source {
    /// Which one it is.
    pub fn kind(&self) -> SourceKind {
        match self {
            Self::Packet(_) => SourceKind::Packet,
            Self::Xdp(receiver) if receiver.config().action == Action::Copy => SourceKind::Tee,
            Self::Xdp(_) => SourceKind::Xdp,
            Self::Trace(trace) if trace.target().is_some() => SourceKind::Trace,
            Self::Trace(_) => SourceKind::Drops,
        }
    }

    /// The receive queues or CPUs whose frames it has; `None` if it has frames of all.
    pub(crate) fn share(&self) -> Option<Share> {
        match self {
            Self::Xdp(receiver) => Some(receiver.share()),
            Self::Packet(_) | Self::Trace(_) => None,
        }
    }

    /// The counts of each receive queue that had frames; empty where the source does not tell.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub(crate) fn queue_statistics(&self) -> linerate_ring::Result<Vec<(u32, SourceStatistics)>> {
        let Self::Xdp(receiver) = self else { return Ok(Vec::new()) };
        let queues = receiver.queue_statistics()?.into_iter();
        Ok(queues.map(|(queue, counts)| (queue, counts.into())).collect())
    }

    /// A time before which no frame was stamped that will still come; `None` if one waits to be read or the
    /// source does not tell.
    pub(crate) fn empty_since(&mut self) -> Option<Timestamp> {
        match self {
            Self::Xdp(receiver) => receiver.empty_since(),
            Self::Packet(_) | Self::Trace(_) => None,
        }
    }

    /// Whether VLAN tags that the driver stripped are inserted again.
    pub fn has_stripped_tags(&self) -> bool {
        match self {
            Self::Packet(_) => true,
            Self::Xdp(receiver) => receiver.config().has_stripped_tags,
            Self::Trace(_) => self.kind() == SourceKind::Drops,
        }
    }

    /// Waits until there is a batch; false if `timeout` passed or a signal came. The ring decides how: short
    /// timed sleeps while traffic flows, a sleep in the kernel when it does not.
    ///
    /// # Errors
    ///
    /// As the rings' own `wait`: an interface that went down or away, and system errors.
    pub fn wait(&mut self, timeout: Duration) -> linerate_ring::Result<bool> {
        match self {
            Self::Packet(ring) => ring.wait(timeout),
            Self::Xdp(receiver) => receiver.wait(timeout),
            Self::Trace(trace) => trace.wait(timeout),
        }
    }

    /// What became of what is traced since the last call, as a sentence for the user.
    pub fn take_notice(&mut self) -> Option<String> {
        match self {
            Self::Trace(trace) => trace::notice(trace),
            Self::Packet(_) | Self::Xdp(_) => None,
        }
    }

    /// Calls `take` for the frames of one batch until it returns false, and releases their memory. After
    /// false, and where it unwinds, the frames that were taken stay valid until the next call of this function
    /// or of [`Source::release`], and the rest of the batch comes next.
    #[inline]
    pub fn drain(&mut self, mut take: impl FnMut(&Frame<'_>) -> bool) -> DrainOutcome {
        macro_rules! drain {
            ($batch:expr) => {{
                let mut kept = Kept(Some($batch));
                let mut frames = 0;
                while let Some(frame) = kept.0.as_mut().and_then(|batch| batch.next()) {
                    if !take(&frame) {
                        return DrainOutcome::Enough;
                    }
                    frames += 1;
                }
                drop(kept.0.take());
                DrainOutcome::All(frames)
            }};
        }
        match self {
            Self::Packet(ring) => match ring.next_batch() {
                Some(batch) => drain!(batch),
                None => DrainOutcome::Nothing,
            },
            Self::Xdp(receiver) => match receiver.next_batch() {
                Some(xdp::Frames::Sockets(batch)) => drain!(batch),
                Some(xdp::Frames::RingBuffer(batch)) => drain!(batch),
                None => DrainOutcome::Nothing,
            },
            Self::Trace(trace) => match trace.next_batch() {
                Some(batch) => drain!(batch),
                None => DrainOutcome::Nothing,
            },
        }
    }

    /// Whether there is a batch.
    #[inline]
    pub fn ready(&mut self) -> bool {
        match self {
            Self::Packet(ring) => ring.ready(),
            Self::Xdp(receiver) => receiver.ready(),
            Self::Trace(trace) => trace.ready(),
        }
    }

    /// Whether every frame that the kernel has delivered was taken.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        match self {
            Self::Packet(ring) => ring.is_empty(),
            Self::Xdp(receiver) => !receiver.ready(),
            Self::Trace(trace) => !trace.ready(),
        }
    }

    /// Releases what was taken before `take` returned false; of a packet ring only when the whole block has
    /// been taken.
    #[inline]
    pub fn release(&mut self) {
        match self {
            Self::Packet(ring) => ring.release(),
            Self::Xdp(receiver) => receiver.release(),
            Self::Trace(trace) => trace.release(),
        }
    }

    /// What to sleep on: readable when there is a batch, if [`Source::announce_sleep`] was called before
    /// the last look at [`Source::ready`]. For readers that wait for other things as well.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Packet(ring) => vec![ring.as_fd()],
            Self::Xdp(receiver) => receiver.descriptors(),
            Self::Trace(trace) => trace.descriptors().collect(),
        }
    }

    /// See [`Source::descriptors`].
    pub fn announce_sleep(&self) {
        match self {
            Self::Xdp(receiver) => receiver.announce_sleep(),
            Self::Trace(trace) => trace.announce_sleep(),
            Self::Packet(_) => {}
        }
    }

    /// Cancels [`Source::announce_sleep`].
    pub fn cancel_sleep(&self) {
        match self {
            Self::Xdp(receiver) => receiver.cancel_sleep(),
            Self::Trace(trace) => trace.cancel_sleep(),
            Self::Packet(_) => {}
        }
    }

    /// Replaces the filter in the kernel, between two frames. `filter` is a program for a packet socket,
    /// which sees frames without their outer VLAN tag; XDP gets one that gives the same verdicts. Frames
    /// that are in the source already have passed the old one.
    ///
    /// # Errors
    ///
    /// If the kernel refuses it, or XDP cannot run the program; the old filter then stays.
    pub fn set_filter(&mut self, filter: Option<&ClassicProgram>) -> linerate_ring::Result<()> {
        match self {
            Self::Packet(ring) => ring.set_filter(filter.cloned()),
            Self::Xdp(_) => {
                let loaded = self.load_filter(filter)?;
                self.replace_filter(&loaded)
            }
            Self::Trace(_) => Err(linerate_ring::Error::Invalid(
                "the filter of a trace cannot be replaced while it runs".to_owned(),
            )),
        }
    }

    /// Loads the program of XDP with another filter, for [`Source::replace_filter`].
    ///
    /// # Errors
    ///
    /// As [`Source::set_filter`], and for sources other than XDP.
    pub fn load_filter(
        &self,
        filter: Option<&ClassicProgram>,
    ) -> linerate_ring::Result<LoadedProgram> {
        let refused = |why| linerate_ring::Error::Invalid(format!("no filter for XDP: {why}"));
        let Self::Xdp(receiver) = self else { return Err(refused("another source".to_owned())) };
        let translated = filter.map(|filter| {
            let in_place = filter.with_inline_vlan_tags(PACKET_HOST);
            let in_place = in_place.ok_or_else(|| refused("what it reads".to_owned()))?;
            translate(&in_place).map_err(|why| refused(why.to_string()))
        });
        receiver.load_filter(translated.transpose()?.as_deref())
    }

    /// As [`Source::set_filter`], without a privilege.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub fn replace_filter(&mut self, loaded: &LoadedProgram) -> linerate_ring::Result<()> {
        match self {
            Self::Xdp(receiver) => receiver.replace_filter(loaded),
            Self::Packet(_) | Self::Trace(_) => Ok(()),
        }
    }

    /// What happens to the frames of `xdp` that the filter accepts. False where that cannot be changed.
    pub fn set_action(&self, action: Action) -> bool {
        matches!(self, Self::Xdp(receiver) if receiver.set_action(action))
    }

    /// A handle that reads the statistics while frames are lent, and from other threads.
    ///
    /// # Errors
    ///
    /// When there is no descriptor left.
    pub fn statistics_reader(&self) -> linerate_ring::Result<StatisticsReader> {
        Ok(match self {
            Self::Packet(ring) => StatisticsReader::Packet(ring.statistics_reader()),
            Self::Xdp(receiver) => StatisticsReader::Xdp(receiver.statistics_reader()?),
            Self::Trace(trace) => StatisticsReader::Trace(trace.statistics_reader()?),
        })
    }

    /// The counts so far.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub fn statistics(&self) -> linerate_ring::Result<SourceStatistics> {
        Ok(match self {
            Self::Packet(ring) => ring.statistics().into(),
            Self::Xdp(receiver) => receiver.statistics()?.into(),
            Self::Trace(trace) => trace.statistics()?.into(),
        })
    }

    /// Stops receiving; frames from before can still be read.
    pub fn stop(&mut self) -> StopOutcome {
        let (stopped, last) = match self {
            Self::Packet(ring) => (ring.stop(), StopOutcome::Late),
            Self::Xdp(receiver) => (receiver.stop(), StopOutcome::Whole),
            Self::Trace(trace) => (trace.stop(), StopOutcome::Whole),
        };
        match stopped {
            Ok(()) => last,
            Err(error) => {
                tracing::debug!(%error, "a source could not be stopped");
                StopOutcome::Open
            }
        }
    }

    /// How full the buffer is, 0 to 1.
    pub fn fill_level(&mut self) -> f32 {
        match self {
            Self::Packet(ring) => ring.fill_level(),
            Self::Xdp(receiver) => receiver.fill_level(),
            Self::Trace(trace) => trace.fill_level(),
        }
    }
}
