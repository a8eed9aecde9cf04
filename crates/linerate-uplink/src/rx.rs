//! [`Receiver`]: from the interface to the device. Frames of a flow that came in one batch are written as one
//! super-packet, gathered from where they were received.

use std::hash::{BuildHasher, RandomState};
use std::io::IoSlice;

use linerate_ring::Error as RingError;
use linerate_ring::tun::{MAX_IOVECS, Offloads};
use linerate_segment::Policy;
use linerate_segment::coalesce::{Coalescer, Flow, FlushReason, Options, Output, SuperPacket};
use linerate_segment::segment::Checksums;
use linerate_wire::layers::{self, Network};
use linerate_wire::offload::PartialChecksum;
use linerate_wire::virtio::{Flags, GsoType, Header};

use crate::device::DeviceQueue;
use crate::neighbour::{ETHERNET_HEADER, ReceiveFilter};
use crate::statistics::{Statistics, segments};
use crate::{Error, Result};

/// Flows that are joined side by side; memory of 160 KiB.
const FLOWS: usize = 64;

/// Frames that are lent at once.
pub(crate) const MAX_BATCH: usize = 256;

/// From the port to one queue of the device.
pub(crate) struct Receiver {
    coalescer: Option<Coalescer<Vec<Flow>>>,
    /// Frames come from this machine, where checksums stay partial because no frame reaches a wire.
    local: bool,
    /// Which frames are for a TUN device, which takes them without Ethernet header.
    filter: Option<ReceiveFilter>,
    /// The device takes super-packets in UDP tunnels.
    takes_tunnels: bool,
    /// One segment of a super-packet that the device does not take.
    segment: Vec<u8>,
}

impl Receiver {
    /// Joins what `policy` allows and a device with `offloads` may be given. `local` says that frames come from this
    /// machine, through a veth.
    pub(crate) fn new(
        policy: Policy,
        offloads: Offloads,
        local: bool,
        filter: Option<ReceiveFilter>,
    ) -> Self {
        let options = Options {
            tcp: policy.tcp,
            // A receiver that supports USO can split datagrams again.
            udp: policy.udp && offloads.contains(Offloads::USO),
            // The virtio header of the device has no words for them.
            tunnels: false,
            checksums: Checksums::Partial,
            // With the header that is as many pieces as go in one write.
            max_segments: (MAX_IOVECS - 1) as u16,
            max_len: policy.max_burst.min(u16::MAX.into()) as u16,
            ..Options::default()
        };
        let joins = policy.enabled && (options.tcp || options.udp);
        // Senders cannot choose flows that collide in the table.
        let key = RandomState::new().hash_one(0);
        let coalescer =
            joins.then(|| Coalescer::with_key(vec![Flow::default(); FLOWS], &options, key));
        let takes_tunnels = offloads.contains(Offloads::UDP_TUNNEL);
        Self { coalescer, local, filter, takes_tunnels, segment: Vec::new() }
    }

