//! The coalescer on frames that often follow each other: the pieces of any packet, some of them edited,
//! swapped and repaired. Each comes out once, alone as it was, or in a super-packet that splits into
//! the very same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_segment::coalesce::{Coalescer, Flow, Options, Output};
use linerate_segment::segment::{self, Checksums, IpId, LinkType, Segments, Split};

/// Bytes in front that choose how: kind, flows, segments, payload of a piece, edits.
const CHOICES: usize = 5;

/// Bytes of an edit: which piece, where (two), and which bits.
const EDIT: usize = 4;

fuzz_target!(|data: &[u8]| {
    let Some(([kind, flows, most, size, edits], data)) = data.split_first_chunk::<CHOICES>() else {
        return;
    };
    let edits = usize::from(edits % 16).min(data.len() / EDIT);
    let (edits, packet) = data.split_at(edits * EDIT);
    let link = if kind & 1 == 0 { LinkType::Ethernet } else { LinkType::Ip };
    let id = |bit| if kind & bit == 0 { IpId::Increment } else { IpId::Fixed };
    let size = u16::from(*size) + 1;
    let cut = |split| segment::Options {
        link,
        outer_id: id(2),
        inner_id: id(4),
        ..segment::Options::new(split)
    };
    let mut frames = pieces(packet, &cut(Split::Tcp { mss: size }))
        .or_else(|| pieces(packet, &cut(Split::Udp { size })))
        .unwrap_or_else(|| vec![packet.to_vec()]);
    frames.truncate(300);
    for edit in edits.chunks_exact(EDIT) {
        let count = frames.len();
        let frame = &mut frames[usize::from(edit[0]) % count];
        let at = usize::from(u16::from_le_bytes([edit[1], edit[2]]));
        match (edit[3], at < frame.len()) {
            (0, _) => frames.swap(usize::from(edit[0]) % count, at % count),
            (1, true) => frame.truncate(at),
            (1, false) => frame.push(edit[1]),
            (bits, true) => {
                frame[at] ^= bits;
                // Most edits are to meet the rules behind the checksums.
                if kind & 8 == 0
                    && let Some(whole) = pieces(frame, &cut(Split::Mtu(u16::MAX)))
                {
                    *frame = whole.concat();
                }
            }
            _ => {}
        }
    }

    let options = Options { link, max_segments: (*most).into(), ..Options::default() };
    check(&frames, &options, usize::from(*flows % 8), kind & 16 != 0);
    let checksums = if kind & 32 == 0 { Checksums::Partial } else { Checksums::None };
    let mut coalescer = Coalescer::new(vec![Flow::default(); 3], &Options { checksums, ..options });
    let mut seen = 0;
    let mut sink = |output: Output<'_>| match output {
        Output::Frame { .. } => seen += 1,
        Output::Super(packet) => {
            seen += packet.tokens().len();
            if let Some(header) = packet.virtio().filter(|_| checksums == Checksums::Partial) {
                let end = usize::from(header.csum_start + header.csum_offset) + 2;
                assert!(end <= packet.header().len(), "a checksum outside of the headers");
            }
        }
    };
    frames.iter().for_each(|frame| coalescer.push(frame, 0, 0, &mut sink));
    coalescer.flush_all(&mut sink);
    assert_eq!(seen, frames.len());
});

/// All segments of a packet, their checksums right.
fn pieces(packet: &[u8], options: &segment::Options) -> Option<Vec<Vec<u8>>> {
    let mut segments = Segments::new(packet, options).ok()?;
    let mut out = vec![0; segments.max_len()];
    let mut pieces = Vec::new();
    while let Some(len) = segments.write_next(&mut out).expect("max_len is enough") {
        pieces.push(out[..len].to_vec());
    }
    Some(pieces)
}

/// Pushes all frames and splits what comes out.
fn check(frames: &[Vec<u8>], options: &Options, flows: usize, hurry: bool) {
    let mut coalescer = Coalescer::new(vec![Flow::default(); flows], options);
    let mut seen = vec![false; frames.len()];
    let mut see =
        |token: u64| assert!(!std::mem::replace(&mut seen[token as usize], true), "twice");
    let mut sink = |output: Output<'_>| match output {
        Output::Frame { token, .. } => see(token),
        Output::Super(packet) => {
            assert!(packet.tokens().is_sorted(), "out of order");
            let mut whole = vec![0; packet.len()];
            let written = packet.write(&mut whole, |token| &frames[token as usize]);
            assert_eq!(written, Some(whole.len()));
            let again = pieces(&whole, &packet.split()).expect("what was joined can be split");
            assert_eq!(again.len(), packet.tokens().len());
            for (token, piece) in packet.tokens().iter().zip(&again) {
                see(*token);
                assert_eq!(piece, &frames[*token as usize], "another frame came back");
            }
        }
    };
    for (token, frame) in frames.iter().enumerate() {
        let token = token as u64;
        coalescer.push(frame, token, token, &mut sink);
        if hurry {
            coalescer.flush_before(token.saturating_sub(5), &mut sink);
        }
    }
    coalescer.flush_all(&mut sink);
    assert!(seen.iter().all(|seen| *seen), "a frame is missing");
}
