//! [`XdpSender`]: sends messages to one address through the transmit ring of an AF_XDP socket.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_net::Connection;
use linerate_ring::xdp;
use linerate_wire::{ethernet, ipv4, ipv6, udp};

use crate::options::{MtuDiscovery, SendOptions};
use crate::outgoing::SendStatistics;
use crate::queue::Queue;
use crate::transmit::Transmit;
use crate::xdp::{LinkState, TransmitRing};
use crate::{Error, Result};

const ETHERNET: usize = ethernet::HEADER_LEN;
/// Frames in the ring.
const DEPTH: u32 = 2048;
const CHUNK: u32 = 2048;
/// How long to wait for a free frame before an error.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// A transmit ring, and the next hop of all messages.
#[derive(Debug)]
pub(super) struct XdpSender {
    pub(super) ring: TransmitRing,
    next_hop: ethernet::Address,
}

impl XdpSender {
    /// `socket` has the port.
    pub(super) fn open(
        name: &str,
        socket: impl AsFd,
        from: SocketAddr,
        to: SocketAddr,
        next_hop: Option<ethernet::Address>,
        message_size: usize,
    ) -> Result<Self> {
        let link = linerate_net::link::by_name(name)?;
        let headers =
            udp::HEADER_LEN + if to.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let most = (link.mtu as usize).min(CHUNK as usize - ETHERNET) - headers;
        if message_size > most {
            return Err(Error::Invalid(format!(
                "messages of {message_size} bytes do not fit into frames of interface {name}, which \
                 carry {most}; AF_XDP makes no fragments"
            )));
        }
        if link.address.is_none() {
            return Err(Error::Invalid(format!("interface {name} has no Ethernet address")));
        }
        let next_hop = match next_hop {
            Some(address) => address,
            None => next_hop_address(name, link.index, to.ip())?,
        };
        let state = Arc::<LinkState>::default();
        state.update(link.address, link.mtu);
        let tx = xdp::TxSocket::open(name, 0, DEPTH, CHUNK)?;
        let options =
            SendOptions { mtu_discovery: Some(MtuDiscovery::Probe), ..SendOptions::default() };
        let ring = TransmitRing::new(tx, state, link.index, from, socket, &options);
        Ok(Self { ring, next_hop })
    }

    /// Sends all messages of the queue; waits for free frames.
    pub(super) fn send(&mut self, queue: &Queue, statistics: &mut SendStatistics) -> Result<()> {
        let (runs, mut sent, mut since) = (&queue.runs, 0, Instant::now());
        while sent < runs.len() {
            let transmit = |at: usize| Transmit {
                next_hop: Some(self.next_hop),
                ..runs[sent + at].transmit(&queue.buffer)
            };
            self.ring.start_all();
            let taken = self
                .ring
                .send(runs.len() - sent, transmit, true, statistics)
                .map_err(|error| Error::system("wait for a transmit ring", error))?;
            if let Some(error) = self.ring.failure.take() {
                return Err(error.into());
            }
            if taken > 0 {
                (sent, since) = (sent + taken, Instant::now());
            } else if since.elapsed() >= SEND_TIMEOUT {
                return Err(Error::Invalid(format!(
                    "the device takes no frame for {} seconds",
                    SEND_TIMEOUT.as_secs()
                )));
            }
        }
        Ok(())
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
