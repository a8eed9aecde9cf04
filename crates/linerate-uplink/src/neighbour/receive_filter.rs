//! [`ReceiveFilter`]: which received frames are for a TUN device; and the ARP and neighbour discovery responder for
//! its hardware address, which is the interface's.
//!
//! The kernel would answer only for addresses that it knows: with `proxy_arp` for IPv4, where it forwards and
//! has a route, and for IPv6 one entry (`ip neigh add proxy`) for each. That configures the host as a router,
//! and would outlive the uplink.

use std::net::IpAddr;
use std::sync::Arc;

use linerate_wire::arp::{self, Operation};
use linerate_wire::ethernet::{self, Address, EtherType};
use linerate_wire::ip;
use linerate_wire::ndp::{Advertisement, Solicitation};

use super::{DestinationCache, ETHERNET_HEADER};

/// Most requests of one batch that are answered; their senders repeat the others.
const MAX_REPLIES: usize = 64;

/// The hardware address of all nodes of the link.
const ALL_NODES: Address = Address([0x33, 0x33, 0, 0, 0, 1]);

/// The filter of one thread.
pub(crate) struct ReceiveFilter {
    cache: Arc<DestinationCache>,
    /// The interface's address.
    mac: Address,
    changes: Option<u64>,
    addresses: Vec<IpAddr>,
    replies: Vec<Vec<u8>>,
}

impl ReceiveFilter {
    pub(crate) fn new(cache: Arc<DestinationCache>) -> Self {
        let mac = cache.lock().mac;
        Self { cache, mac, changes: None, addresses: Vec::new(), replies: Vec::new() }
    }

    /// Reads the addresses of the device and the interface; call it once a batch.
    pub(crate) fn refresh(&mut self) {
        let changes = Some(self.cache.changes());
        if self.changes != changes {
            self.changes = changes;
            let state = self.cache.lock();
            self.addresses.clone_from(&state.addresses);
            self.mac = state.mac;
        }
    }

    /// Whether what follows the Ethernet header of `frame` is a packet for the device. A request for its
    /// hardware address is not, and is answered.
    #[inline]
    pub(crate) fn accepts(&mut self, frame: &[u8]) -> bool {
        let Ok(ethernet) = ethernet::Frame::new_checked(frame) else { return false };
        let packet = ethernet.payload();
        match ethernet.ether_type() {
            EtherType::IPV6 if Solicitation::is_solicitation(packet) => {
                self.reply_to_solicitation(ethernet.source(), packet);
                false
            }
            EtherType::IPV4 | EtherType::IPV6 => {
                ethernet.destination() == self.mac
                    && ip::destination(packet).is_some_and(|to| self.has(to))
            }
            EtherType::ARP => {
                self.reply_to_arp(packet);
                false
            }
            _ => false,
        }
    }

    /// Frames that answer the requests since the last call.
    pub(crate) fn replies(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.replies.drain(..)
    }

    fn has(&self, address: IpAddr) -> bool {
        self.addresses.binary_search(&address).is_ok()
    }

    #[cold]
    fn reply_to_arp(&mut self, packet: &[u8]) {
        let Ok(asked) = arp::Repr::parse(packet) else { return };
        if asked.operation != Operation::Request || !self.has(asked.target_ip.into()) {
            return;
        }
        let answer = arp::Repr {
            operation: Operation::Reply,
            sender_mac: self.mac,
            sender_ip: asked.target_ip,
            target_mac: asked.sender_mac,
            target_ip: asked.sender_ip,
        };
        self.push(asked.sender_mac, EtherType::ARP, arp::PACKET_LEN, |bytes| answer.emit(bytes));
        self.cache.heard(asked.sender_ip.into(), asked.sender_mac);
    }

    #[cold]
    fn reply_to_solicitation(&mut self, from: Address, packet: &[u8]) {
        let Some(asked) = Solicitation::parse(packet) else { return };
        if !self.has(asked.target.into()) {
            return;
        }
        let answer = asked.advertisement(self.mac);
        // A node that performs duplicate address detection has no address yet: the answer goes to all nodes.
        let mac = Address::of_group(answer.destination.into()).unwrap_or(from);
        self.push(mac, EtherType::IPV6, Advertisement::PACKET_LEN, |bytes| answer.emit(bytes));
        if let Some(mac) = asked.source_link_layer_address {
            self.cache.heard(asked.source.into(), mac);
        }
    }

    fn push(
        &mut self,
        to: Address,
        kind: EtherType,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> linerate_wire::Result<()>,
    ) {
        // A request with a group as its source must not cause an answer to the group.
        if self.replies.len() == MAX_REPLIES || (to.is_multicast() && to != ALL_NODES) {
            return;
        }
        // An allocation, for a frame that is sent once in a neighbour's minute.
        let mut frame = vec![0; ETHERNET_HEADER + len];
        let ethernet = ethernet::Repr { destination: to, source: self.mac, ether_type: kind };
        let written = ethernet.emit(&mut frame).and_then(|()| fill(&mut frame[ETHERNET_HEADER..]));
        if written.is_ok() {
            self.replies.push(frame);
        }
    }
}

#[cfg(test)]
mod tests;
