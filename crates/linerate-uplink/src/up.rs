//! [`Up`]: from the interface to the device. Frames of a flow that came in one batch are written as one
//! super-packet, gathered from where they were received.

use std::io::IoSlice;

use linerate_ring::Error;
use linerate_ring::tun::{MAX_PIECES, Offloads, Queue};
use linerate_segment::Policy;
use linerate_segment::coalesce::{Coalescer, Flow, Options, Output, Reason, SuperPacket};
use linerate_segment::segment::Checksums;
use linerate_wire::virtio::{Flags, Header};

use crate::Result;
use crate::counts::Counts;

/// Flows that are joined side by side; memory of 160 KiB.
const FLOWS: usize = 64;

/// Frames that are lent at once.
pub(crate) const LENT: usize = 256;

/// The way up of one queue.
pub(crate) struct Up {
    coalescer: Option<Coalescer<Vec<Flow>>>,
}

impl Up {
    /// Joins what `policy` allows and a device with `offloads` may be given.
    pub(crate) fn new(policy: Policy, offloads: Offloads) -> Self {
        let options = Options {
            tcp: policy.tcp,
            // Who takes part in USO can split datagrams again, wherever they go.
            udp: policy.udp && offloads.contains(Offloads::USO),
            // The virtio header of the device has no words for them.
            tunnels: false,
            checksums: Checksums::Partial,
            // With the header that is as many pieces as go in one write.
            max_segments: (MAX_PIECES - 1) as u16,
            max_len: policy.max_burst.min(u16::MAX.into()) as u16,
            ..Options::default()
        };
        let joins = policy.enabled && (options.tcp || options.udp);
        let coalescer = joins.then(|| Coalescer::new(vec![Flow::default(); FLOWS], &options));
        Self { coalescer }
    }

    /// Writes a batch of frames to the device, all of it: nothing is held back for the next.
    pub(crate) fn deliver(
        &mut self,
        tap: &Queue,
        frames: &[&[u8]],
        counts: &mut Counts,
    ) -> Result<()> {
        counts.up.frames += frames.len() as u64;
        counts.up.bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        let Some(coalescer) = &mut self.coalescer else {
            return frames
                .iter()
                .try_for_each(|frame| whole(tap, &Header::default(), frame, counts));
        };
        let mut result = Ok(());
        let mut write = |output: Output<'_>| {
            if result.is_ok() {
                result = match output {
                    Output::Frame { token, reason } => {
                        whole(tap, &checked(reason), frames[token as usize], counts)
                    }
                    Output::Super(packet) => joined(tap, &packet, frames, counts),
                };
            }
        };
        for (token, frame) in frames.iter().enumerate() {
            coalescer.push(frame, token as u64, 0, &mut write);
        }
        coalescer.flush_all(&mut write);
        result
    }

    /// Writes a frame that came with a virtio header of its own.
    pub(crate) fn deliver_with(
        &mut self,
        tap: &Queue,
        header: &Header,
        frame: &[u8],
        counts: &mut Counts,
    ) -> Result<()> {
        counts.up.frames += 1;
        counts.up.bytes += frame.len() as u64;
        whole(tap, header, frame, counts)
    }
}

/// Says that the checksum of a frame is right where the coalescer has looked at it.
fn checked(reason: Reason) -> Header {
    let flags = match reason {
        Reason::Protocol | Reason::Empty | Reason::Checksum | Reason::Flags => Flags::default(),
        _ => Flags::DATA_VALID,
    };
    Header { flags, ..Header::default() }
}

fn whole(tap: &Queue, header: &Header, frame: &[u8], counts: &mut Counts) -> Result<()> {
    // One system call a packet: it runs the stack's receive path, to the socket.
    if written(tap.send(header, frame), counts)? {
        counts.up.packets += 1;
    }
    Ok(())
}

fn joined(
    tap: &Queue,
    packet: &SuperPacket<'_>,
    frames: &[&[u8]],
    counts: &mut Counts,
) -> Result<()> {
    let Some(header) = packet.virtio() else {
        // Behind a tunnel, which is not asked for.
        return packet
            .tokens()
            .iter()
            .try_for_each(|token| whole(tap, &Header::default(), frames[*token as usize], counts));
    };
    let mut pieces = [IoSlice::new(&[]); MAX_PIECES];
    pieces[0] = IoSlice::new(packet.header());
    let mut count = 1;
    for (piece, (token, range)) in pieces[1..].iter_mut().zip(packet.payload()) {
        *piece = IoSlice::new(&frames[token as usize][range]);
        count += 1;
    }
    // One system call for all the segments of a flow.
    if written(tap.send_pieces(&header, &pieces[..count]), counts)? {
        counts.up.super_packets += 1;
        counts.up.joined += packet.tokens().len() as u64;
    }
    Ok(())
}

/// Counts what the device did not take. Only a device that is gone is an error.
fn written(answer: linerate_ring::Result<bool>, counts: &mut Counts) -> Result<bool> {
    match answer {
        Ok(true) => return Ok(true),
        Ok(false) => counts.dropped.tap_full += 1,
        Err(Error::InterfaceDown(_)) => counts.dropped.tap_down += 1,
        Err(error @ Error::InterfaceGone(_)) => return Err(error.into()),
        Err(error) => {
            tracing::debug!(%error, "a packet that the device refuses");
            counts.dropped.tap_refused += 1;
        }
    }
    Ok(false)
}
