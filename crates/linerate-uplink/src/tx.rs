//! [`Transmitter`]: from the device to the interface. Super-packets are split into the port's frames, and
//! partial checksums are completed, in the pass that copies.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_ring::packet::Sender;
use linerate_ring::tun::MAX_PACKET;
use linerate_segment::Policy;
use linerate_wire::checksum::Engine;
use linerate_wire::icmp::{self, Reason};
use linerate_wire::virtio::Header;
use linerate_wire::{ethernet, tcp, udp, vlan};
use rustix::io::Errno;

use crate::device::DeviceQueue;
use crate::neighbour::{ETHERNET_HEADER, Encapsulated, Encapsulator};
use crate::port::{FramePort, SendOutcome};
use crate::statistics::{Refusal, Statistics, segments};
use crate::vhost_user::ring::Received;
use crate::{Error, Result};

/// Frames between two kicks. A kick in copy mode sends 32 anyway; with more of them the copies of the
/// segments are no longer in the core's own cache when the kernel reads them.
const BATCH: usize = 64;

/// The device is not read while the port has fewer free frames: a super-packet of 64 KiB with an MSS of
/// 536 needs 123.
pub(crate) const MIN_FREE_FRAMES: usize = 128;

/// How long a thread sleeps while the interface does not take what was written.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The longest sleep of a thread: bounds how late it sees a request to end.
const MAX_SLEEP: Duration = Duration::from_millis(100);

/// Outcome of one pass of the transmitter.
pub(crate) struct Transmitted {
    /// It has sent something.
    pub(crate) any: bool,
    /// How long to sleep when nothing was received either.
    pub(crate) sleep: Duration,
}

impl Transmitted {
    fn new(any: bool, unsent: bool, up: bool) -> Self {
        Self { any, sleep: if unsent && up { RETRY_INTERVAL } else { MAX_SLEEP } }
    }
}

/// How long the rest of a super-packet waits for room in the port before it is dropped.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// ICMP errors a second of a thread; the kernel's limit for a destination is one a second (`icmp_ratelimit`).
const MAX_ICMP_ERRORS: u32 = 100;

/// What bounds the length of frames.
#[derive(Clone, Copy)]
struct Limit {
    mtu: usize,
    /// Bytes of the longest frame of the port.
    longest: usize,
}

impl Limit {
    /// The most bytes of a frame with the link header of `frame`: up to two VLAN tags are beyond the MTU.
    fn of(self, frame: &[u8]) -> usize {
        let is_tag = |at: usize| {
            let bytes = frame.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
            bytes.is_some_and(|bytes| ethernet::EtherType(u16::from_be_bytes(bytes)).is_tag())
        };
        let tags = [12, 16].into_iter().take_while(|at| is_tag(*at)).count();
        (self.mtu + ETHERNET_HEADER + tags * vlan::TAG_LEN).min(self.longest)
    }
}

/// From one queue of the device to the port.
pub(crate) struct Transmitter {
    buffer: Box<[u8]>,
    engine: Engine,
    policy: Policy,
    /// What goes out fits into the MTU.
    limit: Limit,
    /// ICMP errors for the device, to be written after the batch.
    errors: Vec<Box<[u8]>>,
    /// When the present second of them began, and how many it may still have.
    errors_since: Instant,
    errors_left: u32,
    /// For packets that have no Ethernet header: those of a TUN device.
    encapsulator: Option<Encapsulator>,
    /// For super-packets that the uplink cannot split.
    kernel: Option<Arc<Sender>>,
    /// Frames of the uplink's own that were written since the last kick.
    replied: usize,
}

impl Transmitter {
    /// `longest` is that of a frame that the port can write, in bytes.
    pub(crate) fn new(
        policy: Policy,
        mtu: u32,
        longest: usize,
        encapsulator: Option<Encapsulator>,
        kernel: Option<Arc<Sender>>,
    ) -> Self {
        Self {
            buffer: vec![0; ETHERNET_HEADER + MAX_PACKET].into_boxed_slice(),
            engine: Engine::detect(),
            policy,
            limit: Limit { mtu: mtu as usize, longest },
            errors: Vec::new(),
            errors_since: Instant::now(),
            errors_left: MAX_ICMP_ERRORS,
            encapsulator,
            kernel,
            replied: 0,
        }
    }

