use proptest::prelude::*;

use super::*;

const SIZE: u16 = 8;
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const NEXT: u16 = 1;
const WRITE: u16 = 2;

fn ring(memory: &GuestMemoryMmap) -> Ring {
    let mut ring = Ring::default();
    ring.set(SIZE, DESCRIPTORS, USED, AVAILABLE).unwrap();
    ring.start(memory, false).unwrap();
    ring
}

fn memory() -> GuestMemoryMmap {
    GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10000)]).unwrap()
}

/// Makes descriptors available: address, length, flags and next of each. The heads are those of a chain's start.
fn offer(memory: &GuestMemoryMmap, descriptors: &[(u64, u32, u16, u16)], heads: &[u16]) {
    for (index, (address, len, flags, next)) in descriptors.iter().enumerate() {
        let at = DESCRIPTORS + 16 * index as u64;
        memory.write_obj(*address, GuestAddress(at)).unwrap();
        memory.write_obj(*len, GuestAddress(at + 8)).unwrap();
        memory.write_obj(*flags, GuestAddress(at + 12)).unwrap();
        memory.write_obj(*next, GuestAddress(at + 14)).unwrap();
    }
    let index: u16 = memory.read_obj(GuestAddress(AVAILABLE + 2)).unwrap();
    for (number, head) in (index..).zip(heads) {
        let at = AVAILABLE + 4 + 2 * u64::from(number % SIZE);
        memory.write_obj(*head, GuestAddress(at)).unwrap();
    }
    memory.write_obj(index + heads.len() as u16, GuestAddress(AVAILABLE + 2)).unwrap();
}

fn used(memory: &GuestMemoryMmap, at: u64) -> (u32, u32) {
    let at = USED + 4 + 8 * at;
    (memory.read_obj(GuestAddress(at)).unwrap(), memory.read_obj(GuestAddress(at + 4)).unwrap())
}

#[test]
fn a_packet_in_pieces_is_read_whole() {
    let memory = memory();
    let mut ring = ring(&memory);
    memory.write_slice(&[7; 20], GuestAddress(0x4000)).unwrap();
    memory.write_slice(&[0; 12], GuestAddress(0x4000)).unwrap();
    memory.write_slice(&[9; 5], GuestAddress(0x5000)).unwrap();
    offer(&memory, &[(0x4000, 5, NEXT, 2), (0x5000, 5, 0, 0), (0x4005, 15, NEXT, 1)], &[0]);
    let mut buffer = [0; 13];
    let received = ring.receive(&memory, 12, &mut buffer).unwrap();
    assert_eq!(received, Received::Packet(Header::default(), 13));
    assert_eq!(buffer, [7, 7, 7, 7, 7, 7, 7, 7, 9, 9, 9, 9, 9]);
    assert_eq!(ring.receive(&memory, 12, &mut buffer).unwrap(), Received::Empty);
    assert_eq!(used(&memory, 0), (0, 0));
    assert!(ring.needs_notification(&memory).unwrap());
    assert!(!ring.needs_notification(&memory).unwrap());
}

#[test]
fn what_is_malformed_is_returned_and_the_next_packet_comes() {
    let memory = memory();
    let mut ring = ring(&memory);
    let bad = [
        (0x4000, 100, NEXT, 0),    // without end
        (0x4000, 11, 0, 0),        // no whole header
        (0xffff_f000, 100, 0, 0),  // outside
        (u64::MAX - 1, 100, 0, 0), // beyond the last address
        (0x4000, 100, WRITE, 0),   // to be written
        (0x4000, 100, NEXT, 200),  // a next one that does not exist
        (0x4000, 12 + 14, 0, 0),   // good
    ];
    offer(&memory, &bad, &[0, 1, 2, 3, 4, 5, 6]);
    let mut buffer = [0; 2000];
    for head in 0..6 {
        let received = ring.receive(&memory, 12, &mut buffer).unwrap();
        assert_eq!(received, Received::Malformed, "{head}");
        assert_eq!(used(&memory, head), (head as u32, 0));
    }
    assert!(matches!(ring.receive(&memory, 12, &mut buffer), Ok(Received::Packet(_, 14))));
    // A head that does not exist breaks the ring.
    offer(&memory, &[], &[SIZE]);
    assert!(ring.receive(&memory, 12, &mut buffer).is_err());
}

#[test]
fn a_long_packet_takes_several_buffers_or_none() {
    let memory = memory();
    let mut ring = ring(&memory);
    let buffers = [0, 1, 2].map(|number| (0x4000 + 0x100 * number, 50, WRITE, 0));
    offer(&memory, &buffers, &[0, 1]);
    let packet: Vec<u8> = (0..120).collect();
    let pieces = [IoSlice::new(&packet[..70]), IoSlice::new(&packet[70..])];
    let header = Header { gso_size: 3, ..Header::default() };
    assert_eq!(ring.send(&memory, 12, true, &header, &pieces).unwrap(), Sent::Full);
    assert!(!ring.arm_full(&memory).unwrap(), "nothing new yet");
    offer(&memory, &[], &[2]);
    assert!(ring.arm_full(&memory).unwrap());
    assert_eq!(ring.send(&memory, 12, true, &header, &pieces).unwrap(), Sent::Done);
    assert_eq!([0, 1, 2].map(|at| used(&memory, at)), [(0, 50), (1, 50), (2, 32)]);
    let mut bytes = [0; 50];
    memory.read_slice(&mut bytes, GuestAddress(0x4000)).unwrap();
    assert_eq!((bytes[4], bytes[10], &bytes[12..]), (3, 3, &packet[..38]));
    memory.read_slice(&mut bytes, GuestAddress(0x4200)).unwrap();
    assert_eq!(bytes[..32], packet[88..]);
    // Who comes after a crash starts where the guest's buffers were returned.
    let mut next = Ring::default();
    next.set(SIZE, DESCRIPTORS, USED, AVAILABLE).unwrap();
    next.start(&memory, false).unwrap();
    assert_eq!(next.queue.next_avail(), 3);
    offer(&memory, &[], &[0]);
    assert_eq!(next.send(&memory, 12, false, &header, &pieces).unwrap(), Sent::TooLong);
    assert_eq!(
        next.send(&memory, 12, false, &header, &[IoSlice::new(&[1; 38])]).unwrap(),
        Sent::Done
    );
}

proptest! {
    #[test]
    fn no_memory_of_a_guest_is_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0x400), event_idx: bool) {
        let memory = memory();
        for at in [DESCRIPTORS, AVAILABLE, USED] {
            memory.write_slice(&bytes[at as usize >> 4..][..0x100], GuestAddress(at)).unwrap();
        }
        let mut ring = Ring::default();
        ring.set(SIZE, DESCRIPTORS, USED, AVAILABLE).unwrap();
        ring.start(&memory, event_idx).unwrap();
        let index = ring.queue.next_avail().wrapping_add(bytes[0].into());
        memory.write_obj(index, GuestAddress(AVAILABLE + 2)).unwrap();
        let mut buffer = [0; 200];
        for _ in 0..300 {
            let ended = match ring.receive(&memory, 12, &mut buffer) {
                Ok(Received::Empty) | Err(_) => true,
                Ok(Received::Packet(_, len)) => len > buffer.len(),
                Ok(_) => false,
            };
            let sent = ring.send(&memory, 12, true, &Header::default(), &[IoSlice::new(&bytes[..60])]);
            if ended || sent.is_err() || ring.needs_notification(&memory).is_err() || ring.arm(&memory).is_err() {
                break;
            }
        }
    }
}
