//! [`Source`]: the rings behind one face, without dynamic dispatch for a frame.

use std::time::Duration;

use linerate_ring::{Frame, packet, tee, xdp};

use crate::choose::Kind;
use crate::ledger::Drops;

/// Frames of an interface, whichever way they come.
#[derive(Debug)]
pub enum Source {
    /// A packet socket's ring. With it comes nothing else.
    Packet(Box<packet::Ring>),
    /// AF_XDP sockets, and a closed packet ring that keeps the interface promiscuous.
    Xdp(Box<xdp::Source>, Option<Box<packet::Ring>>),
    /// A ring buffer that an XDP program copies to, as a tee or taking the frames, and a closed
    /// packet ring that keeps the interface promiscuous.
    Tee(Box<tee::Tee>, Option<Box<packet::Ring>>),
}

/// What a source counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that the filter in the kernel accepted, lost ones included.
    pub received: u64,
    /// Those that were lost.
    pub drops: Drops,
}

/// What one batch gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// There was none.
    Nothing,
    /// This many frames, every one of the batch.
    All(u64),
    /// The taker wanted no more.
    Enough,
}

/// What is still to come after [`Source::stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// All is in the ring: the source is dry when it has nothing ready.
    Whole,
    /// The kernel hands the last block over when its timeout ends.
    Late,
    /// The source could not be closed: frames still come.
    Open,
}

impl Source {
    /// Which one it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Packet(_) => Kind::Packet,
            Self::Xdp(..) => Kind::Xdp,
            Self::Tee(tee, _) if tee.slot().is_none() => Kind::Xdp,
            Self::Tee(..) => Kind::Tee,
        }
    }

    /// Whether VLAN tags that the driver took out of frames are in them again.
    pub fn has_stripped_tags(&self) -> bool {
        match self {
            Self::Packet(_) => true,
            Self::Xdp(source, _) => source.stamps() == xdp::Stamps::Hardware,
            Self::Tee(..) => false,
        }
    }

    /// Waits until there is a batch; false if `timeout` passed or a signal came. How it waits is
    /// each ring's own affair: short naps while traffic flows, sleep in the kernel when it does not.
    ///
    /// # Errors
    ///
    /// As the rings' own `wait`: an interface that went down or away, and system errors.
    pub fn wait(&mut self, timeout: Duration) -> linerate_ring::Result<bool> {
        match self {
            Self::Packet(ring) => ring.wait(timeout),
            Self::Xdp(source, _) => source.wait(timeout),
            Self::Tee(tee, _) => tee.wait(timeout),
        }
    }

    /// Hands the frames of one batch to `take` until it answers false, and gives the memory back.
    #[inline]
    pub fn drain(&mut self, mut take: impl FnMut(&Frame<'_>) -> bool) -> Drained {
        macro_rules! drain {
            ($source:expr) => {{
                let Some(mut batch) = $source.batch() else { return Drained::Nothing };
                let mut frames = 0;
                while let Some(frame) = batch.next() {
                    if !take(&frame) {
                        return Drained::Enough;
                    }
                    frames += 1;
                }
                Drained::All(frames)
            }};
        }
        match self {
            Self::Packet(ring) => drain!(ring),
            Self::Xdp(source, _) => drain!(source),
            Self::Tee(tee, _) => drain!(tee),
        }
    }

    /// The counts so far.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub fn counts(&self) -> linerate_ring::Result<Counts> {
        Ok(match self {
            Self::Packet(ring) => {
                let counts = ring.statistics();
                let drops =
                    Drops { tp_drops: counts.drops, freezes: counts.freezes, ..Drops::default() };
                Counts { received: counts.packets, drops }
            }
            Self::Xdp(source, _) => {
                let counts = source.statistics()?;
                let drops = Drops {
                    xdp_fill_empty: counts.fill_empty,
                    receive_ring_full: counts.ring_full,
                    too_long: counts.too_long,
                    invalid_descriptors: counts.invalid_receive,
                    ..Drops::default()
                };
                Counts { received: counts.matched, drops }
            }
            Self::Tee(tee, _) => {
                let counts = tee.statistics()?;
                let drops = Drops { ring_buffer_full: counts.lost(), ..Drops::default() };
                Counts { received: counts.captured + counts.lost(), drops }
            }
        })
    }

    /// Lets nothing more in; what came before is still to be read.
    pub fn stop(&mut self) -> Stopped {
        let (stopped, last) = match self {
            Self::Packet(ring) => (ring.stop(), Stopped::Late),
            Self::Xdp(source, _) => (source.stop(), Stopped::Whole),
            Self::Tee(tee, _) => (tee.stop(), Stopped::Whole),
        };
        match stopped {
            Ok(()) => last,
            Err(error) => {
                tracing::debug!(%error, "a source that is not closed");
                Stopped::Open
            }
        }
    }

    /// How full the buffer is, 0 to 1, where the source can tell.
    pub fn fill(&mut self) -> Option<f32> {
        match self {
            Self::Packet(_) => None,
            Self::Xdp(source, _) => Some(source.pending() as f32 / source.depth().max(1) as f32),
            Self::Tee(tee, _) => Some(tee.pending() as f32 / tee.capacity().max(1) as f32),
        }
    }
}