    /// Writes a batch of frames to the device, all of it: nothing is held back for the next.
    pub(crate) fn deliver(
        &mut self,
        tap: &DeviceQueue,
        frames: &[&[u8]],
        statistics: &mut Statistics,
    ) -> Result<()> {
        if let Some(filter) = &mut self.filter {
            filter.refresh();
        }
        let (local, start) = (self.local, self.start());
        let mut result = Ok(());
        // A guest chooses, and may choose again.
        let joins = tap.takes_super_packets();
        for (token, frame) in frames.iter().enumerate() {
            if self.filter.as_mut().is_some_and(|filter| !filter.accepts(frame)) {
                continue;
            }
            statistics.rx.frames += 1;
            statistics.rx.bytes += frame.len() as u64;
            match &mut self.coalescer {
                Some(coalescer) if joins => {
                    let mut write = |output: Output<'_>| {
                        if result.is_ok() {
                            result = write_output(tap, &output, frames, start, local, statistics);
                        }
                    };
                    coalescer.push(frame, token as u64, 0, &mut write);
                }
                _ => write_frame(tap, &unchecked(frame, local), frame, start, statistics)?,
            }
        }
        if let Some(coalescer) = &mut self.coalescer {
            coalescer.flush_all(&mut |output: Output<'_>| {
                if result.is_ok() {
                    result = write_output(tap, &output, frames, start, local, statistics);
                }
            });
        }
        result
    }

    /// Writes a frame that came with a virtio header of its own.
    pub(crate) fn deliver_with(
        &mut self,
        tap: &DeviceQueue,
        header: &Header,
        frame: &[u8],
        statistics: &mut Statistics,
    ) -> Result<()> {
        if let Some(filter) = &mut self.filter {
            filter.refresh();
            if !filter.accepts(frame) {
                return Ok(());
            }
        }
        statistics.rx.frames += 1;
        statistics.rx.bytes += frame.len() as u64;
        if !header.is_gso() || tap.accepts(header) && !is_in_tunnel(header, frame) {
            return write_frame(tap, header, frame, self.start(), statistics);
        }
        let tunnel = if self.takes_tunnels { tunnel_header(header, frame) } else { None };
        match tunnel {
            Some(header) => write_frame(tap, &header, frame, self.start(), statistics),
            None => self.deliver_split(tap, header, frame, statistics),
        }
    }

    /// Writes the segments of a super-packet whose header a device would misunderstand.
    fn deliver_split(
        &mut self,
        tap: &DeviceQueue,
        header: &Header,
        frame: &[u8],
        statistics: &mut Statistics,
    ) -> Result<()> {
        let start = self.start();
        let mut segments = match segments(header, frame, Policy::default()) {
            Ok(segments) => segments,
            Err(refusal) => {
                statistics.unsplit.refuse(&refusal, header);
                return Ok(());
            }
        };
        self.segment.resize(segments.max_len(), 0);
        while let Ok(Some(len)) = segments.write_next(&mut self.segment) {
            write_frame(tap, &Header::default(), &self.segment[..len], start, statistics)?;
        }
        Ok(())
    }

    /// Frames that answer what was asked of a TUN device.
    pub(crate) fn replies(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.filter.iter_mut().flat_map(ReceiveFilter::replies)
    }

    /// Where in a frame begins what the device takes.
    fn start(&self) -> usize {
        if self.filter.is_some() { ETHERNET_HEADER } else { 0 }
    }
}

/// Writes the coalescer's output: an unchanged frame, or several as one.
fn write_output(
    tap: &DeviceQueue,
    output: &Output<'_>,
    frames: &[&[u8]],
    start: usize,
    local: bool,
    statistics: &mut Statistics,
) -> Result<()> {
    match output {
        Output::Frame { token, reason } => {
            let frame = frames[*token as usize];
            write_frame(tap, &header(*reason, frame, local), frame, start, statistics)
        }
        Output::Super(packet) => write_joined(tap, packet, frames, start, statistics),
    }
}

/// Marks the checksum of a frame as valid if the coalescer has verified it.
fn header(reason: FlushReason, frame: &[u8], local: bool) -> Header {
    match reason {
        FlushReason::Protocol
        | FlushReason::NoPayload
        | FlushReason::Checksum
        | FlushReason::Flags => unchecked(frame, local),
        _ => Header { flags: Flags::DATA_VALID, ..Header::default() },
    }
}

/// The virtio header of an unverified frame: the stack checks it. The stack completes a checksum that a
/// sender on this machine left partial, as it would without XDP.
fn unchecked(frame: &[u8], local: bool) -> Header {
    let partial = if local { PartialChecksum::detect(frame) } else { None };
    partial.map_or_else(Header::default, |partial| Header {
        flags: Flags::NEEDS_CSUM,
        csum_start: partial.start,
        csum_offset: partial.offset,
        ..Header::default()
    })
}

/// Whether what is to be segmented, and summed, is behind the outermost IP header, but not the transport header there.
/// The header of a packet socket has no words for a tunnel, and the stack refuses such a super-packet in one.
fn is_in_tunnel(header: &Header, frame: &[u8]) -> bool {
    let Some(partial) = header.partial_checksum() else { return false };
    layers::parse(frame).is_ok_and(|layers| {
        matches!(layers.network, Network::Ipv4 { .. } | Network::Ipv6 { .. })
            && layers.transport_offset != usize::from(partial.start)
    })
}

