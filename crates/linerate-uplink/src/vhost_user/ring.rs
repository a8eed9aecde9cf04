//! [`Ring`]: packets of virtio-net in a split virtqueue (virtio 1.2, §2.7 and §5.1.6). The guest writes all of it:
//! descriptors, indices and headers are claims, and may change at any time.

use std::io::IoSlice;
use std::sync::atomic::{Ordering, fence};

use linerate_wire::virtio::{self, Header};
use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::desc::split::Descriptor;
use virtio_queue::{Error, Queue, QueueOwnedT, QueueT};
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryMmap};

/// The most descriptors of a ring.
const MAX_DESCRIPTORS: u16 = 32_768;

/// Bytes before the elements of the available and the used ring: flags and index.
const RING_HEADER: u64 = 4;

/// What a queue had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A packet of so many bytes.
    Packet(Header, usize),
    /// A packet that did not fit. It is lost.
    TooLong,
    /// Descriptors without a whole virtio header, without end, or outside the memory. They are returned.
    Malformed,
    /// Nothing.
    Empty,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is in the guest's buffers.
    Done,
    /// The guest has too few buffers at the moment.
    Full,
    /// The guest's buffers can never hold it.
    TooLong,
    /// The buffers are outside the memory.
    Malformed,
}

/// A split virtqueue.
#[derive(Debug)]
pub struct Ring {
    pub(super) queue: Queue,
    /// The used index at the last notification.
    notified: u16,
    /// The available index when the guest had too few buffers.
    seen: u16,
    /// The guest may notify.
    armed: bool,
    /// The chains that a packet takes, with the bytes in each.
    chains: Vec<(u16, u32)>,
    /// Their buffers.
    buffers: Vec<(GuestAddress, usize)>,
}

impl Default for Ring {
    fn default() -> Self {
        let queue = Queue::new(MAX_DESCRIPTORS).expect("a power of two");
        Self { queue, notified: 0, seen: 0, armed: true, chains: vec![], buffers: vec![] }
    }
}

impl Ring {
    /// Sets where the rings are, and how many descriptors they have.
    ///
    /// # Errors
    /// An address that is not aligned, or a number that is no power of two.
    pub fn set(
        &mut self,
        size: u16,
        descriptors: u64,
        used: u64,
        available: u64,
    ) -> Result<(), Error> {
        self.queue.try_set_size(size)?;
        self.queue.try_set_desc_table_address(GuestAddress(descriptors))?;
        self.queue.try_set_used_ring_address(GuestAddress(used))?;
        self.queue.try_set_avail_ring_address(GuestAddress(available))
    }

    /// Starts where the used ring ends. Every descriptor is returned in order and before the next is taken, so whoever
    /// had the ring before has returned as many as it took, even if it was killed.
    ///
    /// # Errors
    /// A ring that is not inside the memory.
    pub fn start(&mut self, memory: &GuestMemoryMmap, event_idx: bool) -> Result<(), Error> {
        self.queue.set_event_idx(event_idx);
        self.queue.set_ready(true);
        if !self.is_valid(memory) {
            self.queue.set_ready(false);
            return Err(Error::QueueNotReady);
        }
        let index = self.queue.used_idx(memory, Ordering::Acquire)?.0;
        self.queue.set_next_used(index);
        self.queue.set_next_avail(index);
        (self.notified, self.armed) = (index, true);
        self.disarm(memory)
    }

    /// Whether all of it is inside the memory.
    pub(super) fn is_valid(&self, memory: &GuestMemoryMmap) -> bool {
        self.queue.is_valid(memory)
    }

    /// Takes the next packet that the guest sends. Its virtio header has `header_len` bytes, at most
    /// [`virtio::MERGEABLE_HEADER_LEN`].
    ///
    /// # Errors
    /// Indices that make no sense: the ring cannot be used any more.
    pub fn receive(
        &mut self,
        memory: &GuestMemoryMmap,
        header_len: usize,
        buffer: &mut [u8],
    ) -> Result<Received, Error> {
        let Some(chain) = self.queue.iter(memory)?.next() else { return Ok(Received::Empty) };
        let head = chain.head_index();
        let received = read(memory, chain, header_len, buffer).unwrap_or(Received::Malformed);
        self.chains.clear();
        self.chains.push((head, 0));
        self.put_used(memory)?;
        Ok(received)
    }

