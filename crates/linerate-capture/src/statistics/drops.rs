//! The causes for which a capture loses packets, and their counts.

use std::fmt;
use std::ops::{Index, IndexMut};

use serde::ser::{Serialize, SerializeMap, Serializer};

/// Where packets of a cause are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// In the network card or its driver.
    Interface,
    /// Between the driver and the reader, in a ring that the reader did not empty fast enough.
    Ring,
    /// Between the driver and the reader, for another reason.
    Kernel,
    /// Between the reader and the file.
    Output,
    /// Nowhere: what is counted is no loss.
    Event,
}

/// Defines [`DropCause`] from one row for each cause: its name, its name in the JSON, and its stage.
macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident, $name:literal, $stage:ident;)*) => {
        /// Why a packet was lost.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum DropCause {
            $($(#[$doc])* $cause,)*
        }

        linerate_net::named!(DropCause, "cause of loss": $($cause = $name),*);

        impl DropCause {
            /// Whether packets of this cause are lost; the other causes are events without a loss.
            pub const fn is_loss(self) -> bool {
                !matches!(self.stage(), Stage::Event)
            }

            /// Whether tcpdump calls this "dropped by kernel": lost between the driver and the reader.
            pub const fn is_kernel(self) -> bool {
                matches!(self.stage(), Stage::Ring | Stage::Kernel)
            }

            const fn stage(self) -> Stage {
                match self {
                    $(Self::$cause => Stage::$stage,)*
                }
            }
        }
    };
}

causes! {
    /// The interface had no buffer or the driver no time (`rx_missed_errors`, `rx_fifo_errors` or
    /// `rx_over_errors`). It includes packets that the filter would have rejected.
    Interface, "interface", Interface;
    /// The fill ring of an AF_XDP socket was empty.
    XdpFillEmpty, "xdp_fill_empty", Ring;
    /// The receive ring of an AF_XDP socket was full.
    ReceiveRingFull, "receive_ring_full", Ring;
    /// Frames longer than an AF_XDP chunk, where the driver has no multi-buffer frames.
    TooLong, "too_long", Kernel;
    /// The kernel found a descriptor of an AF_XDP ring invalid.
    InvalidDescriptors, "invalid_descriptors", Kernel;
    /// A packet socket's ring had no free block (`tp_drops`).
    PacketRingFull, "tp_drops", Ring;
    /// Times that a packet socket's ring froze (`tp_freeze_q_cnt`): events, not packets, and therefore
    /// not part of the total.
    Freezes, "freezes", Event;
    /// The BPF ring buffer was full.
    RingBufferFull, "ring_buffer_full", Ring;
    /// The packets that the kernel dropped were more than the limit of a second (`--rate-limit`).
    RateLimited, "rate_limited", Kernel;
    /// A tracing program ran already on that CPU when the frame came, and the kernel did not start it again.
    /// It includes packets that the filter would have rejected.
    MissedRuns, "missed_runs", Kernel;
    /// Frames that were captured, cut: their other buffers could not be read, or no block of a packet ring holds them.
    Cut, "cut", Event;
    /// Packets that the kernel dropped without a sign of the network namespace they were in.
    UnknownNamespace, "unknown_namespace", Event;
    /// Packets of flows that `--sample` leaves out: nobody wants them, so they are not part of the total.
    Sampled, "sampled", Event;
    /// Packets whose processes are not selected (`--pid`, `--process`, `--container`, `--unit`), or not known then.
    NotSelected, "not_selected", Event;
    /// Packets of no known process, where processes are looked for; captured, unless processes are selected.
    Unattributed, "unattributed", Event;
    /// Packets after the first bytes of their flows (`--cutoff`), which are not wanted either.
    Cutoff, "cutoff", Event;
    /// Packets of several queues or readers that came after others with later timestamps had been written: they
    /// are captured, out of order.
    OutOfOrder, "out_of_order", Event;
    /// The ring overflowed while the reader waited for the writer.
    WriterTooSlow, "writer_too_slow", Kernel;
    /// The file could not take it: disk full, quota, I/O error.
    Disk, "disk", Output;
    /// The reader of the pipe had gone.
    PipeClosed, "pipe_closed", Output;
}

