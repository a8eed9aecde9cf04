//! Where frames come from: [`Source`] is one of the rings, without dynamic dispatch for a frame.

mod affinity;
pub(crate) mod any;
mod kind;
mod open;
mod options;
mod select;
mod trace;

use linerate_bpf::LoadedProgram;
use linerate_bpf::filter::{ClassicProgram, translate};
use linerate_ring::receiver::{self, Receiver};
use linerate_ring::{Action, Ring as _, packet, ring_of_variants, tee, trace as ring_trace, xdp};

use crate::filter::PACKET_HOST;
use crate::statistics::{DropCause, Drops};

pub use kind::SourceKind;
pub(crate) use open::inside;
pub use open::{OpenInterface, TakenFrames, UnusedSetting};
pub use options::SourceOptions;
pub use select::{Selection, select};

/// The frames of an interface.
#[derive(Debug)]
pub enum Source {
    /// A packet socket's ring.
    Packet(Box<packet::Ring>),
    /// An XDP program, which takes the frames or copies them as a tee.
    Xdp(Box<Receiver>),
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

impl From<packet::Statistics> for SourceStatistics {
    fn from(counts: packet::Statistics) -> Self {
        let drops = Drops::from([
            (DropCause::PacketRingFull, counts.drops),
            (DropCause::Freezes, counts.freezes),
            (DropCause::Cut, counts.cut),
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

/// Which frames still come after [`Source::end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopOutcome {
    /// All are in the ring: the source is empty when nothing is ready.
    Whole,
    /// The kernel retires the last block when its timeout ends.
    Late,
    /// The source could not be stopped: frames still come.
    Open,
}

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

    /// Whether VLAN tags that the driver stripped are inserted again.
    pub fn has_stripped_tags(&self) -> bool {
        match self {
            Self::Packet(_) => true,
            Self::Xdp(receiver) => receiver.config().has_stripped_tags,
            Self::Trace(_) => self.kind() == SourceKind::Drops,
        }
    }

    /// What became of what is traced since the last call, as a sentence for the user.
    pub fn take_notice(&mut self) -> Option<String> {
        match self {
            Self::Trace(trace) => trace::notice(trace),
            Self::Packet(_) | Self::Xdp(_) => None,
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

    /// Stops receiving; which frames still come.
    pub fn end(&mut self) -> StopOutcome {
        match self.stop() {
            Ok(()) if matches!(self, Self::Packet(_)) => StopOutcome::Late,
            Ok(()) => StopOutcome::Whole,
            Err(error) => {
                tracing::debug!(%error, "a source could not be stopped");
                StopOutcome::Open
            }
        }
    }
}

/// A batch of a [`Source`].
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "made once a batch, on the stack")]
pub enum Batch<'s> {
    /// Of a packet ring.
    Packet(packet::Batch<'s>),
    /// Of an XDP program.
    Xdp(receiver::Frames<'s>),
    /// Of tracing programs.
    Trace(tee::Batch<'s>),
}

ring_of_variants!(Source, Source, Batch, SourceStatistics, Packet, Xdp, Trace);
