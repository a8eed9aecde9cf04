//! [`FrameBuilder`]: the frames of a run, built in user space.
//!
//! They are byte for byte the frames of the program in the kernel, except for the time in a stamp. They are
//! built the straightforward way: every header is emitted again, every checksum is summed over all bytes.

use std::net::IpAddr;

use linerate_wire::checksum::{self, Sum};
use linerate_wire::{ipv4, tcp, udp};

use crate::clock;
use crate::config::Config;
use crate::headers::{HeaderTemplate, STAMP_MAGIC};
use crate::options::{PayloadHeader, Transport};
use crate::random::Random;
use crate::size::Sizes;

/// Builds one frame after the other.
#[derive(Clone, Debug)]
pub struct FrameBuilder<'c> {
    config: &'c Config,
    headers: HeaderTemplate,
    sequence: u64,
    flow: u64,
    place: usize,
    index: [u64; 4],
    size_index: u64,
    random: Random,
    size_random: Random,
}

impl<'c> FrameBuilder<'c> {
    /// The frames of a run, starting with the first.
    pub fn new(config: &'c Config) -> Self {
        Self {
            config,
            headers: HeaderTemplate::new(config),
            sequence: 0,
            flow: 0,
            place: 0,
            index: [0; 4],
            size_index: 0,
            random: Random::for_flows(config.seed),
            size_random: Random::for_sizes(config.seed),
        }
    }

    /// Length of the next frame, which [`FrameBuilder::write`] then writes. Each call advances to the next
    /// length.
    pub fn next_len(&mut self) -> usize {
        let count = match &self.config.sizes {
            Sizes::Fixed(size) => return usize::from(*size),
            Sizes::Range(min, max) => u64::from(max - min) + 1,
            Sizes::Mix(sizes) => sizes.len() as u64,
        };
        let index = if self.config.random.size {
            self.size_random.below(count)
        } else {
            let after = (self.size_index + 1) % count;
            std::mem::replace(&mut self.size_index, after)
        };
        match &self.config.sizes {
            Sizes::Mix(sizes) => usize::from(sizes[index as usize]),
            sizes => usize::from(sizes.min()) + index as usize,
        }
    }

    /// Writes the next frame over all of `frame`.
    pub fn write(&mut self, frame: &mut [u8]) {
        let config = self.config;
        let HeaderTemplate { network_at, transport_at, header_len, .. } = self.headers;
        frame.fill(0);
        frame[..header_len].copy_from_slice(&self.headers.frame[..header_len]);
        if config.random.destination_mac {
            frame[..6].copy_from_slice(&self.random.mac().0);
        }
        if config.random.source_mac {
            frame[6..12].copy_from_slice(&self.random.mac().0);
        }
        let mut carry = self.next_in_order().unwrap_or(1);
        let source_port = config.source_ports.first()
            + self.value(0, config.source_ports.count(), config.random.source_port, &mut carry)
                as u16;
        let destination_port = config.destination_ports.first()
            + self.value(
                1,
                config.destination_ports.count(),
                config.random.destination_port,
                &mut carry,
            ) as u16;
        let source = self.value(2, config.source.count(), config.random.source, &mut carry);
        let source = config.source.nth(source);
        let destination =
            self.value(3, config.destination.count(), config.random.destination, &mut carry);
        let destination = config.destination.nth(destination);
        self.next_flow();
        self.stamp(&mut frame[header_len..]);

        let len = (frame.len() - transport_at) as u16;
        let protocol = config.transport.protocol();
        let pseudo = Sum::pseudo(source, destination, protocol, len).unwrap_or_default();
        write_network(&mut frame[network_at..], source, destination, len);
        write_transport(
            &mut frame[transport_at..],
            config.transport,
            (source_port, destination_port),
            pseudo,
        );
    }

    fn value(&mut self, field: usize, count: u64, random: bool, carry: &mut u64) -> u64 {
        if count == 1 {
            return 0;
        }
        if random {
            return self.random.below(count);
        }
        if self.config.order.is_some() {
            let index = *carry % count;
            *carry /= count;
            return index;
        }
        let index = self.index[field];
        if *carry != 0 {
            self.index[field] = (index + 1) % count;
            *carry = (self.index[field] == 0).into();
        }
        index
    }

    /// The number of the next frame's flow, where flows come in an order.
    fn next_in_order(&mut self) -> Option<u64> {
        let order = self.config.order.as_deref()?;
        let flow = order[self.place % order.len()];
        self.place += 1;
        Some(flow.into())
    }

    fn next_flow(&mut self) {
        let Some(flows) = self.config.flows else { return };
        self.flow += 1;
        if self.flow == flows {
            self.flow = 0;
            self.index = [0; 4];
            self.random = Random::for_flows(self.config.seed);
        }
    }

    fn stamp(&mut self, payload: &mut [u8]) {
        let stamp = self.config.stamp;
        if stamp != PayloadHeader::None {
            payload[..4].copy_from_slice(&STAMP_MAGIC);
            payload[4..12].copy_from_slice(&self.sequence.to_be_bytes());
        }
        if stamp == PayloadHeader::Time {
            payload[12..20].copy_from_slice(&clock::now().to_be_bytes());
        }
        self.sequence += 1;
    }
}

fn write_network(bytes: &mut [u8], source: IpAddr, destination: IpAddr, len: u16) {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            // Everything else is the template's, which has no options.
            bytes[2..4].copy_from_slice(&(len + ipv4::HEADER_LEN as u16).to_be_bytes());
            bytes[10..12].fill(0);
            bytes[12..16].copy_from_slice(&source.octets());
            bytes[16..20].copy_from_slice(&destination.octets());
            let checksum = checksum::of(&bytes[..ipv4::HEADER_LEN]);
            bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            bytes[4..6].copy_from_slice(&len.to_be_bytes());
            bytes[8..24].copy_from_slice(&source.octets());
            bytes[24..40].copy_from_slice(&destination.octets());
        }
        _ => {}
    }
}

fn write_transport(bytes: &mut [u8], transport: Transport, ports: (u16, u16), pseudo: Sum) {
    match transport {
        Transport::Udp => {
            let repr = udp::Repr { source_port: ports.0, destination_port: ports.1 };
            // Only a datagram shorter than its header could fail, and the configuration has no such sizes.
            let _ = repr.emit(bytes, pseudo);
        }
        Transport::Tcp => {
            bytes[..2].copy_from_slice(&ports.0.to_be_bytes());
            bytes[2..4].copy_from_slice(&ports.1.to_be_bytes());
            let field = tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2;
            bytes[field.clone()].fill(0);
            let checksum = pseudo.bytes(bytes).checksum();
            bytes[field].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}
