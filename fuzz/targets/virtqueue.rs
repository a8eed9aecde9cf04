//! The rings of a virtual machine, whose memory is the input: packets lie inside their buffers, a ring has an end, and
//! nothing is written outside of the memory.
#![no_main]

use std::io::IoSlice;

use libfuzzer_sys::fuzz_target;
use linerate_uplink::virtqueue::{Received, Ring};
use linerate_wire::virtio::Header;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// Bytes in front that choose how: flags, the virtio header's kind, length of the packet to the guest.
const CHOICES: usize = 3;
const SIZE: u16 = 16;
const MEMORY: usize = 0x4000;
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;

fuzz_target!(|data: &[u8]| {
    let Some(([flags, kind, length], data)) = data.split_first_chunk::<CHOICES>() else { return };
    let memory = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), MEMORY)]).expect("memory");
    // Descriptors, what is available, then everything else.
    let mut rest = data;
    for (at, len) in
        [(DESCRIPTORS, 16 * usize::from(SIZE)), (AVAILABLE, 64), (USED, 256), (0, 0x1000)]
    {
        let (part, next) = rest.split_at(len.min(rest.len()));
        memory.write_slice(part, GuestAddress(at)).expect("inside");
        rest = next;
    }
    let mut ring = Ring::default();
    ring.set(SIZE, DESCRIPTORS, USED, AVAILABLE).expect("aligned");
    ring.start(&memory, flags & 1 != 0).expect("inside the memory");
    let header_len = if kind & 1 == 0 { 10 } else { 12 };
    let packet = vec![0xa5; usize::from(*length) * 8];
    let pieces =
        [IoSlice::new(&packet[..packet.len() / 2]), IoSlice::new(&packet[packet.len() / 2..])];
    let mut buffer = [0; 2048];
    // A ring has no more buffers than descriptors, until the guest writes its index again.
    for _ in 0..=2 * SIZE {
        let is_ended = if flags & 2 == 0 {
            match ring.receive(&memory, header_len, &mut buffer) {
                Ok(Received::Packet(_, len)) => {
                    assert!(len <= buffer.len(), "a packet longer than its buffer");
                    false
                }
                Ok(Received::Empty) | Err(_) => true,
                Ok(_) => false,
            }
        } else {
            ring.send(&memory, header_len, kind & 2 != 0, &Header::default(), &pieces).is_err()
        };
        if is_ended || ring.needs_notification(&memory).is_err() || ring.arm(&memory).is_err() {
            return;
        }
    }
    assert!(flags & 2 != 0, "packets without end");
});