    /// Writes a packet into the guest's buffers: into those of one chain, or of as many as it takes if they are
    /// `mergeable`. `header` becomes `header_len` bytes.
    ///
    /// # Errors
    /// As [`Ring::receive`].
    pub fn send(
        &mut self,
        memory: &GuestMemoryMmap,
        header_len: usize,
        mergeable: bool,
        header: &Header,
        packet: &[IoSlice<'_>],
    ) -> Result<Sent, Error> {
        let mut missing = header_len + packet.iter().map(|piece| piece.len()).sum::<usize>();
        let (start, size) = (self.queue.next_avail(), usize::from(self.queue.size()));
        self.chains.clear();
        self.buffers.clear();
        let mut available = self.queue.iter(memory)?;
        while missing > 0 && (mergeable || self.chains.is_empty()) {
            let Some(chain) = available.next() else { break };
            let (head, before) = (chain.head_index(), missing);
            for descriptor in chain.writable() {
                let len = missing.min(descriptor.len() as usize);
                self.buffers.push((descriptor.addr(), len));
                missing -= len;
                if missing == 0 {
                    break;
                }
            }
            self.chains.push((head, (before - missing) as u32));
        }
        if missing > 0 {
            self.queue.set_next_avail(start);
            let is_first_only = !mergeable && !self.chains.is_empty();
            if is_first_only || self.chains.len() >= size {
                // The next packet may be shorter, and takes the same buffers.
                return Ok(Sent::TooLong);
            }
            self.seen = start.wrapping_add(self.chains.len() as u16);
            return Ok(Sent::Full);
        }
        let mut bytes = [0; virtio::MERGEABLE_HEADER_LEN];
        let bytes = &mut bytes[..header_len];
        let _ = header.emit(bytes);
        if let Some(count) = bytes.get_mut(virtio::HEADER_LEN..) {
            // Zero without mergeable buffers is as good as one, and one is what virtio 1 asks for.
            count.copy_from_slice(&(self.chains.len() as u16).to_le_bytes());
        }
        let sent = match write(memory, &self.buffers, bytes, packet) {
            Some(()) => Sent::Done,
            None => {
                self.chains.iter_mut().for_each(|(_, len)| *len = 0);
                Sent::Malformed
            }
        };
        self.put_used(memory)?;
        Ok(sent)
    }

    /// Returns the chains to the guest, all at once: it must not see a packet without its last buffers.
    /// [`QueueT::add_used`] would show each as it comes.
    fn put_used(&mut self, memory: &GuestMemoryMmap) -> Result<(), Error> {
        let (size, ring) = (self.queue.size(), GuestAddress(self.queue.used_ring()));
        let mut next = self.queue.next_used();
        for &(head, len) in &self.chains {
            if head >= size {
                return Err(Error::InvalidDescriptorIndex);
            }
            let element = u64::from(len) << 32 | u64::from(head);
            let at = RING_HEADER + 8 * u64::from(next % size);
            let at = ring.checked_add(at).ok_or(Error::AddressOverflow)?;
            memory.write_obj(element.to_le(), at).map_err(Error::GuestMemory)?;
            next = next.wrapping_add(1);
        }
        self.queue.set_next_used(next);
        let at = ring.checked_add(2).ok_or(Error::AddressOverflow)?;
        memory.store(next.to_le(), at, Ordering::Release).map_err(Error::GuestMemory)
    }

    /// Whether the guest is to be told of what was returned since the last time. [`QueueT::needs_notification`] counts
    /// what [`QueueT::add_used`] returned, and tells guests that do not want to know.
    ///
    /// # Errors
    /// As [`Ring::receive`].
    pub fn needs_notification(&mut self, memory: &GuestMemoryMmap) -> Result<bool, Error> {
        let (old, new) = (self.notified, self.queue.next_used());
        if old == new {
            return Ok(false);
        }
        self.notified = new;
        // The index was stored before the guest's wish is read.
        fence(Ordering::SeqCst);
        let event_idx = self.queue.event_idx_enabled();
        let offset = if event_idx { RING_HEADER + 2 * u64::from(self.queue.size()) } else { 0 };
        let at = GuestAddress(self.queue.avail_ring()).checked_add(offset);
        let at = at.ok_or(Error::AddressOverflow)?;
        let wish =
            memory.load(at, Ordering::Relaxed).map(u16::from_le).map_err(Error::GuestMemory)?;
        // `vring_need_event` of include/uapi/linux/virtio_ring.h.
        Ok(match event_idx {
            true => new.wrapping_sub(wish).wrapping_sub(1) < new.wrapping_sub(old),
            false => u32::from(wish) & VRING_AVAIL_F_NO_INTERRUPT == 0,
        })
    }

    /// Lets the guest notify of the next packet, and says whether there is one already.
    ///
    /// # Errors
    /// As [`Ring::receive`].
    pub fn arm(&mut self, memory: &GuestMemoryMmap) -> Result<bool, Error> {
        self.armed = true;
        self.queue.enable_notification(memory)
    }

    /// Lets the guest notify of the next buffers after it had too few, and says whether there are more already.
    ///
    /// # Errors
    /// As [`Ring::receive`].
    pub fn arm_full(&mut self, memory: &GuestMemoryMmap) -> Result<bool, Error> {
        let next = self.queue.next_avail();
        self.queue.set_next_avail(self.seen);
        let more = self.arm(memory);
        self.queue.set_next_avail(next);
        more
    }

    /// The guest need not notify.
    ///
    /// # Errors
    /// As [`Ring::receive`].
    pub fn disarm(&mut self, memory: &GuestMemoryMmap) -> Result<(), Error> {
        if std::mem::take(&mut self.armed) {
            self.queue.disable_notification(memory)
        } else {
            Ok(())
        }
    }
}

/// Reads a chain into `buffer`; `None` for one that is malformed.
fn read(
    memory: &GuestMemoryMmap,
    chain: impl Iterator<Item = Descriptor>,
    header_len: usize,
    buffer: &mut [u8],
) -> Option<Received> {
    let mut header = [0; virtio::MERGEABLE_HEADER_LEN];
    let (mut header_left, mut len, mut has_next) = (header.get_mut(..header_len)?, 0_usize, false);
    for descriptor in chain {
        if descriptor.is_write_only() {
            return None;
        }
        has_next = descriptor.has_next();
        let (mut address, mut left) = (descriptor.addr(), descriptor.len() as usize);
        let part = left.min(header_left.len());
        if part > 0 {
            let (now, later) = header_left.split_at_mut(part);
            memory.read_slice(now, address).ok()?;
            (header_left, left) = (later, left - part);
            address = address.checked_add(part as u64)?;
        }
        if left > 0 {
            let Some(room) = buffer.get_mut(len..len.checked_add(left)?) else {
                return Some(Received::TooLong);
            };
            memory.read_slice(room, address).ok()?;
            len += left;
        }
    }
    // The iterator ends silently where the next descriptor makes no sense, and where there are too many.
    if has_next || !header_left.is_empty() {
        return None;
    }
    Some(Received::Packet(Header::parse(&header[..header_len]).ok()?, len))
}

/// Writes the header and the packet into the buffers, which hold exactly as many bytes.
fn write(
    memory: &GuestMemoryMmap,
    buffers: &[(GuestAddress, usize)],
    header: &[u8],
    packet: &[IoSlice<'_>],
) -> Option<()> {
    let mut buffers = buffers.iter().copied();
    let (mut address, mut room) = (GuestAddress(0), 0);
    for mut piece in std::iter::once(header).chain(packet.iter().map(|piece| &**piece)) {
        while !piece.is_empty() {
            if room == 0 {
                (address, room) = buffers.next()?;
                continue;
            }
            let (now, later) = piece.split_at(piece.len().min(room));
            memory.write_slice(now, address).ok()?;
            room -= now.len();
            address = address.checked_add(now.len() as u64)?;
            piece = later;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests;
