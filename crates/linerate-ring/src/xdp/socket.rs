//! [`Socket`]: one AF_XDP socket on one queue of an interface, with its rings.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use linerate_bpf::xdp::open_socket;
use linerate_net::Interface;
use linerate_net::privilege::XDP_CAPABILITIES;
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_mmap_offsets, xdp_statistics,
};
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
    XdpUmemReg, XdpUmemRegFlags,
};

use super::metadata::Metadata;
use super::queue::{Consumer, Producer};
use super::ring::Mapped;
use super::transmit::KERNEL_BATCH;
use super::umem::Chunks;
use super::{Statistics, TxSocket, Umem};
use crate::options::Options;
use crate::region::{Pages, memlock_error};
use crate::{Error, Region, Result, sys};

/// `SO_PREFER_BUSY_POLL` and `SO_BUSY_POLL_BUDGET` of `asm-generic/socket.h`.
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
/// Frames that busy polling takes in one call.
const BUSY_POLL_BUDGET: u32 = 64;
/// How long the queue of a socket that was closed may stay taken.
const QUEUE_RELEASE_TIMEOUT: Duration = Duration::from_millis(500);
/// Slots of a ring that the kernel asks for but nobody uses.
const UNUSED_RING: u32 = 64;
/// `XDP_MAX_TX_SKB_BUDGET` of `linux/if_xdp.h`.
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
/// Frames to send in one system call in copy mode: a super-packet of 64 KiB and one more.
const TRANSMIT_BUDGET: u32 = 128;
/// The number of the next socket.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Whether the driver writes into the UMEM itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CopyMode {
    /// Zero-copy where the driver has it, else a copy in the kernel.
    #[default]
    Auto,
    /// Zero-copy or an error.
    ZeroCopy,
    /// A copy in the kernel, even where the driver has zero-copy.
    Copy,
}

/// The modes that a socket got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// The driver and this process share the frames' memory.
    pub zero_copy: bool,
    /// Frames longer than a chunk arrive, in several pieces.
    pub multi_buffer: bool,
    /// The kernel says when it wants to be woken, so that system calls can be left out.
    pub need_wakeup: bool,
    /// Busy polling is on.
    pub busy_poll: bool,
    /// Why something better was not got, one sentence each.
    pub why: Vec<String>,
}

/// One AF_XDP socket, bound to one queue of an interface.
///
/// ```text
///   who owns a chunk          moves on when
///   this process              Socket puts it in the fill ring (at build, and after each batch)
///   fill ring, the kernel     a frame arrives: the kernel writes it there
///   receive ring              Socket::next_batch lends it as a Frame
///   the batch                 dropped: back to the fill ring
///   a transmit frame          TxSocket::send moves it into the transmit ring
///   transmit ring, kernel     sent: the completion ring says so; TxSocket::frame hands it out again
/// ```
///
/// System calls on the way: none while frames come, but for [`Socket::wait`] with an empty ring,
/// `recvfrom` when the driver asks to be woken (zero-copy only), and `sendto` in
/// [`TxSocket::flush`].
#[derive(Debug)]
pub struct Socket {
    pub(super) receive: Option<Consumer<Mapped<libc::xdp_desc>>>,
    pub(super) fill: Producer<Mapped<u64>>,
    /// The half that sends, where [`Options::transmit`] asks for one.
    pub tx: Option<TxSocket>,
    pub(super) umem: Arc<Umem>,
    pub(super) fd: Arc<OwnedFd>,
    // Dropped after the descriptor.
    _chunks: Arc<Chunks>,
    pub(super) interface: Interface,
    pub(super) queue: u32,
    pub(super) options: Options,
    pub(super) marking: FrameMarks,
    mode: Mode,
    pub(super) received: u64,
}

/// What a socket knows about a frame besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameMarks {
    /// The steering program puts metadata in front of frames.
    pub(super) metadata: bool,
    /// A batch is stamped when it is taken.
    pub(super) stamp: bool,
    /// Nanoseconds of TAI ahead of UTC.
    pub(super) tai_offset_ns: u64,
}

impl Socket {
    /// A socket for `queue` of `interface`, with `receive` chunks of `umem` to receive into and [`Options::transmit`] to send
    /// from. The rings have as many slots, rounded up to a power of two. Of the other options those of one socket count:
    /// `contiguous`, `copy_mode`, `busy_poll`, `wait_strategy`, `batch` and `prefetch`.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::Privilege`], [`Error::Invalid`] for a UMEM with too few
    /// chunks, [`Error::MemoryLock`] for one beyond `RLIMIT_MEMLOCK`, [`Error::System`] (a queue that does not exist is
    /// `EINVAL`, one that another socket has is `EBUSY`).
    pub fn open(
        interface: &str,
        queue: u32,
        umem: &Arc<Umem>,
        receive: u32,
        options: Options,
    ) -> Result<Self> {
        let interface = Interface::open(interface)?;
        Builder { interface, queue, umem, receive, transmit: options.transmit, options }.build()
    }

