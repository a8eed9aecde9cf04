//! [`Encapsulator`]: the Ethernet header of each packet from a TUN device, and the packets that wait for one.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_wire::ethernet::{self, Address, EtherType};
use linerate_wire::ip;
use linerate_wire::virtio::Header;

use super::{DestinationCache, Resolution};

/// Bytes of an Ethernet header.
pub(crate) const ETHERNET_HEADER: usize = ethernet::HEADER_LEN;

/// Destinations in the cache of a thread; it is direct-mapped.
const CACHE_SIZE: usize = 256;

/// How long they stay there. Reading them again marks them as used in the shared cache.
const CACHE_LIFETIME: Duration = Duration::from_secs(1);

/// Packets that wait for a neighbour, and their bytes; the kernel's own limits
/// (`net.ipv4.neigh.default.unres_qlen`).
const MAX_PENDING: (usize, usize) = (101, 256 << 10);

/// How long a packet waits at most; the kernel has given up by then.
const MAX_PENDING_TIME: Duration = Duration::from_secs(5);

/// Makes frames of the packets of one thread.
pub(crate) struct Encapsulator {
    cache: Arc<DestinationCache>,
    /// The interface's address.
    mac: Address,
    changes: u64,
    refreshed: Instant,
    known: Vec<Option<(IpAddr, Address)>>,
    pending: VecDeque<PendingPacket>,
    bytes: usize,
    /// How many pending packets have to be checked because the cache has changed.
    due: usize,
}

struct PendingPacket {
    destination: IpAddr,
    header: Header,
    packet: Box<[u8]>,
    since: Instant,
}

/// Outcome of one packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Encapsulated {
    /// It is a frame now, with this virtio header.
    Frame(Header),
    /// It waits for its neighbour.
    Pending,
    /// No neighbour answers.
    Unreachable,
    /// Too many packets wait.
    Full,
    /// It is not an IP packet.
    Malformed,
}

impl Encapsulator {
    pub(crate) fn new(cache: Arc<DestinationCache>) -> Self {
        let changes = cache.changes();
        let mac = cache.lock().mac;
        Self {
            cache,
            mac,
            changes,
            refreshed: Instant::now(),
            known: vec![None; CACHE_SIZE],
            pending: VecDeque::new(),
            bytes: 0,
            due: 0,
        }
    }

    /// Drops what may have changed; call it once a batch.
    pub(crate) fn drop_stale(&mut self) {
        let changes = self.cache.changes();
        if changes != self.changes {
            self.changes = changes;
            self.mac = self.cache.lock().mac;
        } else if self.refreshed.elapsed() < CACHE_LIFETIME {
            return;
        }
        self.refreshed = Instant::now();
        self.known.fill(None);
        self.due = self.pending.len();
    }

    /// How many packets wait.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The next packet whose wait has ended, written as a frame to `buffer`, with its length in bytes.
    pub(crate) fn next_pending(&mut self, buffer: &mut [u8]) -> Option<(Encapsulated, usize)> {
        while self.due > 0 {
            self.due -= 1;
            let one = self.pending.pop_front()?;
            let resolution = self.find(one.destination);
            if resolution == Resolution::Pending && one.since.elapsed() < MAX_PENDING_TIME {
                self.pending.push_back(one);
                continue;
            }
            self.bytes -= one.packet.len();
            let len = ETHERNET_HEADER + one.packet.len();
            buffer[ETHERNET_HEADER..len].copy_from_slice(&one.packet);
            let encapsulated = match resolution {
                Resolution::Resolved(mac) => self.emit(&one.header, mac, buffer),
                Resolution::Pending | Resolution::Unreachable => Encapsulated::Unreachable,
            };
            return Some((encapsulated, len));
        }
        None
    }

    /// Writes the Ethernet header before the packet of `len` bytes in `buffer`, which has room for it, or
    /// keeps a copy of the packet until that is possible.
    #[inline]
    pub(crate) fn encapsulate(
        &mut self,
        header: &Header,
        buffer: &mut [u8],
        len: usize,
    ) -> Encapsulated {
        let packet = &buffer[ETHERNET_HEADER..ETHERNET_HEADER + len];
        let Some(destination) = ip::destination(packet) else { return Encapsulated::Malformed };
        let resolution = match group(destination) {
            Some(mac) => Resolution::Resolved(mac),
            None => self.find(destination),
        };
        match resolution {
            Resolution::Resolved(mac) => self.emit(header, mac, buffer),
            Resolution::Pending => self.enqueue(destination, header, len, buffer),
            Resolution::Unreachable => Encapsulated::Unreachable,
        }
    }

    fn find(&mut self, destination: IpAddr) -> Resolution {
        let slot = slot(destination);
        if let Some((known, mac)) = self.known[slot]
            && known == destination
        {
            return Resolution::Resolved(mac);
        }
        // A lock, once a second for each destination.
        let resolution = self.cache.find(destination);
        if let Resolution::Resolved(mac) = resolution {
            self.known[slot] = Some((destination, mac));
        }
        resolution
    }

    #[cold]
    fn enqueue(
        &mut self,
        destination: IpAddr,
        header: &Header,
        len: usize,
        buffer: &[u8],
    ) -> Encapsulated {
        if self.pending.len() >= MAX_PENDING.0 || self.bytes + len > MAX_PENDING.1 {
            return Encapsulated::Full;
        }
        self.bytes += len;
        // An allocation, for packets that wait for a round trip.
        let packet = buffer[ETHERNET_HEADER..ETHERNET_HEADER + len].into();
        self.pending.push_back(PendingPacket {
            destination,
            header: *header,
            packet,
            since: Instant::now(),
        });
        Encapsulated::Pending
    }

    fn emit(&self, header: &Header, mac: Address, buffer: &mut [u8]) -> Encapsulated {
        let kind =
            if buffer[ETHERNET_HEADER] >> 4 == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let ethernet = ethernet::Repr { destination: mac, source: self.mac, ether_type: kind };
        match ethernet.emit(buffer) {
            Ok(()) => Encapsulated::Frame(header.push(ETHERNET_HEADER as u16)),
            Err(_) => Encapsulated::Malformed,
        }
    }
}

/// The hardware address of a group or of the broadcast address, which need no resolution.
fn group(destination: IpAddr) -> Option<Address> {
    match destination {
        IpAddr::V4(address) if address.is_broadcast() => Some(Address::BROADCAST),
        address => Address::of_group(address),
    }
}

/// The slot of a destination. Two destinations in one slot cost their thread a lock a packet.
fn slot(destination: IpAddr) -> usize {
    let bits = match destination {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            (bits >> 64) as u64 ^ bits as u64
        }
    };
    (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % CACHE_SIZE
}

#[cfg(test)]
mod tests;