/// The header of a super-packet in a UDP tunnel, in the words of a device that takes it.
fn tunnel_header(header: &Header, frame: &[u8]) -> Option<Header> {
    let outer = layers::parse(frame).ok()?;
    let checksum = outer.udp(frame)?.checksum();
    let inner = outer.inside(frame)?;
    if inner.transport_offset != usize::from(header.csum_start) {
        return None;
    }
    let tunnel = match outer.network {
        Network::Ipv6 { .. } => GsoType::UDP_TUNNEL_IPV6,
        _ => GsoType::UDP_TUNNEL_IPV4,
    };
    let summed = if checksum == 0 { Flags::default() } else { Flags::UDP_TUNNEL_CSUM };
    Some(Header {
        flags: header.flags.union(summed),
        gso_type: header.gso_type.union(tunnel),
        outer_th_offset: outer.transport_offset.try_into().ok()?,
        inner_nh_offset: inner.network_offset.try_into().ok()?,
        ..*header
    })
}

/// Writes a frame from byte `start` on.
fn write_frame(
    tap: &DeviceQueue,
    header: &Header,
    frame: &[u8],
    start: usize,
    statistics: &mut Statistics,
) -> Result<()> {
    // One system call a packet: it runs the stack's receive path, to the socket.
    if written(tap.send(&header.pull(start as u16), &frame[start..]), statistics)? {
        statistics.rx.packets += 1;
    }
    Ok(())
}

fn write_joined(
    tap: &DeviceQueue,
    packet: &SuperPacket<'_>,
    frames: &[&[u8]],
    start: usize,
    statistics: &mut Statistics,
) -> Result<()> {
    let Some(header) = packet.virtio().filter(|header| tap.accepts(header)) else {
        // In a tunnel, which was not requested, or of a kind that a guest does not take.
        return packet.tokens().iter().try_for_each(|token| {
            write_frame(tap, &Header::default(), frames[*token as usize], start, statistics)
        });
    };
    let mut pieces = [IoSlice::new(&[]); MAX_IOVECS];
    pieces[0] = IoSlice::new(&packet.header()[start..]);
    let mut count = 1;
    for (piece, (token, range)) in pieces[1..].iter_mut().zip(packet.payload()) {
        *piece = IoSlice::new(&frames[token as usize][range]);
        count += 1;
    }
    // One system call for all the segments of a flow.
    if written(tap.send_vectored(&header.pull(start as u16), &pieces[..count]), statistics)? {
        statistics.rx.super_packets += 1;
        statistics.rx.joined += packet.tokens().len() as u64;
    }
    Ok(())
}

/// Counts what the device did not accept. Only a device, or a program, that is gone is an error.
fn written(answer: Result<bool>, statistics: &mut Statistics) -> Result<bool> {
    match answer {
        Ok(true) => return Ok(true),
        Ok(false) => statistics.dropped.device_full += 1,
        Err(Error::Ring(RingError::InterfaceDown(_))) => statistics.dropped.device_down += 1,
        Err(error @ (Error::Ring(RingError::InterfaceGone(_)) | Error::PeerGone(_))) => {
            return Err(error);
        }
        Err(error) => {
            tracing::debug!(%error, "a packet that the device refuses");
            statistics.dropped.device_refused += 1;
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A UDP datagram over IPv4 with this checksum.
    fn datagram(checksum: u16) -> Vec<u8> {
        let mut frame = vec![0; 14];
        frame[12] = 8;
        frame.extend([0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 7, 0, 9, 0, 12]);
        frame.extend(checksum.to_be_bytes());
        frame.extend(b"what");
        frame
    }

    #[test]
    fn a_partial_checksum_is_told_to_the_stack() {
        // 0a00 + 0001 + 0a00 + 0002 + 17 + 12
        let pseudo = 0x1400 + 3 + 17 + 12;
        let header = unchecked(&datagram(pseudo), true);
        assert_eq!(header.flags, Flags::NEEDS_CSUM);
        assert_eq!((header.csum_start, header.csum_offset), (34, 6));
        assert_eq!(unchecked(&datagram(pseudo + 1), true), Header::default());
        assert_eq!(unchecked(&datagram(pseudo), false), Header::default());
    }
}