    /// What it got.
    pub fn mode(&self) -> &Mode {
        &self.mode
    }

    /// The queue that it is bound to.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// Waits until a frame can be read: true. False when `timeout` is over or a signal came.
    ///
    /// # Errors
    /// [`Error::InterfaceGone`] when the interface was removed. [`Error::System`].
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        let strategy = self.options.wait_strategy;
        let Some(left) = strategy.wait_until(timeout, || self.ready()) else { return Ok(true) };
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let woken = sys::poll(&mut fds, left).map_err(|error| self.failed("poll", error))?;
        if woken {
            let [fd] = fds;
            self.check(fd.revents())?;
        }
        // The kernel unbinds the socket of an interface that goes, and says nothing to `poll`.
        if !self.ready() && !self.interface.exists() && !self.ready() {
            return Err(Error::InterfaceGone(self.interface.name().to_owned()));
        }
        Ok(self.ready())
    }

    /// Whether a frame can be read now.
    #[inline]
    pub(super) fn ready(&mut self) -> bool {
        if self.mode.busy_poll {
            sys::kick_receive(self.fd.as_fd());
        }
        self.receive.as_mut().is_some_and(|ring| ring.ready() != 0)
    }

    /// The stamp of the frame that comes next, in the kernel's clock; 0 for one without, `None` when there
    /// is no frame.
    #[inline]
    pub(super) fn next_stamp(&mut self) -> Option<u64> {
        let receive = self.receive.as_mut()?;
        receive.ready();
        let next = receive.peek(0)?;
        // SAFETY: the address of a received frame lies within the UMEM, with the kernel's headroom.
        let stamp = unsafe { Metadata::stamp(self.umem.region().as_ptr().add(next.addr as usize)) };
        Some(stamp.unwrap_or(0))
    }

    /// What the kernel counted for this socket.
    pub fn statistics(&self) -> Result<Statistics> {
        let kernel = xdp_statistics(&self.fd)
            .map_err(|errno| self.failed("read statistics of", errno.into()))?;
        Ok(Statistics::of_socket(&kernel, self.received))
    }

    /// Turns the error events of a poll into an error.
    pub(super) fn check(&self, events: PollFlags) -> Result<()> {
        if !events.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
            return Ok(());
        }
        let pending = sys::take_error(self.fd.as_fd()).ok().flatten();
        if !self.interface.exists() {
            return Err(Error::InterfaceGone(self.interface.name().to_owned()));
        }
        match pending {
            Some(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {
                Err(Error::InterfaceDown(self.interface.name().to_owned()))
            }
            Some(error) => Err(self.failed("receive from", error)),
            None => Ok(()),
        }
    }

    pub(super) fn failed(&self, action: &str, error: io::Error) -> Error {
        Error::af_xdp(action, self.queue, self.interface.name(), error)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What is asked for.
struct Builder<'u> {
    interface: Interface,
    queue: u32,
    umem: &'u Arc<Umem>,
    receive: u32,
    transmit: u32,
    options: Options,
}

