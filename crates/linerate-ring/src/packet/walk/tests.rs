use super::super::layout::BlockHeader;
use super::*;
use proptest::prelude::*;

/// Bytes of a block's own header (`BLK_HDR_LEN` of `net/packet/af_packet.c`).
const BLOCK_HEADER: u32 = size_of::<BlockHeader>() as u32;

const LEND: FrameOptions = FrameOptions { snaplen: 262_144, virtio: false, cooked: None };

/// A frame as the kernel would lay it into a block.
#[derive(Clone, Debug)]
struct Laid {
    bytes: Vec<u8>,
    wire_len: u32,
    tag: Option<(Option<u16>, u16)>,
    outgoing: bool,
    nanos: u32,
    partial: bool,
    virtio: virtio::Header,
}

impl Laid {
    fn new(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
            wire_len: bytes.len() as u32,
            tag: None,
            outgoing: false,
            nanos: 7,
            partial: false,
            virtio: virtio::Header::default(),
        }
    }

    /// The frame with its tag where it was on the wire.
    fn on_the_wire(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        if let (Some((protocol, tci)), true) = (self.tag, bytes.len() >= ADDRESSES) {
            let [a, b] = protocol.unwrap_or(0x8100).to_be_bytes();
            let [c, d] = tci.to_be_bytes();
            bytes.splice(ADDRESSES..ADDRESSES, [a, b, c, d]);
        }
        bytes
    }
}

