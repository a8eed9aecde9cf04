//! [`XdpPort`]: AF_XDP sockets. Segments are written into UMEM frames, and received frames are read in place
//! in the UMEM.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use linerate_bpf::steer;
use linerate_ring::region::Pages;
use linerate_ring::xdp::{Mode, Socket, TxSocket, Umem};
use linerate_ring::{Batch as _, Options, Region};
use rustix::event::{PollFd, PollFlags};

use super::{FramePort, SendOutcome, is_up};
use crate::Result;
use crate::device::DeviceQueue;
use crate::rx::{MAX_BATCH, Receiver};
use crate::statistics::{Drops, Statistics};
use crate::tx::MIN_FREE_FRAMES;

/// Chunks of a socket to receive into. At a million full frames a second they hold 4 ms; in copy mode
/// more would only be colder.
const RECEIVE: u32 = 4096;

/// Chunks of a socket to send from: twenty super-packets. What came back last goes out first, so that an
/// interface that keeps up uses a few of them, which stay in the cache.
const TRANSMIT: u32 = 1024;

/// AF_XDP sockets of one thread. It sends through the first.
pub(crate) struct XdpPort {
    sockets: Vec<Socket>,
    tx: TxSocket,
    unsent: bool,
    scratch: Vec<u8>,
}

/// Bytes of a chunk for frames of an MTU in one piece; `None` where none is large enough.
pub(crate) fn chunk(mtu: u32) -> Option<u32> {
    Umem::chunk_for(mtu + 14 + 2 * 4)
}

impl XdpPort {
    /// Opens a socket on each of `queues`; `steer` redirects their frames there.
    pub(crate) fn open(
        interface: &str,
        queues: &[u32],
        chunk: u32,
        steer: &steer::Program,
    ) -> Result<Self> {
        let mut sockets = Vec::new();
        for &queue in queues {
            // A UMEM each: sockets of several threads that shared one would share its rings' flags too.
            let bytes = (RECEIVE + TRANSMIT) as usize * chunk as usize;
            let node = linerate_net::link::numa_node(interface);
            let region = Region::new(bytes, Pages::Auto, node)?;
            let umem: Arc<Umem> = Umem::new(region, chunk)?;
            let transmit = if sockets.is_empty() { TRANSMIT } else { 0 };
            let options = Options { batch: MAX_BATCH as u32, transmit, ..Options::default() };
            let socket = Socket::open(interface, queue, &umem, RECEIVE, options)?;
            steer.add_socket(queue, socket.as_fd())?;
            sockets.push(socket);
        }
        let tx = sockets.iter_mut().find_map(|socket| socket.tx.take());
        let tx = tx.expect("a port has a queue, whose socket transmits");
        Ok(Self { sockets, tx, unsent: false, scratch: Vec::new() })
    }

    /// What the sockets got.
    pub(crate) fn mode(&self) -> &Mode {
        self.sockets[0].mode()
    }
}

impl FramePort for XdpPort {
    fn receive(
        &mut self,
        tap: &DeviceQueue,
        receiver: &mut Receiver,
        statistics: &mut Statistics,
    ) -> Result<bool> {
        let mut any = false;
        for socket in &mut self.sockets {
            let Some(mut batch) = socket.next_batch() else { continue };
            any = true;
            loop {
                let mut frames: [&[u8]; MAX_BATCH] = [&[]; MAX_BATCH];
                let count = batch.lend(&mut frames);
                if count > 0 {
                    receiver.deliver(tap, &frames[..count], statistics)?;
                    continue;
                }
                // Nothing more, or a frame in several pieces.
                let Some(frame) = batch.next() else { break };
                receiver.deliver(tap, &[frame.contiguous(&mut self.scratch)], statistics)?;
            }
        }
        Ok(any)
    }

    fn room(&mut self) -> usize {
        self.tx.free(MIN_FREE_FRAMES)
    }

    fn longest(&self) -> usize {
        self.tx.capacity()
    }

    fn write(
        &mut self,
        _longest: usize,
        fill: &mut impl FnMut(&mut [u8]) -> usize,
    ) -> Result<SendOutcome> {
        let socket = &mut self.tx;
        let Some(mut frame) = socket.frame() else { return Ok(SendOutcome::Full) };
        let bytes = fill(socket.bytes(&mut frame));
        if bytes == 0 {
            socket.discard(frame);
        } else {
            socket.send(frame, bytes);
        }
        Ok(SendOutcome::Bytes(bytes))
    }

    fn flush(&mut self) -> Result<bool> {
        let socket = &mut self.tx;
        let answer = is_up(socket.flush(), &mut self.unsent);
        // What came back is still in the cache, and goes out next.
        socket.reclaim();
        answer
    }

    fn has_unsent(&self) -> bool {
        self.unsent
    }

    fn wait_to_send(&mut self, timeout: Duration) {
        let mut fds = [PollFd::new(&self.tx, PollFlags::OUT)];
        // The caller retries in any case.
        let _ = linerate_ring::poll(&mut fds, timeout);
    }

    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    fn note_error(&mut self) {}

    fn drops(&self) -> Drops {
        let mut drops = Drops::default();
        for statistics in self.sockets.iter().filter_map(|socket| socket.statistics().ok()) {
            drops.fill_empty += statistics.fill_empty;
            drops.ring_full += statistics.ring_full + statistics.too_long;
        }
        drops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_holds_a_frame_with_two_tags_behind_the_headroom() {
        assert_eq!(
            [1500, 1770, 1771, 3818, 3819].map(chunk),
            [Some(2048), Some(2048), Some(4096), Some(4096), None]
        );
    }
}