impl Builder<'_> {
    /// Opens, sizes, maps, fills and binds.
    fn build(self) -> Result<Socket> {
        let name = self.interface.name();
        let fail = |what: &str, error: io::Error| match error.raw_os_error() {
            Some(libc::EINVAL) if what.starts_with("bind") => Error::Invalid(format!(
                "cannot bind an AF_XDP socket to queue {} of {}: there is no such queue, or the \
                 driver refuses the chunk size ({} bytes) with its MTU",
                self.queue,
                name,
                self.umem.chunk_size()
            )),
            Some(libc::EBUSY) if what.starts_with("bind") => Error::Invalid(format!(
                "cannot bind an AF_XDP socket to queue {} of {}: another one has it; end that \
                 program, or choose another queue",
                self.queue, name
            )),
            _ => Error::system(format!("{what} (queue {} of {name})", self.queue), error),
        };
        let action = format!("open an AF_XDP socket on {name}");
        // Who receives needs a program that sends frames here as well.
        let capability = if self.receive > 0 { XDP_CAPABILITIES } else { "CAP_NET_RAW" };
        let fd = Arc::new(open_socket(&action, capability)?);
        let mut state = self.umem.state();
        let shared = state.sockets.iter().find_map(std::sync::Weak::upgrade);
        if shared.is_none() {
            self.register(fd.as_fd()).map_err(|error| match error.raw_os_error() {
                // The kernel pins the memory, and counts it as locked (`xdp_umem_account_pages`).
                Some(libc::ENOBUFS) => memlock_error(self.umem.region().len(), error),
                _ => fail("register a UMEM", error),
            })?;
        }
        let mut rings = self.rings(fd.as_fd()).map_err(|error| fail("make AF_XDP rings", error))?;
        let kernel_batch = self.budget(fd.as_fd());
        let chunks = state.alloc(self.receive + self.transmit)?;
        let chunk = u64::from(self.umem.chunk_size());
        let mut addresses = chunks.iter().cloned().flatten().map(|n| u64::from(n) * chunk);
        for address in addresses.by_ref().take(self.receive as usize) {
            let pushed = rings.fill.push(address);
            debug_assert!(pushed, "the fill ring has two slots for every chunk");
        }
        rings.fill.publish();
        let idle: Vec<_> = addresses.collect();
        let mode = match self.bind(&fd, shared.as_deref(), state.multi_buffer) {
            Ok(mode) => mode,
            Err(error) => {
                drop(fd);
                state.free(chunks);
                return Err(fail("bind an AF_XDP socket", error));
            }
        };
        state.sockets.retain(|socket| socket.strong_count() > 0);
        state.sockets.push(Arc::downgrade(&fd));
        state.multi_buffer = mode.multi_buffer;
        // Before the lock is let go: chunks of a closed socket come back under it.
        drop(shared);
        drop(state);
        let chunks = Arc::new(Chunks::new(self.umem, chunks));
        let tx = rings.transmit.map(|(ring, completion)| TxSocket {
            ring,
            completion,
            idle,
            frames: self.transmit,
            umem: Arc::clone(self.umem),
            fd: Arc::clone(&fd),
            _chunks: Arc::clone(&chunks),
            interface: self.interface.clone(),
            queue: self.queue,
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            mode: mode.clone(),
            kernel_batch,
            sent: 0,
        });
        Ok(Socket {
            receive: rings.receive,
            fill: rings.fill,
            tx,
            umem: Arc::clone(self.umem),
            fd,
            _chunks: chunks,
            interface: self.interface,
            queue: self.queue,
            options: self.options,
            marking: FrameMarks::default(),
            mode,
            received: 0,
        })
    }

    fn register(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let umem = XdpUmemReg {
            addr: self.umem.region().as_ptr() as u64,
            len: u64::from(self.umem.chunks()) * u64::from(self.umem.chunk_size()),
            chunk_size: self.umem.chunk_size(),
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        Ok(set_xdp_umem_reg(fd, umem)?)
    }

    fn rings(&self, fd: BorrowedFd<'_>) -> io::Result<Rings> {
        let slots = |chunks: u32| chunks.max(UNUSED_RING).next_power_of_two();
        let (receive, transmit) = (slots(self.receive), slots(self.transmit));
        // Two slots a chunk: the kernel publishes the frames that it received before it releases the
        // slots that their chunks came from (`xsk_flush`), so that a reader on another core can give
        // a chunk back while its former slot is still taken. No chunk can have a third: the kernel
        // takes nothing more before the release.
        let fill = 2 * slots(self.receive);
        set_xdp_umem_fill_ring_size(fd, fill)?;
        set_xdp_umem_completion_ring_size(fd, transmit)?;
        if self.receive > 0 {
            set_xdp_rx_ring_size(fd, receive)?;
        }
        if self.transmit > 0 {
            set_xdp_tx_ring_size(fd, transmit)?;
        }
        let offsets = xdp_mmap_offsets(fd)?;
        let map = |at, offsets, slots| Mapped::new(fd, at, offsets, slots);
        Ok(Rings {
            fill: Producer::new(Mapped::new(fd, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, fill)?),
            receive: match self.receive {
                0 => None,
                _ => Some(Consumer::new(map(XDP_PGOFF_RX_RING, &offsets.rx, receive)?)),
            },
            transmit: match self.transmit {
                0 => None,
                _ => {
                    let at = XDP_UMEM_PGOFF_COMPLETION_RING;
                    let completion = Consumer::new(Mapped::new(fd, at, &offsets.cr, transmit)?);
                    Some((
                        Producer::new(map(XDP_PGOFF_TX_RING, &offsets.tx, transmit)?),
                        completion,
                    ))
                }
            },
        })
    }

    /// Has the kernel send more frames in one system call (Linux 6.17), and says how many it will.
    fn budget(&self, fd: BorrowedFd<'_>) -> u32 {
        let wanted = TRANSMIT_BUDGET.min(self.transmit.max(UNUSED_RING).next_power_of_two());
        match sys::setsockopt(fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &wanted) {
            Ok(()) if self.transmit > 0 => wanted,
            // A kernel without it, or a socket that does not send.
            _ => KERNEL_BATCH,
        }
    }

    /// Binds, and waits a moment for a queue that is taken: the kernel frees the queue of a closed
    /// socket from a work item, some time after the close.
    fn bind_when_free(
        &self,
        fd: BorrowedFd<'_>,
        flags: u16,
        shared: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let end = Instant::now() + QUEUE_RELEASE_TIMEOUT;
        loop {
            match sys::bind(fd, self.interface.index(), self.queue, flags, shared) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                    sys::sleep(Duration::from_millis(5));
                }
                answer => return answer,
            }
        }
    }

    /// Binds with the best that the kernel and the driver take, found by trying.
    fn bind(
        &self,
        fd: &Arc<OwnedFd>,
        shared: Option<&OwnedFd>,
        shared_multi_buffer: bool,
    ) -> io::Result<Mode> {
        let mut mode = Mode::default();
        if let Some(time) = self.options.busy_poll {
            match set_busy_poll(fd.as_fd(), time) {
                Ok(()) => mode.busy_poll = true,
                Err(error) => mode.why.push(format!("no busy polling: {error}")),
            }
        }
        if let Some(shared) = shared {
            // A shared UMEM takes its flags from the first socket.
            let flags = libc::XDP_SHARED_UMEM;
            self.bind_when_free(fd.as_fd(), flags, Some(shared.as_fd()))?;
            mode.zero_copy = sys::is_zero_copy(fd.as_fd())?;
            mode.multi_buffer = shared_multi_buffer;
            mode.need_wakeup = true;
            return Ok(mode);
        }
        let copying: &[u16] = match self.options.copy_mode {
            CopyMode::Auto => &[libc::XDP_ZEROCOPY, libc::XDP_COPY],
            CopyMode::ZeroCopy => &[libc::XDP_ZEROCOPY],
            CopyMode::Copy => &[libc::XDP_COPY],
        };
        let extras: &[(u16, bool, bool)] = &[
            (libc::XDP_USE_NEED_WAKEUP | libc::XDP_USE_SG, true, true),
            (libc::XDP_USE_NEED_WAKEUP, false, true),
            (0, false, false),
        ];
        let mut last = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        for &copy in copying {
            for &(flags, multi_buffer, need_wakeup) in extras {
                if multi_buffer && self.options.contiguous {
                    continue;
                }
                match self.bind_when_free(fd.as_fd(), flags | copy, None) {
                    Ok(()) => {
                        mode.zero_copy = sys::is_zero_copy(fd.as_fd())?;
                        mode.multi_buffer = multi_buffer;
                        mode.need_wakeup = need_wakeup;
                        if !multi_buffer && !self.options.contiguous {
                            mode.why.push(format!("no multi-buffer frames: {last}"));
                        }
                        return Ok(mode);
                    }
                    Err(error) => match error.raw_os_error() {
                        Some(libc::EINVAL | libc::EOPNOTSUPP) => last = error,
                        _ => return Err(error),
                    },
                }
            }
            if copy == libc::XDP_ZEROCOPY && copying.len() > 1 {
                mode.why.push(format!("no zero-copy: the driver refuses it ({last})"));
            }
        }
        Err(last)
    }
}

