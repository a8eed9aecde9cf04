use std::os::fd::BorrowedFd;

use linerate_wire::checksum::Sum;
use linerate_wire::virtio::{Flags, GsoType, HEADER_LEN};
use proptest::prelude::*;

use super::*;
use crate::rx::Receiver;
use crate::statistics::Drops;

/// A port whose frames are looked at: memory in place of a ring.
#[derive(Default)]
struct Memory(Vec<Vec<u8>>);

impl FramePort for Memory {
    fn receive(&mut self, _: &DeviceQueue, _: &mut Receiver, _: &mut Statistics) -> Result<bool> {
        Ok(false)
    }

    fn room(&mut self) -> usize {
        usize::MAX
    }

    fn longest(&self) -> usize {
        4096
    }

    fn write(
        &mut self,
        longest: usize,
        fill: &mut impl FnMut(&mut [u8]) -> usize,
    ) -> Result<SendOutcome> {
        let mut frame = vec![0; longest];
        let len = fill(&mut frame);
        frame.truncate(len);
        self.0.push(frame);
        Ok(SendOutcome::Bytes(len))
    }

    fn flush(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn has_unsent(&self) -> bool {
        false
    }

    fn wait_to_send(&mut self, _: Duration) {}

    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::empty()
    }

    fn note_error(&mut self) {}

    fn drops(&self) -> Drops {
        Drops::default()
    }
}

/// What comes out of a packet with this virtio header.
fn through(header: &Header, packet: &[u8], longest: usize) -> (Vec<Vec<u8>>, Statistics) {
    let (mut port, mut statistics) = (Memory::default(), Statistics::default());
    let mut down = Transmitter::new(Policy::default(), 1500, longest, None, None);
    down.buffer[..packet.len()].copy_from_slice(packet);
    let forward =
        down.forward(Encapsulated::Frame(*header), packet.len(), &mut port, &mut statistics);
    assert_eq!(forward.expect("memory has room"), port.0.len());
    (port.0, statistics)
}

