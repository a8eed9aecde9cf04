//! The walk through a TPACKET_V3 block: whatever the offsets say, it ends and stays inside.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_bpf::filter::CookedHeader;
use linerate_ring::packet::walk::{BlockFrames, FrameOptions};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, block)) = data.split_first() else { return };
    let snaplen = [u32::MAX, 0, 1, 60, 65_535][usize::from(choice) % 5];
    let mut block = block.to_vec();
    let range = block.as_ptr_range();
    let virtio = choice & 0x40 != 0;
    let header = if choice & 0x20 == 0 { CookedHeader::V1 } else { CookedHeader::V2 };
    let cooked = (choice & 0x80 != 0).then_some(header);
    let mut walk = BlockFrames::new(&block, FrameOptions { snaplen, virtio, cooked });
    let promised = walk.remaining();
    let mut lent = 0;
    while let Some(frame) = walk.next(&mut block) {
        lent += 1;
        assert!(lent <= promised, "more frames than the block says");
        let piece = frame.head();
        assert!(piece.len() <= snaplen as usize);
        assert!(piece.is_empty() || range.contains(&piece.as_ptr()), "bytes of another place");
        assert!(piece.as_ptr_range().end <= range.end, "bytes behind the block");
        std::hint::black_box(sum(piece));
    }
    assert_eq!(walk.frames_returned(), lent);
    assert!(lent == promised || walk.is_corrupt());
});

/// Touches every byte, so that the sanitiser sees each of them.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&byte| u64::from(byte)).sum()
}
