//! [`Uring`]: one multishot `recvmsg` whose header the kernel keeps, into a ring of provided buffers.
//!
//! The kernel fills the next buffer for every datagram and posts a completion; no call is made for a message
//! that has already arrived. A buffer holds the kernel's header of the message
//! (`struct io_uring_recvmsg_out`: four words), room for the address, for ancillary data, and the payload.

mod send;

pub(crate) use send::UringSend;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use io_uring::types::{BufRingEntry, CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use linerate_ring::region::{Pages, Region};

use crate::message::Message;
use crate::socket::{CMSG_SPACE, ControlMessages, SockAddr, WaitOutcome, icmp};
use crate::{Error, Result};

/// `struct io_uring_recvmsg_out`: lengths of name, ancillary data and payload, and flags.
const RECVMSG_OUT_LEN: usize = 16;
const NAME_LEN: usize = SockAddr::MAX_LEN as usize;
/// The kernel's limit for a ring of buffers.
const MAX_BUFFERS: usize = 1 << 15;
const BUFFER_GROUP: u16 = 0;
/// `user_data` of the request that polls the interface watch; the receive request has 0.
const WATCH: u64 = 1;
/// `user_data` of the request that polls the socket for its end: a receive request does not end with `shutdown(2)`.
const HANGUP: u64 = 2;

/// A ring with its buffers and the one request.
pub(crate) struct Uring {
    // Closed before its memory goes.
    ring: IoUring,
    header: Box<libc::msghdr>,
    buffers: Region,
    entries: Region,
    /// Buffers, a power of two.
    count: usize,
    stride: usize,
    tail: u16,
    control: usize,
    message_size: usize,
    armed: bool,
    /// The watch is polled.
    watching: bool,
    /// It has become readable since the last wait.
    changed: bool,
    /// The socket is polled for its end.
    awaiting_hangup: bool,
    /// The socket was shut down.
    shut_down: bool,
    /// Buffers of the last batch and the bytes in them, and how many have been lent.
    taken: Vec<(u16, u32)>,
    lent: usize,
    batch: usize,
    bound: SocketAddr,
    /// System calls made.
    pub(crate) syscalls: u64,
}

// SAFETY: the pointer in `header` is null; the ring and the regions belong to this value.
unsafe impl Send for Uring {}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, stride, armed, .. } = self;
        write!(f, "Uring {{ count: {count}, stride: {stride}, armed: {armed} }}")
    }
}

/// Whether this machine has such a ring.
pub(crate) fn probe() -> std::result::Result<(), String> {
    // Not to 127.0.0.1, which a namespace whose `lo` is down does not have.
    let tried = std::net::UdpSocket::bind("0.0.0.0:0")
        .map_err(|error| Error::system("bind a UDP socket", error))
        .and_then(|socket| {
            let address = ([0, 0, 0, 0], 0).into();
            let mut ring = Uring::new(1, 1, false, address)?;
            ring.arm(socket.as_fd()).and_then(|()| ring.reap().map(drop)).map_err(refused)
        });
    tried.map_err(|error| error.to_string())
}

fn refused(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => Error::Invalid(
            "io_uring is forbidden here; sysctl kernel.io_uring_disabled says for whom".to_owned(),
        ),
        Some(libc::ENOSYS) => Error::Invalid("this kernel has no io_uring".to_owned()),
        Some(libc::EINVAL) => Error::Invalid(
            "this kernel's io_uring has no multishot recvmsg with a ring of buffers (Linux 6.0)"
                .to_owned(),
        ),
        _ => Error::system("receive through io_uring", error),
    }
}

