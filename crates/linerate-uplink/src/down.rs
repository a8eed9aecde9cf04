//! [`Down`]: from the device to the interface. Super-packets are split into the port's frames, and
//! checksums that the stack left open are finished, in the pass that copies.

use std::time::{Duration, Instant};

use linerate_ring::tun::{MAX_PACKET, Queue};
use linerate_segment::Policy;
use linerate_segment::segment::{Options, Segments};
use linerate_wire::checksum::Engine;
use linerate_wire::virtio::Header;

use crate::Result;
use crate::counts::Counts;
use crate::port::{Port, Sent};
use crate::tun::{Headed, Heads, LINK};
use crate::worker::Pumped;

/// Frames between two kicks. A kick in copy mode sends 32 anyway; with more of them the copies of the
/// segments no longer lie in the core's own cache when the kernel reads them.
const BATCH: usize = 64;

/// The device is not read while the port has fewer free frames: a super-packet of 64 KiB with an MSS of
/// 536 needs 123.
pub(crate) const LEAST_ROOM: usize = 128;

/// How long the rest of a super-packet waits for room in the port before it is given up.
const PATIENCE: Duration = Duration::from_millis(50);

/// The way down of one queue.
pub(crate) struct Down {
    buffer: Box<[u8]>,
    engine: Engine,
    policy: Policy,
    /// The longest frame that goes out: MTU, Ethernet header and two VLAN tags.
    most: usize,
    /// For packets that have no Ethernet header: those of a TUN device.
    heads: Option<Heads>,
    /// Frames of the uplink's own that were written since the last kick.
    answered: usize,
}

impl Down {
    /// `longest` is that of a frame that the port can write, in bytes.
    pub(crate) fn new(policy: Policy, mtu: u32, longest: usize, heads: Option<Heads>) -> Self {
        Self {
            buffer: vec![0; LINK + MAX_PACKET].into_boxed_slice(),
            engine: Engine::detect(),
            policy,
            most: (mtu as usize + 14 + 2 * 4).min(longest),
            heads,
            answered: 0,
        }
    }

