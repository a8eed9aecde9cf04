//! [`TransmitQueue`]: the ring that carries frames from user space to an interface.

use std::time::{Duration, Instant};

use linerate_ring::{packet, xdp};
use linerate_wire::ethernet::EtherType;

use crate::interface::OutputInterface;
use crate::options::Backend;
use crate::{Error, Result};

/// Chunks of an AF_XDP socket that sends.
const CHUNKS: u32 = 2048;

/// How long the ring may be full before that is an error.
const MAX_FULL_TIME: Duration = Duration::from_secs(1);

/// How long the interface may take to send the last frames.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(2);

/// An AF_PACKET or AF_XDP transmit ring, and what the interface made of its frames.
#[derive(Debug)]
pub(crate) struct TransmitQueue {
    ring: Ring,
    interface: u32,
    dropped_before: u64,
    least: usize,
    most: usize,
}

#[derive(Debug)]
enum Ring {
    Packet(packet::TxRing),
    Xdp(Box<xdp::TxSocket>),
}

impl TransmitQueue {
    /// Opens the ring that `backend` names, AF_PACKET unless it is AF_XDP, for frames of up to
    /// `longest` bytes. AF_XDP sends from the first queue.
    pub(crate) fn open(
        backend: Backend,
        interface: &OutputInterface,
        longest: usize,
    ) -> Result<Self> {
        let name = interface.name.as_str();
        let dropped_before = OutputInterface::transmit_dropped(interface.index);
        let (ring, least, most) = match backend {
            Backend::Xdp => {
                let chunk = if longest > 2048 { 4096 } else { 2048 };
                let ring = xdp::TxSocket::open(name, 0, CHUNKS, chunk)?;
                let most = ring.capacity().min(interface.longest_frame(true));
                (Ring::Xdp(Box::new(ring)), linerate_wire::ethernet::HEADER_LEN, most)
            }
            _ => {
                let ring = packet::TxRing::open(name, CHUNKS)?;
                let (least, most) = ring.frame_len();
                (Ring::Packet(ring), least, most)
            }
        };
        Ok(Self { ring, interface: interface.index, dropped_before, least, most })
    }

    /// Shortest and longest frame that can be sent, in bytes.
    pub(crate) fn frame_len(&self) -> (usize, usize) {
        (self.least, self.most)
    }

    /// Names the protocol of the frames to come on an interface without a link-layer header.
    pub(crate) fn set_protocol(&mut self, protocol: EtherType) -> Result<()> {
        match &mut self.ring {
            Ring::Packet(ring) => Ok(ring.set_protocol(protocol.0)?),
            Ring::Xdp(_) => Ok(()),
        }
    }

    /// Puts a frame of `len` bytes into the ring, filled by `write`; flushes first where there is no room.
    /// False if `stop` returned true before there was room.
    pub(crate) fn enqueue(
        &mut self,
        len: usize,
        stop: impl Fn() -> bool,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<bool> {
        let mut full_since = None;
        loop {
            match &mut self.ring {
                Ring::Packet(ring) => {
                    if let Some(mut frame) = ring.frame(len)? {
                        write(&mut frame);
                        frame.send();
                        return Ok(true);
                    }
                }
                Ring::Xdp(ring) => {
                    if let Some(mut frame) = ring.frame() {
                        write(&mut ring.bytes(&mut frame)[..len]);
                        ring.send(frame, len);
                        return Ok(true);
                    }
                }
            }
            self.flush()?;
            if stop() {
                return Ok(false);
            }
            if full_since.get_or_insert_with(Instant::now).elapsed() > MAX_FULL_TIME {
                return Err(Error::Kernel {
                    name: OutputInterface::name_of(self.interface),
                    action: "send: its ring had no room for a second",
                    source: std::io::ErrorKind::TimedOut.into(),
                });
            }
        }
    }

    /// Tells the kernel to send the frames in the ring.
    pub(crate) fn flush(&mut self) -> Result<()> {
        match &mut self.ring {
            Ring::Packet(ring) => ring.flush()?,
            Ring::Xdp(ring) => {
                ring.flush()?;
                ring.reclaim();
            }
        }
        Ok(())
    }

    /// Waits until the last frames are sent, and counts those that were not sent after all. The interface's
    /// own count of drops is part of it, which includes the frames of other senders.
    pub(crate) fn finish(mut self) -> Result<u64> {
        let rejected = match &mut self.ring {
            Ring::Packet(ring) => {
                ring.finish(MAX_DRAIN_TIME)?;
                ring.statistics().rejected
            }
            Ring::Xdp(ring) => {
                ring.drain(MAX_DRAIN_TIME)?;
                0
            }
        };
        let dropped = OutputInterface::transmit_dropped(self.interface);
        Ok(rejected + dropped.saturating_sub(self.dropped_before))
    }
}