impl Uring {
    /// A ring for batches of `batch` datagrams of `message_size` bytes.
    pub(crate) fn new(
        batch: usize,
        message_size: usize,
        metadata: bool,
        bound: SocketAddr,
    ) -> Result<Self> {
        // Twice a batch: the kernel has one half while the other is being read.
        let count = (batch * 2).clamp(64, MAX_BUFFERS).next_power_of_two();
        let control = if metadata { CMSG_SPACE } else { 0 };
        // An odd number of cache lines, as in the slots of `recvmmsg`.
        let stride = ((RECVMSG_OUT_LEN + NAME_LEN + control + message_size).div_ceil(64) | 1) * 64;
        let buffers = Region::new(count * stride, Pages::Auto, None)?;
        let entries = Region::new(count * size_of::<BufRingEntry>(), Pages::Auto, None)?;
        let ring = IoUring::builder()
            .setup_cqsize(2 * count as u32)
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(8)
            .map_err(refused)?;
        let address = entries.as_ptr() as u64;
        // SAFETY: a ring of `count` entries that outlives the io_uring, which is dropped first.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(address, count as u16, BUFFER_GROUP, 0)
        }
        .map_err(refused)?;
        // SAFETY: all zeroes is a valid `msghdr`; the kernel only looks at the two lengths.
        let mut header: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
        header.msg_namelen = SockAddr::MAX_LEN;
        header.msg_controllen = control as _;
        let mut uring = Self {
            ring,
            header,
            buffers,
            entries,
            count,
            stride,
            tail: 0,
            control,
            message_size,
            armed: false,
            watching: false,
            changed: false,
            awaiting_hangup: false,
            shut_down: false,
            taken: Vec::with_capacity(batch.min(count / 2)),
            lent: 0,
            batch: batch.min(count / 2),
            bound,
            syscalls: 0,
        };
        for id in 0..count as u16 {
            uring.give(id);
        }
        uring.publish();
        Ok(uring)
    }

    /// Takes what has arrived, without waiting: false if nothing has. Call it only when everything has been
    /// lent, or the rest may be lost.
    pub(crate) fn fill(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        self.recycle();
        if self.collect()? {
            return Ok(true);
        }
        self.arm(socket)?;
        self.reap()
    }

    /// Waits until something has arrived, `watch` has become readable, or the deadline has passed.
    pub(crate) fn wait(
        &mut self,
        socket: BorrowedFd<'_>,
        watch: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> io::Result<WaitOutcome> {
        self.arm(socket)?;
        if std::mem::take(&mut self.changed) {
            return Ok(WaitOutcome::Changed);
        }
        if self.shut_down {
            return Ok(WaitOutcome::Ready);
        }
        if !self.awaiting_hangup {
            let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), libc::POLLRDHUP as u32);
            self.push(&entry.build().user_data(HANGUP))?;
            self.awaiting_hangup = true;
        }
        if let Some(watch) = watch.filter(|_| !self.watching) {
            let entry = opcode::PollAdd::new(Fd(watch.as_raw_fd()), libc::POLLIN as u32);
            self.push(&entry.build().user_data(WATCH))?;
            self.watching = true;
        }
        self.syscalls += 1;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let answer = match left.map(Timespec::from) {
            Some(left) => {
                let args = SubmitArgs::new().timespec(&left);
                self.ring.submitter().submit_with_args(1, &args)
            }
            None => self.ring.submit_and_wait(1),
        };
        match answer {
            Ok(_) => Ok(WaitOutcome::Ready),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME) => Ok(WaitOutcome::TimedOut),
                Some(libc::EINTR) => Ok(WaitOutcome::Interrupted),
                // The completion ring is full: there is plenty to read.
                Some(libc::EBUSY) => Ok(WaitOutcome::Ready),
                _ => Err(error),
            },
        }
    }

    /// Whether something has arrived that can be taken without a call. Releases what was lent.
    #[inline]
    pub(crate) fn ready(&mut self) -> bool {
        if self.has_more() {
            return true;
        }
        self.recycle();
        !self.ring.completion().is_empty()
    }

    /// Whether something was taken that has not been lent.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.lent < self.taken.len()
    }

    /// The descriptor to poll.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open for as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// The next message.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Message<'_>> {
        let &(id, len) = self.taken.get(self.lent)?;
        self.lent += 1;
        // SAFETY: the kernel gave this buffer with `len` bytes in it, and does not touch it until it is
        // given back, for which `self` is needed.
        let buffer = unsafe {
            let at = self.buffers.as_ptr().add(usize::from(id) * self.stride);
            std::slice::from_raw_parts(at, (len as usize).min(self.stride))
        };
        let word = |at: usize| match buffer.get(at..at + 4).map(TryInto::try_into) {
            Some(Ok(bytes)) => u32::from_ne_bytes(bytes),
            _ => 0,
        };
        let (controls, whole, flags) = (word(4) as usize, word(8) as usize, word(12));
        let control_at = RECVMSG_OUT_LEN + NAME_LEN;
        let payload_at = control_at + self.control;
        let control = match self.control {
            0 => ControlMessages::default(),
            room => ControlMessages::parse(
                buffer.get(control_at..control_at + controls.min(room)).unwrap_or(&[]),
            ),
        };
        let got = buffer.get(payload_at..).unwrap_or(&[]);
        let payload = &got[..got.len().min(self.message_size).min(whole)];
        let source = SockAddr::read(buffer.get(RECVMSG_OUT_LEN..control_at).unwrap_or(&[]));
        let truncated = payload.len() < whole || flags & libc::MSG_TRUNC as u32 != 0;
        Some(control.message(payload, source, self.bound, truncated))
    }

    /// Starts the request, unless it runs.
    fn arm(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        if self.armed {
            return Ok(());
        }
        let entry = opcode::RecvMsgMulti::new(Fd(socket.as_raw_fd()), &*self.header, BUFFER_GROUP);
        self.push(&entry.build())?;
        self.armed = true;
        Ok(())
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the header lives as long as the ring, the buffers belong to it.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(|_| io::Error::other("the submission ring is full"))
    }

    /// Enters the kernel, which runs deferred work, and takes what has arrived.
    fn reap(&mut self) -> io::Result<bool> {
        self.syscalls += 1;
        match self.ring.submit() {
            Ok(_) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
            Err(error) => return Err(error),
        }
        self.collect()
    }

    /// Takes completions, up to a batch.
    fn collect(&mut self) -> io::Result<bool> {
        let mut failure = None;
        let mut completions = self.ring.completion();
        while self.taken.len() < self.batch {
            let Some(completion) = completions.next() else { break };
            if completion.user_data() == WATCH {
                (self.watching, self.changed) = (false, true);
                continue;
            }
            if completion.user_data() == HANGUP {
                // Not again for what is in the error queue, which nobody may read.
                self.shut_down |= completion.result() & i32::from(libc::POLLRDHUP) != 0;
                continue;
            }
            // Out of buffers, or done for another reason: what comes waits in the socket until the
            // request is made again.
            self.armed &= cqueue::more(completion.flags());
            match (completion.result(), cqueue::buffer_select(completion.flags())) {
                (len @ 0.., Some(id)) => self.taken.push((id, len.cast_unsigned())),
                (0.., None) => {}
                (error, _) => match -error {
                    libc::ENOBUFS | libc::EINTR | libc::EAGAIN | libc::ECANCELED => {}
                    errno => {
                        let error = io::Error::from_raw_os_error(errno);
                        // The others are in the error queue, too.
                        if !icmp::is_reported(&error) {
                            failure = Some(error);
                        }
                    }
                },
            }
        }
        drop(completions);
        match failure {
            Some(error) if self.taken.is_empty() => Err(error),
            _ => Ok(!self.taken.is_empty()),
        }
    }

    /// Gives the buffers of the last batch back.
    fn recycle(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        for at in 0..self.taken.len() {
            self.give(self.taken[at].0);
        }
        self.publish();
        self.taken.clear();
        self.lent = 0;
    }

    fn give(&mut self, id: u16) {
        let place = usize::from(self.tail) & (self.count - 1);
        // SAFETY: one of `count` entries, which the kernel does not read before the tail is published;
        // the fields written do not reach the tail, which shares the first entry's last two bytes.
        unsafe {
            let entry = &mut *self.entries.as_ptr().cast::<BufRingEntry>().add(place);
            let at = self.buffers.as_ptr().add(usize::from(id) * self.stride);
            entry.set_addr(at as u64);
            entry.set_len(self.stride as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel what was given: after this store it may read the entries.
    fn publish(&self) {
        // SAFETY: the tail of a ring that is this value's; aligned, since entries are.
        let tail = unsafe {
            let tail = BufRingEntry::tail(self.entries.as_ptr().cast());
            AtomicU16::from_ptr(tail.cast_mut())
        };
        tail.store(self.tail, Ordering::Release);
    }
}

/// Ends all requests of a ring: from then on the kernel writes nothing into their memory. Without a time limit only a
/// signal keeps it from that (`io_sync_cancel`); then it is asked again. Another error means that there is no request.
fn cancel_all(ring: &IoUring) {
    let cancel = || ring.submitter().register_sync_cancel(None, CancelBuilder::any());
    while cancel().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {}
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel ends requests some time after the ring is closed; until then it may write.
        if self.armed || self.watching || self.awaiting_hangup {
            cancel_all(&self.ring);
        }
    }
}
