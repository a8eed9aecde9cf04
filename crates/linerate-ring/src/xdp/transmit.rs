//! Sending: a [`TxFrame`] is a value that moves into the transmit ring of a [`TxSocket`], the half of a socket that
//! sends.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use linerate_net::Interface;

use super::queue::{Consumer, Producer};
use super::ring::Mapped;
use super::umem::Chunks;
use super::{Mode, Umem};
use crate::{Error, Result, sys};

/// Frames that the kernel sends in one system call in copy mode, unless told otherwise (`TX_BATCH_SIZE`).
pub(super) const KERNEL_BATCH: u32 = 32;

/// A frame to be written and sent. Its bytes are reached through the socket that it came from
/// ([`TxSocket::bytes`]), and [`TxSocket::send`] consumes it, so that it cannot be touched while the
/// kernel reads it.
#[derive(Debug)]
#[must_use = "send it, or give it back with TxSocket::discard"]
pub struct TxFrame {
    address: u64,
    /// Which socket it came from.
    socket: u64,
}

/// The transmit ring of a socket, and its chunks. It may move to another thread than that of the
/// [`Socket`](super::Socket) that it was taken from ([`tx`](super::Socket::tx)), or have a socket of its own.
#[derive(Debug)]
pub struct TxSocket {
    pub(super) ring: Producer<Mapped<libc::xdp_desc>>,
    pub(super) completion: Consumer<Mapped<u64>>,
    /// Chunks that are in no ring.
    pub(super) idle: Vec<u64>,
    /// All chunks.
    pub(super) frames: u32,
    pub(super) umem: Arc<Umem>,
    pub(super) fd: Arc<OwnedFd>,
    // Dropped after the descriptor.
    pub(super) _chunks: Arc<Chunks>,
    pub(super) interface: Interface,
    pub(super) queue: u32,
    /// Distinguishes the frames of this socket from those of any other.
    pub(super) number: u64,
    pub(super) mode: Mode,
    /// Frames that the kernel sends in one system call in copy mode.
    pub(super) kernel_batch: u32,
    pub(super) sent: u64,
}

impl TxSocket {
    /// What the socket got.
    pub fn mode(&self) -> &Mode {
        &self.mode
    }

    /// Frames moved into the transmit ring so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// A frame to fill, or `None` while all of them are with the kernel ([`TxSocket::flush`] makes it
    /// work on them). Its bytes are what they were when it was last sent.
    #[inline]
    pub fn frame(&mut self) -> Option<TxFrame> {
        if self.idle.is_empty() {
            self.reclaim();
        }
        let address = self.idle.pop()?;
        Some(TxFrame { address, socket: self.number })
    }

    /// How many frames [`TxSocket::frame`] would give, looking at the kernel's index only when fewer than
    /// `wanted` are known.
    #[inline]
    pub fn free(&mut self, wanted: usize) -> usize {
        if self.idle.len() < wanted {
            self.reclaim();
        }
        self.idle.len()
    }

    /// The bytes of a frame, all of its chunk. They are borrowed from the socket as well, which has
    /// the memory:
    ///
    /// ```compile_fail,E0505
    /// # fn send(mut sender: linerate_ring::xdp::TxSocket) {
    /// let mut frame = sender.frame().unwrap();
    /// let bytes = sender.bytes(&mut frame);
    /// drop(sender);
    /// bytes.fill(0);
    /// # }
    /// ```
    ///
    /// # Panics
    /// When the frame is of another socket.
    #[inline]
    pub fn bytes<'f>(&'f self, frame: &'f mut TxFrame) -> &'f mut [u8] {
        self.own(frame);
        // SAFETY: a whole chunk of this socket, which is in no ring; the frame is its only owner.
        unsafe {
            let at = self.umem.region().as_ptr().add(frame.address as usize);
            std::slice::from_raw_parts_mut(at, self.umem.chunk_size() as usize)
        }
    }

    /// Moves a frame into the transmit ring, its first `len` bytes to be sent. The kernel sees it
    /// after [`TxSocket::flush`].
    ///
    /// # Panics
    /// When `len` is more than a chunk, or the frame is of another socket.
    #[inline]
    pub fn send(&mut self, frame: TxFrame, len: usize) {
        self.own(&frame);
        assert!(len <= self.umem.chunk_size() as usize, "a frame longer than its chunk");
        let pushed =
            self.ring.push(libc::xdp_desc { addr: frame.address, len: len as u32, options: 0 });
        debug_assert!(pushed, "the transmit ring has a slot for every chunk");
        self.sent += 1;
    }

    /// Takes a frame back unsent.
    ///
    /// # Panics
    /// When the frame is of another socket.
    pub fn discard(&mut self, frame: TxFrame) {
        self.own(&frame);
        self.idle.push(frame.address);
    }

    /// Publishes what was sent and makes the kernel work on it, where it wants to be told. True when
    /// the kernel has taken everything from the ring, false when the device is busy: call again.
    ///
    /// # Errors
    /// [`Error::InterfaceDown`], [`Error::InterfaceGone`], [`Error::System`].
    pub fn flush(&mut self) -> Result<bool> {
        let ring = &mut self.ring;
        ring.publish();
        loop {
            let before = ring.outstanding();
            if before == 0 {
                return Ok(true);
            }
            if !ring.need_wakeup() {
                return Ok(false);
            }
            let answer = sys::kick_transmit(self.fd.as_fd());
            let after = ring.outstanding();
            match answer.map_err(|error| (error.raw_os_error(), error)) {
                Ok(()) => {}
                // EAGAIN: the device is busy, or the kernel's batch is done and there is more.
                // EBUSY: it dropped a frame that it had completed. ENOBUFS: no socket buffer.
                Err((Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR), _)) => {
                    if before - after < self.kernel_batch && after != 0 {
                        return Ok(false);
                    }
                }
                Err((Some(libc::ENETDOWN), _)) => {
                    return Err(Error::InterfaceDown(self.interface.name().to_owned()));
                }
                Err((Some(libc::ENXIO | libc::ENODEV), _)) => {
                    return Err(Error::InterfaceGone(self.interface.name().to_owned()));
                }
                Err((_, error)) => {
                    return Err(Error::af_xdp("send on", self.queue, self.interface.name(), error));
                }
            }
            if after == before {
                return Ok(false);
            }
        }
    }

    /// Takes back the frames that the kernel has sent. Returns how many.
    #[inline]
    pub fn reclaim(&mut self) -> u32 {
        let done = self.completion.ready();
        while let Some(address) = self.completion.pop() {
            self.idle.push(address);
        }
        if done != 0 {
            self.completion.release();
        }
        done
    }

    #[inline]
    fn own(&self, frame: &TxFrame) {
        assert_eq!(frame.socket, self.number, "a frame of another socket");
    }

    /// Flushes until every frame has been sent and taken back: true. False when `timeout` is over.
    ///
    /// # Errors
    /// As [`TxSocket::flush`].
    pub fn drain(&mut self, timeout: Duration) -> Result<bool> {
        let end = std::time::Instant::now() + timeout;
        loop {
            let taken = self.flush()?;
            self.reclaim();
            if taken && self.idle.len() == self.frames as usize {
                return Ok(true);
            }
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            sys::sleep(left.min(Duration::from_micros(50)));
        }
    }

    /// The longest frame.
    pub fn capacity(&self) -> usize {
        self.umem.chunk_size() as usize
    }
}

impl AsFd for TxSocket {
    /// Writable when the kernel may take more frames.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