impl TxSocket {
    /// Opens a socket on `queue` of `interface` with `frames` chunks of `chunk` bytes (2048 or
    /// 4096, which is also the longest frame) to send from. It receives nothing.
    ///
    /// # Errors
    /// As [`Socket::open`] and [`Region::new`].
    pub fn open(interface: &str, queue: u32, frames: u32, chunk: u32) -> Result<Self> {
        let region = Region::new(frames as usize * chunk as usize, Pages::Auto, None)?;
        let umem = Umem::new(region, chunk)?;
        let options = Options { transmit: frames, ..Options::default() };
        let socket = Socket::open(interface, queue, &umem, 0, options)?;
        Ok(socket.tx.expect("a socket built to transmit"))
    }
}

type TransmitRings = (Producer<Mapped<libc::xdp_desc>>, Consumer<Mapped<u64>>);

struct Rings {
    receive: Option<Consumer<Mapped<libc::xdp_desc>>>,
    fill: Producer<Mapped<u64>>,
    /// With the completion ring.
    transmit: Option<TransmitRings>,
}

fn set_busy_poll(fd: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
    let microseconds = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    sys::setsockopt(fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1i32)?;
    sys::setsockopt(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &microseconds)?;
    sys::setsockopt(fd, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &BUSY_POLL_BUDGET)
}
