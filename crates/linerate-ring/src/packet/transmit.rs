//! [`TxRing`]: a ring of frames to send.
//!
//! It is a `TPACKET_V2` ring. Version 3 has transmit rings since Linux 4.11, but "block transmit is
//! not supported yet" (`net/packet/af_packet.c`): they are the same slots of one length with a
//! longer header. A slot goes from the program (available) to the kernel (send request) and comes
//! back through sending; the word that says so is stored with Release and loaded with Acquire.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_bpf::map::SharedMapping;
use linerate_net::Interface;
use rustix::event::{PollFd, PollFlags};

use super::layout::{FRAME_ALIGNMENT, V2_PAYLOAD, VLAN_TAG};
use super::owner;
use super::rules::{Kind, RingConfig};
use super::socket::{Socket, address};
use crate::region::base_page_size;
use crate::{Error, Result, sys};

/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

/// Smallest block: frames of any MTU up to 64 KiB fit, and memory is found in one piece.
const BLOCK_SIZE: u32 = 128 << 10;

/// Bytes that the kernel may hold for frames on their way, metadata included.
const SEND_BUFFER: libc::c_int = 32 << 20;

/// How long the kernel may refuse to take a frame for want of room before that is an error.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// A transmit ring on one interface.
///
/// ```no_run
/// use linerate_ring::packet::TxRing;
///
/// # fn main() -> linerate_ring::Result<()> {
/// let mut ring = TxRing::open("eth0", 2048)?;
/// for _ in 0..1_000 {
///     let Some(mut frame) = ring.frame(60)? else {
///         ring.flush()?;
///         continue;
///     };
///     frame.fill(0xff);
///     frame.send();
/// }
/// ring.flush()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TxRing {
    // Unmapped before the socket is closed.
    map: SharedMapping,
    socket: Socket,
    request: RingConfig,
    /// Slots in a block.
    per_block: u32,
    name: String,
    least: usize,
    most: usize,
    /// The slot to fill next.
    next: u32,
    /// Slots before `next` that the kernel has not taken yet.
    queued: u32,
    index: u32,
    /// The interface, with the protocol of the frames if the kernel cannot read it from them.
    address: Option<libc::sockaddr_ll>,
    statistics: TxStatistics,
}

/// What became of the frames given to a transmit ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxStatistics {
    /// Frames that the kernel took to send. The interface can still drop them, and counts that.
    pub sent: u64,
    /// Bytes of those frames.
    pub bytes: u64,
    /// Frames that the kernel refused: longer than the interface's MTU allows now.
    pub rejected: u64,
    /// Times that the kernel had no room, so that it was asked again.
    pub retries: u64,
}