    /// Reads what is queued in the device, as far as the port has room, and sends it.
    pub(crate) fn transmit<P: FramePort>(
        &mut self,
        tap: &DeviceQueue,
        port: &mut P,
        statistics: &mut Statistics,
    ) -> Result<Transmitted> {
        let mut written = std::mem::take(&mut self.replied);
        if let Some(encapsulator) = &mut self.encapsulator {
            encapsulator.drop_stale();
            written += self.send_pending(port, statistics)?;
        }
        let mut any = written > 0;
        let start = if self.encapsulator.is_some() { ETHERNET_HEADER } else { 0 };
        while written < BATCH && port.room() >= MIN_FREE_FRAMES {
            // One system call a super-packet, which buys the copy out of the stack and the header that
            // says how to split: the driver has no ring to share.
            match tap.receive(&mut self.buffer[start..])? {
                Received::Packet(header, len) => {
                    any = true;
                    let encapsulated = match &mut self.encapsulator {
                        Some(encapsulator) => {
                            encapsulator.encapsulate(&header, &mut self.buffer, len)
                        }
                        None => Encapsulated::Frame(header),
                    };
                    written += self.forward(encapsulated, start + len, port, statistics)?;
                }
                Received::Empty => break,
                Received::TooLong => {
                    any = true;
                    statistics.dropped.too_long += 1;
                }
                Received::Malformed => {
                    any = true;
                    statistics.dropped.malformed += 1;
                }
            }
        }
        if !self.errors.is_empty() {
            self.send_errors(tap, statistics)?;
        }
        let up = if written > 0 || port.has_unsent() { port.flush()? } else { true };
        Ok(Transmitted::new(any, port.has_unsent() || self.pending() > 0, up))
    }

    /// Packets that wait for a neighbour.
    pub(crate) fn pending(&self) -> usize {
        self.encapsulator.as_ref().map_or(0, Encapsulator::pending)
    }

    /// Sends the packets whose neighbour was found, before those that come after them.
    fn send_pending<P: FramePort>(
        &mut self,
        port: &mut P,
        statistics: &mut Statistics,
    ) -> Result<usize> {
        let mut written = 0;
        while let Some(encapsulator) = &mut self.encapsulator
            && let Some((encapsulated, len)) = encapsulator.next_pending(&mut self.buffer)
        {
            written += self.forward(encapsulated, len, port, statistics)?;
        }
        Ok(written)
    }

    /// Writes a frame of the uplink's own to the port, to be sent with the next batch.
    pub(crate) fn reply<P: FramePort>(
        &mut self,
        frame: &[u8],
        port: &mut P,
        statistics: &mut Statistics,
    ) -> Result<()> {
        let header = Header::default();
        let written = send_whole(self.engine, self.limit, &header, frame, port, statistics)?;
        self.replied += written;
        statistics.rx.neighbour_replies += written as u64;
        Ok(())
    }

    /// Writes the frame in the buffer to the port. Returns how many frames it became.
    fn forward<P: FramePort>(
        &mut self,
        encapsulated: Encapsulated,
        len: usize,
        port: &mut P,
        statistics: &mut Statistics,
    ) -> Result<usize> {
        let header = match &encapsulated {
            Encapsulated::Frame(header) => header,
            without => {
                count_unsent(without, statistics);
                if *without == Encapsulated::Unreachable {
                    self.report(Reason::AddressUnreachable, len);
                }
                return Ok(0);
            }
        };
        let packet = &self.buffer[..len];
        if !header.is_gso() {
            if len > self.limit.of(packet) {
                self.refuse_too_long(len, statistics);
                return Ok(0);
            }
            return send_whole(self.engine, self.limit, header, packet, port, statistics);
        }
        let mut segments = match segments(header, packet, self.policy) {
            Ok(segments) => segments,
            Err(refusal) => {
                return self.leave_to_kernel(&refusal, header, len, port, statistics);
            }
        };
        let longest = segments.max_len();
        if longest > self.limit.of(packet) {
            self.refuse_too_long(len, statistics);
            return Ok(0);
        }
        statistics.tx.super_packets += 1;
        let mut frames = 0;
        for _ in 0..segments.len() {
            // Straight into the frame that is sent: the one copy, with the sum.
            let write = |out: &mut [u8]| segments.write_next(out).ok().flatten().unwrap_or(0);
            match write_frame(port, longest, write)? {
                SendOutcome::Bytes(bytes) => {
                    frames += 1;
                    statistics.tx.bytes += bytes as u64;
                }
                unsent => {
                    count_lost(&unsent, segments.len(), statistics);
                    break;
                }
            }
        }
        statistics.tx.segments += frames as u64;
        Ok(frames)
    }

