//! [`Frames`]: messages as Ethernet frames through an AF_XDP socket, segmented by this library.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use linerate_ring::xdp::Transmit;
use linerate_segment::segment::{Options, Segments, Split};
use linerate_wire::checksum::Engine;
use linerate_wire::{ethernet, ip, ipv4, ipv6, udp};

use super::Run;
use crate::{Error, Result, interface};

const ETHERNET: usize = ethernet::HEADER_LEN;
/// Frames in the ring.
const DEPTH: u32 = 2048;
const CHUNK: u32 = 2048;
/// How long a device may take no frame.
const PATIENCE: Duration = Duration::from_secs(2);

/// A transmit ring and the headers of one flow.
#[derive(Debug)]
pub(super) struct Frames {
    ring: Transmit,
    engine: Engine,
    from: SocketAddr,
    to: SocketAddr,
    macs: [ethernet::Address; 2],
    identification: u16,
    queued: u32,
    calls: u64,
}

impl Frames {
    pub(super) fn open(
        name: &str,
        from: SocketAddr,
        to: SocketAddr,
        next_hop: Option<ethernet::Address>,
        message_size: usize,
    ) -> Result<Self> {
        interface::index(name)?;
        let mtu = linerate_net::link::by_name(name)?.mtu as usize;
        let headers =
            udp::HEADER_LEN + if to.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let most = mtu.min(CHUNK as usize - ETHERNET) - headers;
        if message_size > most {
            return Err(Error::Invalid(format!(
                "messages of {message_size} bytes do not fit into frames of interface {name}, which \
                 carry {most}; AF_XDP makes no fragments"
            )));
        }
        let own = interface::identity(name)?
            .mac
            .ok_or_else(|| Error::Invalid(format!("interface {name} has no Ethernet address")))?;
        let there = match next_hop {
            Some(address) => address,
            None => neighbour(name, to.ip())?,
        };
        let ring = Transmit::open(name, 0, DEPTH, CHUNK)?;
        Ok(Self {
            ring,
            engine: Engine::detect(),
            from,
            to,
            macs: [there, own],
            identification: 0,
            queued: 0,
            calls: 0,
        })
    }

    /// Splits a run, whose headroom takes the headers, into frames, and puts them into the ring.
    pub(super) fn send(&mut self, arena: &mut [u8], run: &Run) -> Result<()> {
        let start = self.write_headers(arena, run)?;
        let size = u16::try_from(run.size.max(1)).unwrap_or(u16::MAX);
        let options = Options::new(Split::Udp { size });
        let segments = Segments::new(&arena[start..run.to], &options)
            .map_err(|why| Error::Invalid(format!("cannot split a run of messages: {why}")))?;
        let mut segments = segments.with_engine(self.engine);
        for _ in 0..run.messages {
            let mut frame = self.frame()?;
            let written = segments.write_next(self.ring.bytes(&mut frame));
            match written {
                Ok(Some(len)) => {
                    self.ring.send(frame, len);
                    self.queued += 1;
                }
                Ok(None) => {
                    self.ring.discard(frame);
                    break;
                }
                Err(why) => {
                    self.ring.discard(frame);
                    return Err(Error::Invalid(format!("cannot split a run of messages: {why}")));
                }
            }
        }
        self.identification = self.identification.wrapping_add(run.messages as u16);
        Ok(())
    }

    /// Has the kernel send what is in the ring. Returns how many calls were made since the last time.
    pub(super) fn flush(&mut self) -> Result<u64> {
        if self.queued > 0 {
            self.ring.flush()?;
            (self.queued, self.calls) = (0, self.calls + 1);
        }
        Ok(std::mem::take(&mut self.calls))
    }

    pub(super) fn drain(&mut self, time: Duration) -> Result<bool> {
        self.ring.drain(time).map_err(Into::into)
    }

    fn frame(&mut self) -> Result<linerate_ring::xdp::Outgoing> {
        if let Some(frame) = self.ring.frame() {
            return Ok(frame);
        }
        let end = Instant::now() + PATIENCE;
        loop {
            self.ring.flush()?;
            (self.queued, self.calls) = (0, self.calls + 1);
            if let Some(frame) = self.ring.frame() {
                return Ok(frame);
            }
            if Instant::now() >= end {
                return Err(Error::Invalid(format!(
                    "the device takes no frame for {} seconds",
                    PATIENCE.as_secs()
                )));
            }
            std::thread::yield_now();
        }
    }

    /// Writes Ethernet, IP and UDP headers in front of a run; returns where they begin.
    fn write_headers(&mut self, arena: &mut [u8], run: &Run) -> Result<usize> {
        let emitted = |_| Error::Invalid("a run of messages longer than a packet".to_owned());
        let udp_at = run.from - udp::HEADER_LEN;
        let udp_len = run.to - udp_at;
        let ip = ip::Repr::new(self.from.ip(), self.to.ip(), ip::Protocol::UDP, udp_len)
            .map_err(|_| Error::Invalid("addresses of two versions of IP".to_owned()))?
            .with_identification(self.identification);
        let ip_at = udp_at - ip.header_len();
        let start = ip_at - ETHERNET;
        let [destination, source] = self.macs;
        let ethernet = ethernet::Repr { destination, source, ether_type: ip.ether_type() };
        let udp = udp::Repr { source_port: self.from.port(), destination_port: self.to.port() };
        ip.emit(&mut arena[ip_at..]).map_err(emitted)?;
        udp.emit(&mut arena[udp_at..run.to], ip.pseudo()).map_err(emitted)?;
        ethernet.emit(&mut arena[start..]).map_err(emitted)?;
        Ok(start)
    }
}

/// The hardware address of `address` on the interface: a group has its own, a host the one in the neighbour
/// table.
fn neighbour(interface: &str, address: IpAddr) -> Result<ethernet::Address> {
    if let Some(group) = ethernet::Address::of_group(address) {
        return Ok(group);
    }
    if let IpAddr::V4(address) = address
        && let Some(found) = resolved(interface, address)
    {
        return Ok(found);
    }
    let remedy = match address {
        IpAddr::V4(_) => {
            format!("have the stack find it with `ping -c 1 {address}`, or say it: --next-hop")
        }
        IpAddr::V6(_) => {
            "for IPv6 it has to be said: --next-hop, as `ip -6 neighbour` has it".to_owned()
        }
    };
    Err(Error::Invalid(format!(
        "no hardware address of {address} on {interface} is known; {remedy}"
    )))
}

/// A complete entry of `/proc/net/arp`: address, type, flags, hardware address, mask, device.
fn resolved(interface: &str, address: Ipv4Addr) -> Option<ethernet::Address> {
    let table = std::fs::read_to_string("/proc/thread-self/net/arp").ok()?;
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [ip, _, flags, mac, _, device] = fields[..] else { return None };
        let wanted = ip == address.to_string() && device == interface && flags != "0x0";
        wanted.then(|| mac.parse().ok()).flatten()
    })
}
