//! [`Heads`]: the Ethernet header of each packet from a TUN device, and the packets that wait for one.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_wire::ethernet::{self, Address, EtherType};
use linerate_wire::ip;
use linerate_wire::virtio::Header;

use super::{Way, Ways};

/// Bytes of an Ethernet header.
pub(crate) const LINK: usize = ethernet::HEADER_LEN;

/// Destinations that a thread remembers; two that meet in a place take turns.
const REMEMBERED: usize = 256;

/// How long it does: in between it says that they are in use.
const REFRESH: Duration = Duration::from_secs(1);

/// Packets that wait, and their bytes; what the kernel lets wait for a neighbour, too
/// (`net.ipv4.neigh.default.unres_qlen`).
const WAITING: (usize, usize) = (101, 256 << 10);

/// How long one waits at most; the kernel has given up by then.
const PATIENCE: Duration = Duration::from_secs(5);

/// One thread's way from packets to frames.
pub(crate) struct Heads {
    ways: Arc<Ways>,
    /// The interface's address.
    mac: Address,
    changes: u64,
    refreshed: Instant,
    remembered: Vec<Option<(IpAddr, Address)>>,
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// How many of those that wait are to be looked at because something changed.
    due: usize,
}

struct Waiting {
    destination: IpAddr,
    header: Header,
    packet: Box<[u8]>,
    since: Instant,
}

/// What became of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Headed {
    /// It is a frame now, with this virtio header.
    Frame(Header),
    /// It waits.
    Waits,
    /// It waits no longer, or never did: nobody is there.
    Unreachable,
    /// As many wait as may.
    Full,
    /// It is no IP packet.
    Malformed,
}

impl Heads {
    pub(crate) fn new(ways: Arc<Ways>) -> Self {
        let changes = ways.changes();
        let mac = ways.lock().mac;
        Self {
            ways,
            mac,
            changes,
            refreshed: Instant::now(),
            remembered: vec![None; REMEMBERED],
            waiting: VecDeque::new(),
            bytes: 0,
            due: 0,
        }
    }

    /// Forgets what may have changed; to be called once a batch.
    pub(crate) fn refresh(&mut self) {
        let changes = self.ways.changes();
        if changes != self.changes {
            self.changes = changes;
            self.mac = self.ways.lock().mac;
        } else if self.refreshed.elapsed() < REFRESH {
            return;
        }
        self.refreshed = Instant::now();
        self.remembered.fill(None);
        self.due = self.waiting.len();
    }

    /// How many packets wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The next packet that waited and need not any more, written as a frame to `buffer`, with its length in
    /// bytes.
    pub(crate) fn next_waiting(&mut self, buffer: &mut [u8]) -> Option<(Headed, usize)> {
        while self.due > 0 {
            self.due -= 1;
            let one = self.waiting.pop_front()?;
            let way = self.find(one.destination);
            if way == Way::Waiting && one.since.elapsed() < PATIENCE {
                self.waiting.push_back(one);
                continue;
            }
            self.bytes -= one.packet.len();
            let Way::To(mac) = way else { return Some((Headed::Unreachable, 0)) };
            buffer[LINK..LINK + one.packet.len()].copy_from_slice(&one.packet);
            return Some((self.emit(&one.header, mac, buffer), LINK + one.packet.len()));
        }
        None
    }

    /// Writes the Ethernet header before the packet of `len` bytes that stands in `buffer` behind room for
    /// it, or keeps a copy of the packet until that can be done.
    #[inline]
    pub(crate) fn put(&mut self, header: &Header, buffer: &mut [u8], len: usize) -> Headed {
        let packet = &buffer[LINK..LINK + len];
        let Some(destination) = ip::destination(packet) else { return Headed::Malformed };
        let way = match group(destination) {
            Some(mac) => Way::To(mac),
            None => self.find(destination),
        };
        match way {
            Way::To(mac) => self.emit(header, mac, buffer),
            Way::Waiting => self.keep(destination, header, len, buffer),
            Way::Nowhere => Headed::Unreachable,
        }
    }

    fn find(&mut self, destination: IpAddr) -> Way {
        let place = place(destination);
        if let Some((known, mac)) = self.remembered[place]
            && known == destination
        {
            return Way::To(mac);
        }
        // A lock, once a second for each destination.
        let way = self.ways.find(destination);
        if let Way::To(mac) = way {
            self.remembered[place] = Some((destination, mac));
        }
        way
    }

    #[cold]
    fn keep(&mut self, destination: IpAddr, header: &Header, len: usize, buffer: &[u8]) -> Headed {
        if self.waiting.len() >= WAITING.0 || self.bytes + len > WAITING.1 {
            return Headed::Full;
        }
        self.bytes += len;
        // An allocation, for packets that wait for a round trip.
        let packet = buffer[LINK..LINK + len].into();
        self.waiting.push_back(Waiting {
            destination,
            header: *header,
            packet,
            since: Instant::now(),
        });
        Headed::Waits
    }