/// TCP over IPv4 or UDP over IPv6, as a stack hands them over, with the payload's length.
fn packet(tcp: bool, payload: usize) -> Vec<u8> {
    let mut packet = vec![2; 12];
    if tcp {
        packet.extend([8, 0, 0x45, 0]);
        packet.extend((payload as u16 + 40).to_be_bytes());
        packet.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend([0, 7, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    } else {
        let len = (payload as u16 + 8).to_be_bytes();
        packet.extend([0x86, 0xdd, 0x60, 0, 0, 0, len[0], len[1], 17, 64]);
        packet.extend([0xfd; 32]);
        packet.extend([0, 7, 0, 9, len[0], len[1], 0, 0]);
    }
    packet.extend((0..payload).map(|at| (at * 7) as u8));
    packet
}

/// Numbers that are likely to be at an edge, and any.
fn number() -> impl Strategy<Value = u16> {
    prop_oneof![any::<u16>(), 0_u16..120, 1400_u16..1600, (u16::MAX - 3)..]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A header is a claim of whoever made the packet. Whatever it claims: no frame is longer than the link
    /// takes, none has bytes that were not the packet's, and each packet is sent or counted.
    #[test]
    fn a_header_that_lies_makes_no_wrong_frame(
        kinds: (u8, u8),
        words in proptest::array::uniform4(number()),
        offsets in (number(), number()),
        tcp: bool,
        payload in prop_oneof![0_usize..100, 1000_usize..3000, 60_000_usize..65_000],
        cut in prop_oneof![Just(usize::MAX), 0_usize..200],
        damage in proptest::collection::vec((0_usize..80, any::<u8>()), 0..4),
    ) {
        let mut packet = packet(tcp, payload);
        packet.truncate(cut);
        for (at, byte) in damage {
            if let Some(place) = packet.get_mut(at) {
                *place = byte;
            }
        }
        let header = Header {
            flags: Flags(kinds.0),
            gso_type: GsoType(kinds.1),
            hdr_len: words[0],
            gso_size: words[1],
            csum_start: words[2],
            csum_offset: words[3],
            outer_th_offset: offsets.0,
            inner_nh_offset: offsets.1,
        };
        let (frames, statistics) = through(&header, &packet, 4096);
        prop_assert!(frames.iter().all(|frame| frame.len() <= 1500 + 14 + 8));
        let bytes: usize = frames.iter().map(Vec::len).sum();
        prop_assert_eq!(statistics.tx.bytes, bytes as u64);
        let unsplit = statistics.unsplit.total() > 0;
        let lost = unsplit || statistics.dropped.too_long + statistics.dropped.too_short > 0;
        prop_assert_eq!(lost, frames.is_empty(), "{:?}", statistics);
        if !header.is_gso() && header.flags.contains(Flags::NEEDS_CSUM) && !frames.is_empty() {
            let start = usize::from(header.csum_start);
            let field = start + usize::from(header.csum_offset);
            let mut same = frames[0].clone();
            same[field..field + 2].copy_from_slice(&packet[field..field + 2]);
            prop_assert_eq!(&same, &packet, "the checksum, and nothing else");
            let sum = Sum::ZERO.bytes(&packet[start..]).udp_checksum().to_be_bytes();
            prop_assert_eq!(&frames[0][field..field + 2], &sum[..]);
        }
        // As it came over the file descriptor.
        let mut bytes = [0; HEADER_LEN];
        header.emit(&mut bytes).expect("room");
        prop_assert_eq!(Header::parse(&bytes).map(|read| read.gso_size), Ok(words[1]));
    }
}

/// The kernel loses an untagged frame of 1 to 8 bytes over the MTU without a count; tags are beyond it.
#[test]
fn the_mtu_counts_behind_the_tags() {
    for tags in 0..=3_usize {
        for over in [0, 1, 4, 5, 8, 9] {
            for gso in [false, true] {
                let payload = 1460 + over;
                let mut packet = packet(true, if gso { 10 * payload } else { payload });
                for _ in 0..tags {
                    packet.splice(12..12, [0x81, 0, 0, 7]);
                }
                let header = Header {
                    gso_type: if gso { GsoType::TCPV4 } else { GsoType::NONE },
                    gso_size: payload as u16,
                    ..Header::default()
                };
                let (frames, statistics) = through(&header, &packet, 4096);
                let fits = over == 0 && tags <= 2;
                let lost = statistics.dropped.too_long + statistics.unsplit.total();
                assert_eq!((!frames.is_empty(), lost), (fits, u64::from(!fits)), "{tags} {over}");
            }
        }
    }
}

#[test]
fn a_true_header_splits() {
    for tcp in [true, false] {
        let gso_type = if tcp { GsoType::TCPV4 } else { GsoType::UDP_L4 };
        let header = Header { gso_type, gso_size: 1000, ..Header::default() };
        let (frames, statistics) = through(&header, &packet(tcp, 10_500), 4096);
        assert_eq!((frames.len(), statistics.tx.segments), (11, 11), "{statistics:?}");
        let (frames, statistics) = through(&header, &packet(tcp, 10_500), 900);
        assert_eq!((frames.len(), statistics.dropped.too_long), (0, 1), "{statistics:?}");
    }
}

#[test]
fn the_headers_of_a_super_packet_that_the_kernel_splits_count_for_its_segments() {
    let header = |start, offset| Header {
        flags: Flags::NEEDS_CSUM,
        csum_start: start,
        csum_offset: offset,
        ..Header::default()
    };
    let mut tcp = packet(true, 3000);
    // Three words of options.
    tcp[46] = 0x80;
    assert_eq!(headers_len(&header(34, 16), &tcp), 14 + 20 + 32);
    assert_eq!(headers_len(&header(54, 6), &packet(false, 3000)), 14 + 40 + 8);
    // SCTP has a length of its own, and a header that lies may be anywhere.
    assert_eq!(headers_len(&header(34, 8), &tcp), 34);
    assert_eq!(headers_len(&header(60_000, 16), &tcp), 60_000);
    assert_eq!(headers_len(&Header::default(), &tcp), ETHERNET_HEADER);
}