    /// Has the kernel split a super-packet that the uplink cannot split.
    #[cold]
    fn leave_to_kernel<P: FramePort>(
        &mut self,
        refusal: &Refusal,
        header: &Header,
        len: usize,
        port: &mut P,
        statistics: &mut Statistics,
    ) -> Result<usize> {
        let packet = &self.buffer[..len];
        let Some(kernel) = self.kernel.as_ref().filter(|_| !refusal.is_policy()) else {
            statistics.unsplit.refuse(refusal, header);
            return Ok(0);
        };
        // The kernel compares no segment with the MTU.
        if headers_len(header, packet) + usize::from(header.gso_size) > self.limit.of(packet) {
            self.refuse_too_long(len, statistics);
            return Ok(0);
        }
        // What came before goes before.
        port.flush()?;
        match kernel.send(header, packet) {
            Ok(()) => {
                if statistics.tx.by_kernel == 0 {
                    tracing::warn!("the kernel splits a super-packet ({header}): {refusal}");
                }
                statistics.tx.by_kernel += 1;
                statistics.tx.bytes += packet.len() as u64;
            }
            Err(linerate_ring::Error::InterfaceDown(_)) => statistics.dropped.interface_down += 1,
            Err(gone @ linerate_ring::Error::InterfaceGone(_)) => return Err(gone.into()),
            Err(linerate_ring::Error::System { source, .. }) if is_full(&source) => {
                statistics.dropped.umem_full += 1;
            }
            Err(error) => {
                tracing::debug!(%error, "the kernel does not split it either");
                statistics.unsplit.refuse(refusal, header);
            }
        }
        Ok(0)
    }

    #[cold]
    fn refuse_too_long(&mut self, len: usize, statistics: &mut Statistics) {
        statistics.dropped.too_long += 1;
        let mtu = self.limit.mtu.min(self.limit.longest - ETHERNET_HEADER);
        self.report(Reason::TooBig(mtu as u32), len);
    }

    /// Queues an ICMP error to the stack behind a TUN device for the packet in the buffer, which ends at `len`, as the
    /// kernel does on an interface. Behind a TAP device the stack resolves its neighbours itself.
    #[cold]
    fn report(&mut self, reason: Reason, len: usize) {
        if self.errors_since.elapsed() >= Duration::from_secs(1) {
            (self.errors_since, self.errors_left) = (Instant::now(), MAX_ICMP_ERRORS);
        }
        if self.encapsulator.is_none() || self.errors_left == 0 {
            return;
        }
        let mut bytes = [0; icmp::MAX_ERROR_LEN];
        let packet = self.buffer.get(ETHERNET_HEADER..len).unwrap_or(&[]);
        if let Some(len) = icmp::emit_error(packet, reason, &mut bytes) {
            self.errors_left -= 1;
            // An allocation, for at most so many a second.
            self.errors.push(bytes[..len].into());
        }
    }

    #[cold]
    fn send_errors(&mut self, tap: &DeviceQueue, statistics: &mut Statistics) -> Result<()> {
        for error in self.errors.drain(..) {
            match tap.send(&Header::default(), &error) {
                Ok(sent) => statistics.rx.icmp_errors += u64::from(sent),
                Err(gone @ Error::Ring(linerate_ring::Error::InterfaceGone(_))) => {
                    return Err(gone);
                }
                // The device may be down or full. The loss of the packet is counted already.
                Err(error) => tracing::debug!(%error, "cannot write an ICMP error to the device"),
            }
        }
        Ok(())
    }
}

