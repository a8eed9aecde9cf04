//! [`TransmitRing`]: messages as Ethernet frames, through the transmit ring of an AF_XDP socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use linerate_ring::xdp::TxSocket;
use linerate_wire::checksum::{Engine, Sum};
use linerate_wire::{ethernet, ip, ipv4, ipv6, udp};
use rustix::event::PollFlags;

use crate::options::{MtuDiscovery, SendOptions};
use crate::outgoing::SendStatistics;
use crate::socket;
use crate::transmit::Transmit;

const ETHERNET: usize = ethernet::HEADER_LEN;
/// The smallest MTU of IPv6 (RFC 8200 §5): a longer packet may need fragments, which the stack makes.
const MIN_MTU_V6: usize = 1280;
/// Segments a super-datagram from which on the stack is faster than a ring in copy mode: it handles them as one packet.
const MIN_GSO_SEGMENTS: usize = 4;
/// How long to wait for a free frame at a time.
const ROOM_WAIT: Duration = Duration::from_millis(10);

/// What a transmit ring needs to know of its interface. The receiver, which follows the interface, keeps it up to date.
#[derive(Debug, Default)]
pub(crate) struct LinkState {
    /// The hardware address, in the low six bytes; 0 if the interface has none or is gone.
    mac: AtomicU64,
    mtu: AtomicU32,
    /// Incremented by every update.
    generation: AtomicU64,
}

impl LinkState {
    pub(crate) fn update(&self, mac: Option<ethernet::Address>, mtu: u32) {
        let packed = |mac: ethernet::Address| {
            mac.0.iter().fold(0, |packed, byte| packed << 8 | u64::from(*byte))
        };
        self.mac.store(mac.map_or(0, packed), Ordering::Relaxed);
        self.mtu.store(mtu, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn mac(&self) -> Option<ethernet::Address> {
        let packed = self.mac.load(Ordering::Relaxed);
        let [.., a, b, c, d, e, f] = packed.to_be_bytes();
        (packed != 0).then_some(ethernet::Address([a, b, c, d, e, f]))
    }
}

/// A transmit ring of the interface that messages come from.
#[derive(Debug)]
pub(crate) struct TransmitRing {
    pub(crate) tx: TxSocket,
    link: Arc<LinkState>,
    index: u32,
    bound: SocketAddr,
    /// TTL and traffic class of the socket for IPv4, then for IPv6.
    defaults: [(u8, u8); 2],
    mtu_discovery: Option<MtuDiscovery>,
    engine: Engine,
    identification: u16,
    /// Copied from `link` at the start of each call.
    mac: ethernet::Address,
    mtu: usize,
    /// The generation of the link in which the kernel refused to send: until the next all take the stack.
    failed_in: Option<u64>,
    /// It takes messages in this call.
    on: bool,
    /// Why the kernel refused to send in the last call.
    pub(crate) failure: Option<linerate_ring::Error>,
}

impl TransmitRing {
    /// `fd` is the socket, whose TTL counts here, too.
    pub(crate) fn new(
        tx: TxSocket,
        link: Arc<LinkState>,
        index: u32,
        bound: SocketAddr,
        fd: impl AsFd,
        options: &SendOptions,
    ) -> Self {
        Self {
            tx,
            link,
            index,
            bound,
            defaults: socket::ip_defaults(fd.as_fd()),
            mtu_discovery: options.mtu_discovery,
            engine: Engine::detect(),
            identification: 0,
            mac: ethernet::Address([0; 6]),
            mtu: 0,
            failed_in: None,
            on: false,
            failure: None,
        }
    }

    /// Prepares for a call that sends `count` transmits.
    pub(crate) fn start<'t>(&mut self, count: usize, transmit: impl Fn(usize) -> Transmit<'t>) {
        self.start_all();
        let segments = || (0..count).map(|at| transmit(at).segments()).sum::<usize>();
        self.on &= self.tx.mode().zero_copy || segments() < MIN_GSO_SEGMENTS * count;
    }

    /// The same for a call whose transmits all take this ring.
    pub(crate) fn start_all(&mut self) {
        let generation = self.link.generation.load(Ordering::Acquire);
        let mac = self.link.mac().filter(|_| self.failed_in != Some(generation));
        self.mac = mac.unwrap_or(self.mac);
        self.mtu = self.link.mtu.load(Ordering::Relaxed) as usize;
        self.on = mac.is_some();
    }

    /// Whether a transmit is for this ring: the hardware address of its next hop is known, and the stack would send it
    /// by this interface without fragments.
    #[inline]
    pub(crate) fn accepts(&self, transmit: &Transmit<'_>) -> bool {
        let Transmit { destination, next_hop, interface_index, .. } = *transmit;
        let Some(next_hop) = next_hop else { return false };
        let (source, destination) = (self.source(transmit), destination.ip().to_canonical());
        let size = transmit.split_size().unwrap_or(transmit.contents.len());
        let v6 = destination.is_ipv6();
        let headers = udp::HEADER_LEN + if v6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN };
        // Only a program that probes the path MTU itself sends IPv6 without the kernel's knowledge of it.
        let may_fragment = v6 && self.mtu_discovery != Some(MtuDiscovery::Probe);
        let most = if may_fragment { self.mtu.min(MIN_MTU_V6) } else { self.mtu };
        self.on
            && transmit.time.is_none()
            && !next_hop.is_multicast()
            && !source.is_unspecified()
            && !destination.is_multicast()
            && source.is_ipv6() == v6
            && interface_index.is_none_or(|index| index == self.index)
            && headers + size <= most
            && ETHERNET + headers + size <= self.tx.capacity()
            // DF asks for the path MTU that the kernel has learned.
            && (v6 || !matches!(self.mtu_discovery, Some(MtuDiscovery::Refuse | MtuDiscovery::Fragment)))
    }