/// Writes a block as `prb_fill_curr_block` and `tpacket_rcv` do.
fn block(frames: &[Laid], size: usize) -> Vec<u8> {
    const MAC: usize = 96;
    let mut block = vec![0; size];
    let put = |block: &mut Vec<u8>, at: usize, bytes: &[u8]| {
        block[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(&mut block, 12, &(frames.len() as u32).to_ne_bytes());
    put(&mut block, 16, &BLOCK_HEADER.to_ne_bytes());
    let mut at = BLOCK_HEADER as usize;
    for (index, frame) in frames.iter().enumerate() {
        let mut status = STATUS_CHECKSUM_NOT_READY * u32::from(frame.partial);
        if let Some((protocol, tci)) = frame.tag {
            status |= STATUS_VLAN;
            put(&mut block, at + 32, &u32::from(tci).to_ne_bytes());
            if let Some(protocol) = protocol {
                status |= STATUS_VLAN_PROTOCOL;
                put(&mut block, at + 36, &protocol.to_ne_bytes());
            }
        }
        let next = (MAC + frame.bytes.len()).next_multiple_of(8);
        let last = index + 1 == frames.len();
        put(&mut block, at, &(if last { 0 } else { next as u32 }).to_ne_bytes());
        put(&mut block, at + 4, &1u32.to_ne_bytes());
        put(&mut block, at + 8, &frame.nanos.to_ne_bytes());
        put(&mut block, at + 12, &(frame.bytes.len() as u32).to_ne_bytes());
        put(&mut block, at + 16, &frame.wire_len.to_ne_bytes());
        put(&mut block, at + 20, &status.to_ne_bytes());
        put(&mut block, at + 24, &(MAC as u16).to_ne_bytes());
        block[at + 58] = if frame.outgoing { libc::PACKET_OUTGOING } else { 0 };
        frame.virtio.emit(&mut block[at + MAC - virtio::HEADER_LEN..at + MAC]).unwrap();
        put(&mut block, at + MAC, &frame.bytes);
        at += next;
    }
    block
}

prop_compose! {
    fn laid()(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        longer in 0u32..2000,
        tag in prop::option::of((prop::option::of(any::<u16>()), any::<u16>())),
        outgoing in any::<bool>(),
        nanos in 0u32..1_000_000_000,
        partial in any::<bool>(),
        segment in prop::option::of(1u16..2000),
    ) -> Laid {
        let virtio = virtio::Header {
            flags: virtio::Flags(u8::from(partial)),
            gso_type: if segment.is_some() { virtio::GsoType::TCPV4 } else { virtio::GsoType::NONE },
            hdr_len: segment.map_or(0, |_| 54),
            gso_size: segment.unwrap_or(0),
            csum_start: if partial { 34 } else { 0 },
            ..virtio::Header::default()
        };
        let wire_len = bytes.len() as u32 + longer;
        Laid { bytes, wire_len, tag, outgoing, nanos, partial, virtio }
    }
}

proptest! {
    #[test]
    fn a_block_gives_back_the_frames_laid_into_it(
        frames in prop::collection::vec(laid(), 0..20),
        snaplen in 1u32..300,
    ) {
        let mut block = block(&frames, 16 << 10);
        let mut walk = BlockFrames::new(&block, FrameOptions { snaplen, virtio: true, cooked: None });
        let mut by_kernel = 0;
        for laid in &frames {
            let frame = walk.next(&mut block).unwrap();
            let bytes = laid.on_the_wire();
            let cut = bytes.len().min(snaplen as usize);
            prop_assert_eq!(frame.head(), &bytes[..cut]);
            let added = (bytes.len() - laid.bytes.len()) as u32;
            prop_assert_eq!(frame.wire_len, laid.wire_len + added);
            by_kernel += u32::from(cut < (snaplen as usize).min(frame.wire_len as usize));
            let stamp = Timestamp(1_000_000_000 + u64::from(laid.nanos));
            prop_assert_eq!(frame.timestamp, Some(stamp));
            prop_assert_eq!(frame.direction == Direction::Outbound, laid.outgoing);
            prop_assert_eq!(frame.checksum_partial, laid.partial);
            let mut virtio = laid.virtio;
            virtio.hdr_len += if virtio.is_gso() { added as u16 } else { 0 };
            virtio.csum_start += if laid.partial { added as u16 } else { 0 };
            prop_assert_eq!(frame.virtio, Some(virtio));
        }
        prop_assert!(walk.next(&mut block).is_none());
        prop_assert_eq!((walk.frames_returned() as usize, walk.is_corrupt()), (frames.len(), false));
        prop_assert_eq!(walk.frames_cut(), by_kernel);
    }

    #[test]
    fn any_bytes_end_the_walk_without_a_read_outside(
        mut bytes in prop::collection::vec(any::<u8>(), 0..600),
        virtio in any::<bool>(),
    ) {
        let least = size_of::<FrameHeader>();
        let most = bytes.len() / least + 1;
        let mut walk = BlockFrames::new(&bytes, FrameOptions { virtio, ..LEND });
        let mut frames = 0;
        while let Some(frame) = walk.next(&mut bytes) {
            prop_assert!(frame.head().len() <= 600);
            frames += 1;
        }
        prop_assert!(frames <= most);
    }

    #[test]
    fn a_damaged_word_ends_the_walk_without_a_read_outside(
        frames in prop::collection::vec(laid(), 1..12),
        at in 0usize..4096,
        word in prop_oneof![any::<u32>(), 0u32..200, Just(u32::MAX)],
        virtio in any::<bool>(),
    ) {
        let mut block = block(&frames, 4096);
        let at = at.min(block.len() - 4);
        block[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        let mut walk = BlockFrames::new(&block, FrameOptions { virtio, ..LEND });
        let mut lent = 0;
        while walk.next(&mut block).is_some() {
            lent += 1;
        }
        prop_assert!(lent <= 4096 / size_of::<FrameHeader>());
    }
}

#[test]
fn a_frame_that_points_outside_is_damage_and_not_a_frame() {
    let mut bytes = block(&[Laid::new(&[1; 60]), Laid::new(&[2; 60])], 512);
    let second = BLOCK_HEADER as usize + 160;
    bytes[second + 12..second + 16].copy_from_slice(&400u32.to_ne_bytes());
    let mut walk = BlockFrames::new(&bytes, LEND);
    assert_eq!(walk.next(&mut bytes).map(|frame| frame.head().to_vec()), Some(vec![1; 60]));
    assert!(walk.next(&mut bytes).is_none());
    assert_eq!((walk.frames_returned(), walk.remaining(), walk.is_corrupt()), (1, 0, true));
}

#[test]
fn a_tag_without_a_protocol_is_802_1q() {
    let mut laid = Laid::new(&(0..60).collect::<Vec<u8>>());
    laid.tag = Some((None, 0x2005));
    let mut bytes = block(&[laid], 512);
    let mut walk = BlockFrames::new(&bytes, LEND);
    let frame = walk.next(&mut bytes).unwrap();
    assert_eq!(
        frame.head()[..18],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x81, 0, 0x20, 5, 12, 13]
    );
    assert_eq!((frame.len(), frame.wire_len), (64, 64));
}

#[test]
fn an_impossible_wire_length_does_not_overflow() {
    let mut laid = Laid::new(&[0; 60]);
    laid.wire_len = u32::MAX - 1;
    laid.tag = Some((None, 5));
    let mut block = block(&[laid], 4096);
    let mut walk = BlockFrames::new(&block, LEND);
    assert_eq!(walk.next(&mut block).map(|frame| frame.wire_len), Some(u32::MAX));
}
