//! [`PacketPort`]: AF_PACKET rings, which every interface has.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use linerate_ring::packet::{DirectionFilter, Fanout, Options, Ring, TxRing};
use linerate_ring::{Batch as _, Ring as _};
use linerate_wire::virtio::Flags;
use rustix::event::{PollFd, PollFlags};

use super::{FramePort, SendOutcome, is_up};
use crate::Result;
use crate::device::DeviceQueue;
use crate::rx::{MAX_BATCH, Receiver};
use crate::statistics::{Drops, Statistics};
use crate::tx::MIN_FREE_FRAMES;

/// Bytes of a block of the receive ring: some forty full frames, so that a stream fills it before its
/// timeout.
const BLOCK: u32 = 64 << 10;

/// Bytes of the receive ring.
const BUFFER: u64 = 16 << 20;

/// The timeout after which the kernel retires a partial block: the shortest possible, which a round trip
/// pays.
const RETIRE: Duration = Duration::from_millis(1);

/// Frames of the transmit ring.
const TRANSMIT: u32 = 1024;

/// The rings of one thread.
pub(crate) struct PacketPort {
    ring: Ring,
    transmit: TxRing,
    unsent: bool,
    arena: Arena,
    scratch: Vec<u8>,
}

impl PacketPort {
    /// Opens the rings; those of several threads share the interface's frames by flow.
    pub(crate) fn open(interface: &str, fanout: Option<Fanout>) -> Result<Self> {
        let ring = Ring::open(Options {
            direction: DirectionFilter::In,
            promiscuous: true,
            vnet_hdr: true,
            block_size: BLOCK,
            buffer_size: BUFFER,
            retire_timeout: RETIRE,
            fanout,
            ..Options::new(interface)
        })?;
        let transmit = TxRing::open(interface, TRANSMIT)?;
        Ok(Self { ring, transmit, unsent: false, arena: Arena::default(), scratch: Vec::new() })
    }

    /// The fanout group of the ring.
    pub(crate) fn group(&self) -> Option<u16> {
        self.ring.fanout_group()
    }
}

impl FramePort for PacketPort {
    fn receive(
        &mut self,
        tap: &DeviceQueue,
        receiver: &mut Receiver,
        statistics: &mut Statistics,
    ) -> Result<bool> {
        let Some(mut batch) = self.ring.next_batch() else { return Ok(false) };
        while let Some(frame) = batch.next() {
            // The device accepts super-packets and partial checksums as they are.
            let special = frame
                .virtio
                .filter(|header| header.is_gso() || header.flags.contains(Flags::NEEDS_CSUM));
            if let Some(header) = special {
                self.arena.deliver(tap, receiver, statistics)?;
                receiver.deliver_with(
                    tap,
                    &header,
                    frame.contiguous(&mut self.scratch),
                    statistics,
                )?;
            } else {
                self.arena.push(frame.head());
                if self.arena.ends.len() == MAX_BATCH {
                    self.arena.deliver(tap, receiver, statistics)?;
                }
            }
        }
        self.arena.deliver(tap, receiver, statistics)?;
        Ok(true)
    }

    fn room(&mut self) -> usize {
        // Slots are returned in order, so the next one shows the state of all.
        let (least, _) = self.transmit.frame_len();
        match self.transmit.frame(least) {
            Ok(Some(_)) => MIN_FREE_FRAMES,
            _ => 0,
        }
    }

    fn longest(&self) -> usize {
        self.transmit.frame_len().1
    }

    fn write(
        &mut self,
        longest: usize,
        fill: &mut impl FnMut(&mut [u8]) -> usize,
    ) -> Result<SendOutcome> {
        let Some(mut frame) = self.transmit.frame(longest)? else { return Ok(SendOutcome::Full) };
        let bytes = fill(&mut frame);
        if bytes > 0
            // The same slot, now that the length is known.
            && let Some(frame) = self.transmit.frame(bytes)?
        {
            frame.send();
            self.unsent = true;
        }
        Ok(SendOutcome::Bytes(bytes))
    }

    fn flush(&mut self) -> Result<bool> {
        is_up(self.transmit.flush().map(|()| true), &mut self.unsent)
    }

    fn has_unsent(&self) -> bool {
        self.unsent
    }

    fn wait_to_send(&mut self, timeout: Duration) {
        let mut fds = [PollFd::new(&self.transmit, PollFlags::OUT)];
        // The caller retries in any case.
        let _ = linerate_ring::poll(&mut fds, timeout);
    }

    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.ring.as_fd())
    }

    fn note_error(&mut self) {
        // Clears it; another place detects that the interface is down or gone, for both backends.
        let _ = self.ring.wait(Duration::ZERO);
    }

    fn drops(&self) -> Drops {
        let ring_full = self.ring.statistics().map_or(0, |counts| counts.drops);
        Drops { ring_full, ..Drops::default() }
    }
}

/// Frames of a block one after the other: a block lends its frames one at a time, and joining needs several.
/// The AF_XDP backend does not need this copy.
#[derive(Default)]
struct Arena {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Arena {
    fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    fn deliver(
        &mut self,
        tap: &DeviceQueue,
        receiver: &mut Receiver,
        statistics: &mut Statistics,
    ) -> Result<()> {
        if self.ends.is_empty() {
            return Ok(());
        }
        let mut frames: [&[u8]; MAX_BATCH] = [&[]; MAX_BATCH];
        let mut start = 0;
        for (frame, &end) in frames.iter_mut().zip(&self.ends) {
            *frame = &self.bytes[start..end];
            start = end;
        }
        let result = receiver.deliver(tap, &frames[..self.ends.len()], statistics);
        self.bytes.clear();
        self.ends.clear();
        result
    }
}