    /// Sends `count` transmits that it accepts. Returns how many: if not all, it accepts none any more in this call.
    pub(crate) fn send<'t>(
        &mut self,
        count: usize,
        transmit: impl Fn(usize) -> Transmit<'t>,
        wait: bool,
        statistics: &mut SendStatistics,
    ) -> io::Result<usize> {
        let mut taken = 0;
        while taken < count {
            let one = transmit(taken);
            let segments = one.segments();
            if self.tx.free(segments) < segments && !self.make_room(segments, wait, statistics)? {
                self.on = false;
                break;
            }
            let size = one.split_size().unwrap_or(one.contents.len()).max(1);
            // An empty message is a datagram, too.
            let empty = one.contents.is_empty().then_some(one.contents);
            for contents in one.contents.chunks(size).chain(empty) {
                self.write(&one, contents);
            }
            statistics.messages += segments as u64;
            statistics.ring += segments as u64;
            statistics.bytes += one.contents.len() as u64;
            taken += 1;
        }
        self.flush(statistics);
        Ok(taken)
    }

    /// Waits a moment for frames that the device has sent; false if there are fewer than `segments`.
    #[cold]
    fn make_room(
        &mut self,
        segments: usize,
        wait: bool,
        statistics: &mut SendStatistics,
    ) -> io::Result<bool> {
        self.flush(statistics);
        if wait && self.tx.free(segments) < segments && self.on {
            socket::poll(self.tx.as_fd(), PollFlags::OUT, None, Some(Instant::now() + ROOM_WAIT))?;
            self.flush(statistics);
        }
        Ok(self.tx.free(segments) >= segments && self.on)
    }

    fn source(&self, transmit: &Transmit<'_>) -> IpAddr {
        transmit.source.unwrap_or(self.bound.ip()).to_canonical()
    }

    /// Writes one datagram into a frame of the ring. It was accepted, and a frame is free.
    #[inline]
    fn write(&mut self, transmit: &Transmit<'_>, contents: &[u8]) {
        let Some(mut frame) = self.tx.frame() else { return };
        let (source, destination) = (self.source(transmit), transmit.destination);
        let to = destination.ip().to_canonical();
        let len = udp::HEADER_LEN + contents.len();
        let Ok(mut ip) = ip::Repr::new(source, to, ip::Protocol::UDP, len) else {
            return self.tx.discard(frame);
        };
        let (ttl, class) = self.defaults[usize::from(to.is_ipv6())];
        let class = transmit.traffic_class.unwrap_or(class);
        match &mut ip {
            ip::Repr::V4(ip) => {
                (ip.ttl, ip.traffic_class) = (ttl, class);
                // Without DF routers make fragments where the path needs them.
                ip.dont_fragment = self.mtu_discovery == Some(MtuDiscovery::Probe);
                ip.identification = self.identification;
                self.identification = self.identification.wrapping_add(1);
            }
            ip::Repr::V6(ip) => (ip.hop_limit, ip.traffic_class) = (ttl, class),
        }
        let udp_at = ETHERNET + ip.header_len();
        let end = udp_at + len;
        let bytes = &mut self.tx.bytes(&mut frame)[..end];
        let link = ethernet::Repr {
            destination: transmit.next_hop.unwrap_or(self.mac),
            source: self.mac,
            ether_type: ip.ether_type(),
        };
        let (header, payload) = bytes[udp_at..].split_at_mut(udp::HEADER_LEN);
        let ports = [self.bound.port(), destination.port()];
        let sum = self.engine.copy(contents, payload).plus(ip.pseudo());
        let sum = ports.into_iter().chain([len as u16]).fold(sum, Sum::word);
        let words = [ports[0], ports[1], len as u16, sum.udp_checksum()];
        for (at, word) in header.chunks_exact_mut(2).zip(words) {
            at.copy_from_slice(&word.to_be_bytes());
        }
        let written = link.emit(bytes).and_then(|()| ip.emit(&mut bytes[ETHERNET..]));
        debug_assert!(written.is_ok(), "a chunk has room for the headers");
        self.tx.send(frame, end);
    }

    /// After a refusal of the kernel all messages take the stack, until the link changes.
    pub(crate) fn follow_failure(&mut self) {
        if let Some(error) = self.failure.take() {
            tracing::warn!("messages are sent through the network stack: {error}");
            self.failed_in = Some(self.link.generation.load(Ordering::Acquire));
        }
    }

    /// Has the kernel send what is in the ring.
    fn flush(&mut self, statistics: &mut SendStatistics) {
        statistics.syscalls += 1;
        if let Err(error) = self.tx.flush() {
            self.failure = Some(error);
            self.on = false;
        }
        self.tx.reclaim();
    }
}