    /// Takes what waits in the device, as far as the port has room, and has it sent.
    pub(crate) fn pump<P: Port>(
        &mut self,
        tap: &Queue,
        port: &mut P,
        counts: &mut Counts,
    ) -> Result<Pumped> {
        let mut written = std::mem::take(&mut self.answered);
        if let Some(heads) = &mut self.heads {
            heads.refresh();
            written += self.send_waiting(port, counts)?;
        }
        let mut any = written > 0;
        let start = if self.heads.is_some() { LINK } else { 0 };
        while written < BATCH && port.room() >= LEAST_ROOM {
            // One system call a super-packet, which buys the copy out of the stack and the header that
            // says how to split: the driver has no ring to share.
            match tap.receive(&mut self.buffer[start..]) {
                Ok(Some((header, len))) => {
                    any = true;
                    let headed = match &mut self.heads {
                        Some(heads) => heads.put(&header, &mut self.buffer, len),
                        None => Headed::Frame(header),
                    };
                    written += self.forward(headed, start + len, port, counts)?;
                }
                Ok(None) => break,
                Err(linerate_ring::Error::Invalid(_)) => {
                    any = true;
                    counts.dropped.too_long += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let up = if written > 0 || port.has_unsent() { port.flush()? } else { true };
        Ok(Pumped::new(any, port.has_unsent() || self.waiting() > 0, up))
    }

    /// Packets that wait for a neighbour.
    pub(crate) fn waiting(&self) -> usize {
        self.heads.as_ref().map_or(0, Heads::waiting)
    }

    /// Sends the packets whose neighbour was found, before those that come after them.
    fn send_waiting<P: Port>(&mut self, port: &mut P, counts: &mut Counts) -> Result<usize> {
        let mut written = 0;
        while let Some(heads) = &mut self.heads
            && let Some((headed, len)) = heads.next_waiting(&mut self.buffer)
        {
            written += self.forward(headed, len, port, counts)?;
        }
        Ok(written)
    }

    /// Writes a frame of the uplink's own to the port, to be sent with the next batch.
    pub(crate) fn answer<P: Port>(
        &mut self,
        frame: &[u8],
        port: &mut P,
        counts: &mut Counts,
    ) -> Result<()> {
        let header = Header::default();
        let written = finish(self.engine, self.most, &header, frame, port, counts)?;
        self.answered += written;
        counts.up.answers += written as u64;
        Ok(())
    }

    /// Writes the frame in the buffer to the port. Returns how many frames it became.
    fn forward<P: Port>(
        &mut self,
        headed: Headed,
        len: usize,
        port: &mut P,
        counts: &mut Counts,
    ) -> Result<usize> {
        let header = match &headed {
            Headed::Frame(header) => header,
            without => {
                headless(without, counts);
                return Ok(0);
            }
        };
        let packet = &self.buffer[..len];
        if !header.is_gso() {
            return finish(self.engine, self.most, header, packet, port, counts);
        }
        let Some(options) = Options::from_virtio(header, packet) else {
            counts.unsplit.note_virtio();
            return Ok(0);
        };
        let options = self.policy.limit(options);
        let mut segments = match Segments::new(packet, &options) {
            Ok(segments) => segments,
            Err(error) => {
                tracing::debug!(%error, %header, "a super-packet that is not split");
                counts.unsplit.note(&error);
                return Ok(0);
            }
        };
        let longest = segments.max_len();
        if longest > self.most {
            counts.dropped.too_long += 1;
            return Ok(0);
        }
        counts.down.super_packets += 1;
        let mut frames = 0;
        for _ in 0..segments.len() {
            // Straight into the frame that is sent: the one copy, with the sum.
            let write = |out: &mut [u8]| segments.write_next(out).ok().flatten().unwrap_or(0);
            match place(port, longest, write)? {
                Sent::Bytes(bytes) => {
                    frames += 1;
                    counts.down.bytes += bytes as u64;
                }
                nowhere => {
                    lost(&nowhere, segments.len(), counts);
                    break;
                }
            }
        }
        counts.down.segments += frames as u64;
        Ok(frames)
    }
}

/// Sends a packet that needs no splitting. Its checksum is made in the pass that copies.
fn finish<P: Port>(
    engine: Engine,
    most: usize,
    header: &Header,
    packet: &[u8],
    port: &mut P,
    counts: &mut Counts,
) -> Result<usize> {
    if packet.len() > most {
        counts.dropped.too_long += 1;
        return Ok(0);
    }
    let partial = header.partial_checksum();
    if partial.is_some_and(|partial| !partial.fits(packet.len())) {
        counts.unsplit.note_virtio();
        return Ok(0);
    }
    let write = |out: &mut [u8]| {
        let Some(out) = out.get_mut(..packet.len()) else { return 0 };
        match partial {
            Some(partial) => partial.copy(engine, packet, out),
            None => out.copy_from_slice(packet),
        }
        packet.len()
    };
    match place(port, packet.len(), write)? {
        Sent::Bytes(bytes) => {
            counts.down.packets += 1;
            counts.down.checksums += u64::from(partial.is_some());
            counts.down.bytes += bytes as u64;
            Ok(1)
        }
        nowhere => {
            lost(&nowhere, 1, counts);
            Ok(0)
        }
    }
}

#[cold]
fn headless(headed: &Headed, counts: &mut Counts) {
    match headed {
        Headed::Unreachable => counts.dropped.unreachable += 1,
        Headed::Full => counts.dropped.unresolved += 1,
        Headed::Malformed => counts.unsplit.note_virtio(),
        Headed::Frame(_) | Headed::Waits => {}
    }
}

#[cold]
fn lost(nowhere: &Sent, frames: usize, counts: &mut Counts) {
    match nowhere {
        Sent::Down => counts.dropped.interface_down += frames as u64,
        _ => counts.dropped.umem_full += frames as u64,
    }
}

/// Has `write` fill one frame of the port, and waits a little for one.
fn place<P: Port>(
    port: &mut P,
    longest: usize,
    mut write: impl FnMut(&mut [u8]) -> usize,
) -> Result<Sent> {
    if let sent @ Sent::Bytes(_) = port.write(longest, &mut write)? {
        return Ok(sent);
    }
    let start = Instant::now();
    loop {
        let up = port.flush()?;
        if let sent @ Sent::Bytes(_) = port.write(longest, &mut write)? {
            return Ok(sent);
        }
        if !up {
            return Ok(Sent::Down);
        }
        if start.elapsed() > PATIENCE {
            return Ok(Sent::Full);
        }
        port.wait_to_send(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests;