/// Packets lost since the start of the capture, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; DropCause::ALL.len()]);

impl<const N: usize> From<[(DropCause, u64); N]> for Drops {
    fn from(counts: [(DropCause, u64); N]) -> Self {
        let mut drops = Self::default();
        for (cause, count) in counts {
            drops[cause] = count;
        }
        drops
    }
}

impl Index<DropCause> for Drops {
    type Output = u64;

    fn index(&self, cause: DropCause) -> &u64 {
        &self.0[cause as usize]
    }
}

impl IndexMut<DropCause> for Drops {
    fn index_mut(&mut self, cause: DropCause) -> &mut u64 {
        &mut self.0[cause as usize]
    }
}

impl Drops {
    /// All lost packets.
    pub fn total(&self) -> u64 {
        self.iter().filter(|(cause, _)| cause.is_loss()).map(|(_, count)| count).sum()
    }

    /// What tcpdump calls "dropped by kernel": lost between the driver and the reader.
    pub fn kernel(&self) -> u64 {
        self.iter().filter(|(cause, _)| cause.is_kernel()).map(|(_, count)| count).sum()
    }

    /// Every cause with its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropCause, u64)> + '_ {
        DropCause::ALL.iter().copied().zip(self.0)
    }

    /// The sum of two, cause by cause.
    pub fn plus(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
        self
    }

    /// What the rings lost since `before`. While the reader waits for the writer, rings overflow only
    /// because nobody empties them: those losses count for the writer.
    pub(crate) fn ring_losses_since(&self, before: &Self) -> Self {
        let mut losses = Self::default();
        for (cause, count) in self.iter().filter(|(cause, _)| cause.stage() == Stage::Ring) {
            losses[cause] = count.saturating_sub(before[cause]);
        }
        losses
    }

    /// These counts with `moved`, sums of [`Drops::ring_losses_since`], attributed to the writer. The total
    /// stays the same.
    pub(crate) fn attributed_to_writer(mut self, moved: &Self) -> Self {
        self.0.iter_mut().zip(moved.0).for_each(|(count, moved)| *count -= moved);
        self[DropCause::WriterTooSlow] += moved.total();
        self
    }
}

impl Serialize for Drops {
    /// A map of all causes, and `total`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len() + 1))?;
        for (cause, count) in self.iter() {
            map.serialize_entry(cause.name(), &count)?;
        }
        map.serialize_entry("total", &self.total())?;
        map.end()
    }
}

impl fmt::Display for Drops {
    /// The causes that lost something, such as `tp_drops 12, disk 3`; `none` otherwise.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (cause, count) in self.iter().filter(|(_, count)| *count > 0) {
            write!(f, "{separator}{} {count}", cause.name().replace('_', " "))?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::DropCause::*;
    use super::*;

    #[test]
    fn attribution_to_the_writer_moves_counts_and_keeps_the_total() {
        let before = Drops::from([(PacketRingFull, 3), (Interface, 1)]);
        let drops = Drops::from([(PacketRingFull, 10), (ReceiveRingFull, 2), (Interface, 1)]);
        let moved = drops.attributed_to_writer(&drops.ring_losses_since(&before));
        let counts = (moved[PacketRingFull], moved[ReceiveRingFull], moved[WriterTooSlow]);
        assert_eq!(counts, (3, 0, 9));
        assert_eq!(moved.total(), drops.total());
    }

    #[test]
    fn freezes_are_no_packets_and_silence_is_none() {
        let drops = Drops::from([(Freezes, 4)]);
        assert_eq!((drops.total(), drops.to_string()), (0, "freezes 4".into()));
        assert_eq!(Drops::default().to_string(), "none");
    }
}