/// Bytes of headers before the payload of each segment, at least. `hdr_len` is a hint only.
fn headers_len(header: &Header, packet: &[u8]) -> usize {
    let Some(partial) = header.partial_checksum() else { return ETHERNET_HEADER };
    let start = usize::from(partial.start);
    let transport = packet.get(start..).unwrap_or(&[]);
    start
        + match usize::from(partial.offset) {
            tcp::CHECKSUM_OFFSET => {
                tcp::Segment::new_checked(transport).map_or(0, |segment| segment.header_len())
            }
            udp::CHECKSUM_OFFSET => udp::HEADER_LEN,
            _ => 0,
        }
}

/// The send buffer, or the queue of the interface.
fn is_full(error: &io::Error) -> bool {
    let full = [Errno::AGAIN, Errno::NOBUFS].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|number| full.contains(&number))
}

/// Sends a packet that needs no splitting. Its checksum is made in the pass that copies.
fn send_whole<P: FramePort>(
    engine: Engine,
    limit: Limit,
    header: &Header,
    packet: &[u8],
    port: &mut P,
    statistics: &mut Statistics,
) -> Result<usize> {
    if packet.len() > limit.of(packet) {
        statistics.dropped.too_long += 1;
        return Ok(0);
    }
    // From a program at a socket: the kernel has none of these.
    if packet.len() < ETHERNET_HEADER {
        statistics.dropped.too_short += 1;
        return Ok(0);
    }
    let partial = header.partial_checksum();
    if partial.is_some_and(|partial| !partial.fits(packet.len())) {
        statistics.unsplit.count_virtio_error();
        return Ok(0);
    }
    let write = |out: &mut [u8]| {
        let Some(out) = out.get_mut(..packet.len()) else { return 0 };
        match partial {
            Some(partial) => partial.copy(engine, packet, out),
            None => out.copy_from_slice(packet),
        }
        packet.len()
    };
    match write_frame(port, packet.len(), write)? {
        SendOutcome::Bytes(bytes) => {
            statistics.tx.packets += 1;
            statistics.tx.checksums += u64::from(partial.is_some());
            statistics.tx.bytes += bytes as u64;
            Ok(1)
        }
        unsent => {
            count_lost(&unsent, 1, statistics);
            Ok(0)
        }
    }
}

#[cold]
fn count_unsent(encapsulated: &Encapsulated, statistics: &mut Statistics) {
    match encapsulated {
        Encapsulated::Unreachable => statistics.dropped.unreachable += 1,
        Encapsulated::Full => statistics.dropped.unresolved += 1,
        Encapsulated::Malformed => statistics.unsplit.count_virtio_error(),
        Encapsulated::Frame(_) | Encapsulated::Pending => {}
    }
}

#[cold]
fn count_lost(unsent: &SendOutcome, frames: usize, statistics: &mut Statistics) {
    match unsent {
        SendOutcome::Down => statistics.dropped.interface_down += frames as u64,
        _ => statistics.dropped.umem_full += frames as u64,
    }
}

/// Calls `write` to fill one frame of the port, and waits briefly for a free one.
fn write_frame<P: FramePort>(
    port: &mut P,
    longest: usize,
    mut write: impl FnMut(&mut [u8]) -> usize,
) -> Result<SendOutcome> {
    if let sent @ SendOutcome::Bytes(_) = port.write(longest, &mut write)? {
        return Ok(sent);
    }
    let start = Instant::now();
    loop {
        let up = port.flush()?;
        if let sent @ SendOutcome::Bytes(_) = port.write(longest, &mut write)? {
            return Ok(sent);
        }
        if !up {
            return Ok(SendOutcome::Down);
        }
        if start.elapsed() > MAX_WAIT {
            return Ok(SendOutcome::Full);
        }
        port.wait_to_send(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests;