impl TxRing {
    /// A transmit ring on an interface, for at least as many frames.
    ///
    /// # Errors
    /// [`Error::Privilege`] without CAP_NET_RAW, [`Error::NoInterface`], [`Error::Invalid`] for a number of frames that
    /// makes no ring, or memory that the kernel does not have, [`Error::System`] for the rest.
    pub fn open(name: &str, frames: u32) -> Result<Self> {
        let socket = Socket::open()?;
        let interface = Interface::open(name)?;
        let header = match interface.link()?.hardware_type {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => ETHERNET,
            _ => 0,
        };
        let most = interface.link()?.mtu.saturating_add(header + VLAN_TAG as u32);
        let frame_size = (V2_PAYLOAD as u32)
            .checked_add(most)
            .and_then(|size| size.checked_next_multiple_of(FRAME_ALIGNMENT))
            .unwrap_or(u32::MAX);
        let page = u32::try_from(base_page_size()).unwrap_or(u32::MAX);
        let block_size =
            frame_size.max(BLOCK_SIZE).checked_next_multiple_of(page).unwrap_or(u32::MAX);
        let per_block = block_size / frame_size;
        let request = RingConfig {
            kind: Kind::Transmit,
            block_size,
            blocks: frames.div_ceil(per_block),
            frame_size,
            frames: 0,
            retire_ms: 0,
            reserve: 0,
        }
        .with_frames()?;
        // The larger buffer takes CAP_NET_ADMIN; without it there are more system calls.
        let forced = socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER);
        forced
            .or_else(|_| socket.set(libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER))
            .map_err(|error| Error::system("enlarge the send buffer", error))?;
        let map = socket.map(request, name)?;
        // Protocol 0: this socket receives nothing.
        socket
            .bind(interface.index(), 0)
            .map_err(|error| Error::system(format!("bind to interface {name}"), error))?;
        let least = header.max(1) as usize;
        let statistics = TxStatistics::default();
        let (most, name) = (most as usize, name.to_owned());
        Ok(Self {
            map,
            socket,
            request,
            per_block,
            name,
            least,
            most,
            next: 0,
            queued: 0,
            index: interface.index(),
            address: None,
            statistics,
        })
    }

    /// A frame of `len` bytes to fill, `None` while every slot is waiting or being sent
    /// ([`TxRing::flush`] then helps). Its bytes are what the slot's last frame left there.
    ///
    /// # Errors
    /// [`Error::FrameLength`] for a length that the interface cannot send.
    #[inline]
    pub fn frame(&mut self, len: usize) -> Result<Option<TxFrame<'_>>> {
        if !(self.least..=self.most).contains(&len) {
            let (least, most) = (self.least, self.most);
            return Err(Error::FrameLength { interface: self.name.clone(), len, least, most });
        }
        let slot = self.next;
        let available = self.queued < self.request.frames && owner::is_available(self.status(slot));
        Ok(available.then_some(TxFrame { ring: self, len }))
    }

    /// Names the protocol of the frames to come, an EtherType, after those in the ring were flushed: an interface without
    /// a link-layer header may need it (PPP).
    ///
    /// # Errors
    /// As [`TxRing::flush`].
    pub fn set_protocol(&mut self, protocol: u16) -> Result<()> {
        if self.address.is_none_or(|address| address.sll_protocol != protocol.to_be()) {
            self.flush()?;
            self.address = Some(address(self.index, protocol));
        }
        Ok(())
    }

    /// Has the kernel take every frame that was sent into the ring, with one system call while it
    /// has room. Does not wait until they are on the wire.
    ///
    /// # Errors
    /// [`Error::InterfaceDown`] and [`Error::InterfaceGone`], [`Error::System`] when the kernel has
    /// had no room for a second. The frames stay in the ring.
    pub fn flush(&mut self) -> Result<()> {
        let mut progress = Instant::now();
        while self.queued > 0 {
            let before = self.queued;
            let answer = self.kick();
            self.collect();
            if self.queued < before {
                progress = Instant::now();
            }
            let Err(error) = answer else { continue };
            match error.raw_os_error() {
                // The frame at fault has been taken out, or a signal came.
                Some(libc::EMSGSIZE | libc::EINVAL | libc::EINTR)
                    if progress.elapsed() < SEND_TIMEOUT => {}
                Some(libc::EAGAIN | libc::ENOBUFS) if progress.elapsed() < SEND_TIMEOUT => {
                    self.statistics.retries += 1;
                    self.wait_for_room(error.raw_os_error() == Some(libc::EAGAIN));
                }
                Some(libc::ENETDOWN) => return Err(Error::InterfaceDown(self.name.clone())),
                Some(libc::ENXIO | libc::ENODEV) => {
                    return Err(Error::InterfaceGone(self.name.clone()));
                }
                _ => {
                    let action = format!("send frames on interface {}", self.name);
                    return Err(Error::system(action, error));
                }
            }
        }
        Ok(())
    }

    /// Flushes, and waits until the kernel is done with every frame. Returns `false` when it is
    /// not within `timeout`.
    ///
    /// # Errors
    /// As [`TxRing::flush`].
    pub fn finish(&mut self, timeout: Duration) -> Result<bool> {
        self.flush()?;
        let start = Instant::now();
        let done = |slot| owner::is_available(self.status(slot));
        while !(0..self.request.frames).all(done) {
            if start.elapsed() >= timeout {
                return Ok(false);
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(true)
    }

    /// The counts since the ring was built.
    pub fn statistics(&self) -> TxStatistics {
        self.statistics
    }

    /// Shortest and longest frame that can be sent, in bytes: a link-layer header, and what the
    /// MTU was when the ring was built with header and a VLAN tag.
    pub fn frame_len(&self) -> (usize, usize) {
        (self.least, self.most)
    }

    /// Tells the kernel to look at the ring.
    fn kick(&self) -> io::Result<()> {
        let fd = self.socket.as_fd().as_raw_fd();
        let (address, len) = match &self.address {
            Some(address) => (ptr::from_ref(address).cast(), size_of::<libc::sockaddr_ll>()),
            None => (ptr::null(), 0),
        };
        // SAFETY: no bytes are passed; the frames are in the ring. The address is none, or of that length.
        let answer = unsafe {
            libc::sendto(fd, ptr::null(), 0, libc::MSG_DONTWAIT, address, len as libc::socklen_t)
        };
        if answer >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Counts what the kernel has taken, and takes out what it refused.
    fn collect(&mut self) {
        while self.queued > 0 {
            let frames = self.request.frames;
            let slot = (self.next + frames - self.queued) % frames;
            match self.status(slot).load(Ordering::Acquire) {
                libc::TP_STATUS_SEND_REQUEST => break,
                libc::TP_STATUS_WRONG_FORMAT => self.take_out(slot),
                _ => {
                    self.statistics.sent += 1;
                    self.statistics.bytes += u64::from(self.len(slot));
                    self.queued -= 1;
                }
            }
        }
    }

    /// Removes a frame that the kernel refused. The kernel goes on at the same slot, so those
    /// behind it move up.
    fn take_out(&mut self, mut slot: u32) {
        self.queued -= 1;
        self.statistics.rejected += 1;
        for _ in 0..self.queued {
            let following = self.following(slot);
            let len = self.len(following);
            // SAFETY: both are whole slots inside the mapping, distinct as a ring that has frames
            // behind this one has two slots, and both are ours: the kernel reads slots in a system
            // call of this thread only.
            unsafe {
                ptr::copy_nonoverlapping(
                    self.payload(following).as_ptr(),
                    self.payload(slot).as_ptr(),
                    len as usize,
                );
            }
            self.publish(slot, len);
            slot = following;
        }
        self.status(slot).store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
        self.next = slot;
    }

    fn wait_for_room(&self, in_socket: bool) {
        if !in_socket {
            // A full queue of the interface signals nothing.
            return thread::yield_now();
        }
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
        // Whatever it answers, the caller tries again.
        let _ = sys::poll(&mut fds, Duration::from_millis(1));
    }

    fn following(&self, slot: u32) -> u32 {
        if slot + 1 == self.request.frames { 0 } else { slot + 1 }
    }

    /// Makes a slot the kernel's, with a frame of `len` bytes.
    #[inline]
    fn publish(&self, slot: u32, len: u32) {
        // SAFETY: the length is the header's second word, in a slot that is ours.
        unsafe { self.slot(slot).cast::<u32>().add(1).write(len) };
        owner::request_sending(self.status(slot));
    }

    fn len(&self, slot: u32) -> u32 {
        // SAFETY: as in `publish`; the kernel does not write to it.
        unsafe { self.slot(slot).cast::<u32>().add(1).read() }
    }

    #[inline]
    fn status(&self, slot: u32) -> &AtomicU32 {
        // SAFETY: the status is the header's first word, inside the mapping and aligned, as slots
        // are; it is accessed as an atomic only.
        unsafe { AtomicU32::from_ptr(self.slot(slot).cast().as_ptr()) }
    }

    #[inline]
    fn payload(&self, slot: u32) -> NonNull<u8> {
        // SAFETY: a slot is longer than its header.
        unsafe { self.slot(slot).add(V2_PAYLOAD) }
    }

    #[inline]
    fn slot(&self, slot: u32) -> NonNull<u8> {
        let RingConfig { block_size, frame_size, .. } = self.request;
        let block = (slot / self.per_block) as usize * block_size as usize;
        self.map.at(block + (slot % self.per_block) as usize * frame_size as usize)
    }
}

impl AsFd for TxRing {
    /// For `poll` and `epoll`: writable when the kernel can take frames.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A frame in the making. [`TxFrame::send`] moves it into the ring; dropping it does not.
#[derive(Debug)]
#[must_use = "a frame that is not sent is lost"]
pub struct TxFrame<'t> {
    ring: &'t mut TxRing,
    len: usize,
}

impl TxFrame<'_> {
    /// Moves the frame into the ring. The kernel takes it at the next [`TxRing::flush`].
    #[inline]
    pub fn send(self) {
        let Self { ring, len } = self;
        ring.publish(ring.next, len as u32);
        ring.next = ring.following(ring.next);
        ring.queued += 1;
    }
}

impl Deref for TxFrame<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the slot is ours and holds `len` bytes of payload, as `frame` checked.
        unsafe { slice::from_raw_parts(self.ring.payload(self.ring.next).as_ptr(), self.len) }
    }
}

impl DerefMut for TxFrame<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the borrow the only one.
        unsafe { slice::from_raw_parts_mut(self.ring.payload(self.ring.next).as_ptr(), self.len) }
    }
}
