//! [`XdpSender`]: sends messages as Ethernet frames through an AF_XDP socket, segmented by this library.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use linerate_net::Connection;
use linerate_ring::xdp;
use linerate_segment::segment::{Options, Segments, Split};
use linerate_wire::checksum::Engine;
use linerate_wire::{ethernet, ip, ipv4, ipv6, udp};

use crate::queue::Run;
use crate::{Error, Result};

const ETHERNET: usize = ethernet::HEADER_LEN;
/// XdpSender in the ring.
const DEPTH: u32 = 2048;
const CHUNK: u32 = 2048;
/// How long to wait for a free frame before an error.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// A transmit ring and the headers of one flow.
#[derive(Debug)]
pub(super) struct XdpSender {
    ring: xdp::TxSocket,
    engine: Engine,
    from: SocketAddr,
    to: SocketAddr,
    macs: [ethernet::Address; 2],
    identification: u16,
    queued: u32,
    syscalls: u64,
}

impl XdpSender {
    pub(super) fn open(
        name: &str,
        from: SocketAddr,
        to: SocketAddr,
        next_hop: Option<ethernet::Address>,
        message_size: usize,
    ) -> Result<Self> {
        let link = linerate_net::link::by_name(name)?;
        let (index, mtu) = (link.index, link.mtu as usize);
        let headers =
            udp::HEADER_LEN + if to.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let most = mtu.min(CHUNK as usize - ETHERNET) - headers;
        if message_size > most {
            return Err(Error::Invalid(format!(
                "messages of {message_size} bytes do not fit into frames of interface {name}, which \
                 carry {most}; AF_XDP makes no fragments"
            )));
        }
        let own = link
            .address
            .ok_or_else(|| Error::Invalid(format!("interface {name} has no Ethernet address")))?;
        let there = match next_hop {
            Some(address) => address,
            None => next_hop_address(name, index, to.ip())?,
        };
        let ring = xdp::TxSocket::open(name, 0, DEPTH, CHUNK)?;
        Ok(Self {
            ring,
            engine: Engine::detect(),
            from,
            to,
            macs: [there, own],
            identification: 0,
            queued: 0,
            syscalls: 0,
        })
    }

    /// Segments a run into frames and puts them into the ring. The headers are written to its headroom.
    pub(super) fn send(&mut self, buffer: &mut [u8], run: &Run) -> Result<()> {
        let start = self.write_headers(buffer, run)?;
        let size = u16::try_from(run.segment_size.max(1)).unwrap_or(u16::MAX);
        let options = Options::new(Split::Udp { size });
        let segments = Segments::new(&buffer[start..run.end], &options)
            .map_err(|why| Error::Invalid(format!("cannot split a run of messages: {why}")))?;
        let mut segments = segments.with_engine(self.engine);
        for _ in 0..run.segments {
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
        self.identification = self.identification.wrapping_add(run.segments as u16);
        Ok(())
    }

    /// Has the kernel send what is in the ring. Returns how many calls were made since the last time.
    pub(super) fn flush(&mut self) -> Result<u64> {
        if self.queued > 0 {
            self.ring.flush()?;
            (self.queued, self.syscalls) = (0, self.syscalls + 1);
        }
        Ok(std::mem::take(&mut self.syscalls))
    }

    pub(super) fn drain(&mut self, time: Duration) -> Result<bool> {
        self.ring.drain(time).map_err(Into::into)
    }

    fn frame(&mut self) -> Result<xdp::TxFrame> {
        if let Some(frame) = self.ring.frame() {
            return Ok(frame);
        }
        let end = Instant::now() + SEND_TIMEOUT;
        loop {
            self.ring.flush()?;
            (self.queued, self.syscalls) = (0, self.syscalls + 1);
            if let Some(frame) = self.ring.frame() {
                return Ok(frame);
            }
            if Instant::now() >= end {
                return Err(Error::Invalid(format!(
                    "the device takes no frame for {} seconds",
                    SEND_TIMEOUT.as_secs()
                )));
            }
            std::thread::yield_now();
        }
    }

    /// Writes Ethernet, IP and UDP headers in front of a run; returns where they begin.
    fn write_headers(&mut self, buffer: &mut [u8], run: &Run) -> Result<usize> {
        let emitted = |_| Error::Invalid("a run of messages longer than a packet".to_owned());
        let udp_at = run.start - udp::HEADER_LEN;
        let udp_len = run.end - udp_at;
        let ip = ip::Repr::new(self.from.ip(), self.to.ip(), ip::Protocol::UDP, udp_len)
            .map_err(|_| Error::Invalid("addresses of two versions of IP".to_owned()))?
            .with_identification(self.identification);
        let ip_at = udp_at - ip.header_len();
        let start = ip_at - ETHERNET;
        let [destination, source] = self.macs;
        let ethernet = ethernet::Repr { destination, source, ether_type: ip.ether_type() };
        let udp = udp::Repr { source_port: self.from.port(), destination_port: self.to.port() };
        ip.emit(&mut buffer[ip_at..]).map_err(emitted)?;
        udp.emit(&mut buffer[udp_at..run.end], ip.pseudo()).map_err(emitted)?;
        ethernet.emit(&mut buffer[start..]).map_err(emitted)?;
        Ok(start)
    }
}

/// How long the kernel may take to resolve a neighbour: its three requests take three seconds.
const MAX_RESOLUTION_TIME: Duration = Duration::from_secs(4);

/// The Ethernet address that frames for `destination` go to: that of a group, or of the next hop as the kernel's
/// routes and neighbour table have it, which is resolved where the table does not have it.
fn next_hop_address(interface: &str, index: u32, destination: IpAddr) -> Result<ethernet::Address> {
    if let Some(group) = ethernet::Address::of_group(destination) {
        return Ok(group);
    }
    let connection = Connection::open()?;
    // Without a route the destination may still be on the link.
    let route = connection.route_to(destination, Some(index)).ok();
    let next_hop = route.and_then(|route| route.gateway).unwrap_or(destination);
    let why = match connection.resolve(index, next_hop, MAX_RESOLUTION_TIME) {
        Ok(Some(address)) => return Ok(address),
        Ok(None) => "nobody answers".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Error::Invalid(format!(
        "no hardware address of {next_hop} on {interface} is known: {why}; `ip neighbour` shows those that \
         are, --next-hop sets one"
    )))
}