    fn emit(&self, header: &Header, mac: Address, buffer: &mut [u8]) -> Headed {
        let kind = if buffer[LINK] >> 4 == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let ethernet = ethernet::Repr { destination: mac, source: self.mac, ether_type: kind };
        match ethernet.emit(buffer) {
            Ok(()) => Headed::Frame(header.push(LINK as u16)),
            Err(_) => Headed::Malformed,
        }
    }
}

/// The hardware address of a group, which needs no asking, and of everybody.
fn group(destination: IpAddr) -> Option<Address> {
    match destination {
        IpAddr::V4(address) if address.is_broadcast() => Some(Address::BROADCAST),
        address => Address::of_group(address),
    }
}

/// Where a destination is remembered. Who floods one place costs its own thread a lock a packet.
fn place(destination: IpAddr) -> usize {
    let bits = match destination {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            (bits >> 64) as u64 ^ bits as u64
        }
    };
    (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % REMEMBERED
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Address = Address([2, 0, 0, 0, 0, 1]);
    const PEER: Address = Address([2, 0, 0, 0, 0, 2]);

    fn packet(destination: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1];
        packet.extend(destination);
        packet
    }

    fn buffer(packet: &[u8]) -> Vec<u8> {
        [&[0; LINK], packet, &[0; 64]].concat()
    }

    fn answer(ways: &Ways, destination: [u8; 4], way: Way) {
        ways.lock().ways.get_mut(&IpAddr::from(destination)).unwrap().way = way;
        ways.changed();
    }

    #[test]
    fn packets_wait_for_their_neighbour_and_go_in_order() {
        let ways = Arc::new(Ways::new(MAC).unwrap());
        let mut heads = Heads::new(Arc::clone(&ways));
        let there = [10, 0, 0, 2];
        for len in [20, 21] {
            let mut buffer = buffer(&packet(there));
            assert_eq!(heads.put(&Header::default(), &mut buffer, len), Headed::Waits);
        }
        let mut out = vec![0; 100];
        heads.refresh();
        assert_eq!(heads.next_waiting(&mut out), None, "nothing has changed");
        answer(&ways, there, Way::To(PEER));
        heads.refresh();
        for len in [20, 21] {
            let frame = Headed::Frame(Header::default());
            assert_eq!(heads.next_waiting(&mut out), Some((frame, LINK + len)));
            assert_eq!(out[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
            assert_eq!(out[14..34], packet(there));
        }
        assert_eq!((heads.waiting(), heads.bytes), (0, 0));
        // Known now; another address of the neighbour counts from the next batch on.
        let mut one = buffer(&packet(there));
        assert_eq!(heads.put(&Header::default(), &mut one, 20), Headed::Frame(Header::default()));
        answer(&ways, there, Way::To(Address([2, 0, 0, 0, 0, 3])));
        heads.refresh();
        heads.put(&Header::default(), &mut one, 20);
        assert_eq!(one[..6], [2, 0, 0, 0, 0, 3]);
        ways.set_mac(Address([2, 0, 0, 0, 0, 7]));
        heads.refresh();
        heads.put(&Header::default(), &mut one, 20);
        assert_eq!(one[..12], [2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn what_waits_is_bounded_and_dropped_where_nobody_answers() {
        let ways = Arc::new(Ways::new(MAC).unwrap());
        let mut heads = Heads::new(Arc::clone(&ways));
        let there = [10, 0, 0, 9];
        let mut one = buffer(&packet(there));
        for _ in 0..WAITING.0 {
            assert_eq!(heads.put(&Header::default(), &mut one, 20), Headed::Waits);
        }
        assert_eq!(heads.put(&Header::default(), &mut one, 20), Headed::Full);
        answer(&ways, there, Way::Nowhere);
        heads.refresh();
        for _ in 0..WAITING.0 {
            assert_eq!(heads.next_waiting(&mut one), Some((Headed::Unreachable, 0)));
        }
        assert_eq!(heads.next_waiting(&mut one), None);
        assert_eq!(heads.put(&Header::default(), &mut one, 20), Headed::Unreachable);
    }

    #[test]
    fn groups_need_no_neighbour_and_other_bytes_get_none() {
        let ways = Arc::new(Ways::new(MAC).unwrap());
        let mut heads = Heads::new(ways);
        for (to, mac) in
            [([239, 255, 0, 250], [1, 0, 0x5e, 0x7f, 0, 250]), ([255, 255, 255, 255], [0xff; 6])]
        {
            let mut one = buffer(&packet(to));
            let headed = heads.put(&Header::default(), &mut one, 20);
            assert_eq!(headed, Headed::Frame(Header::default()));
            assert_eq!(one[..6], mac);
        }
        assert_eq!(group("ff02::1:2".parse().unwrap()), Some(Address([0x33, 0x33, 0, 1, 0, 2])));
        for bytes in [&[][..], &[0x45], &[0x45; 19], &[0x60; 39], &[0; 60]] {
            let mut one = buffer(bytes);
            let headed = heads.put(&Header::default(), &mut one, bytes.len());
            assert_eq!(headed, Headed::Malformed, "{bytes:?}");
        }
    }
}
