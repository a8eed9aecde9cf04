//! Splits a super-packet again and again, or does only a part of that: `costs-split METHOD FRAME HEADERS MSS TIMES`.

use std::hint::black_box;

use linerate_segment::segment::{Options, Segments, Split};
use linerate_wire::checksum::Engine;

const CHUNK: usize = 2048;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, method, frame, headers, mss, times] = &arguments[..] else {
        panic!("costs-split METHOD FRAME HEADERS MSS TIMES")
    };
    let frame = std::fs::read(frame).expect("a file");
    let number = |text: &String| text.parse::<usize>().expect("a number");
    let (headers, mss) = (number(headers), number(mss));
    let options = Options::new(Split::Tcp { mss: mss as u16 });
    let mut ring = vec![1; CHUNK * (frame.len() - headers).div_ceil(mss)];
    let engine = Engine::detect();
    for _ in 0..number(times) {
        let frame = black_box(&frame[..]);
        let chunks = ring.chunks_exact_mut(CHUNK).map(black_box);
        let pieces = frame[headers..].chunks(mss);
        match method.as_str() {
            "linerate" => {
                let mut segments = Segments::new(frame, &options).expect("a super-packet");
                segments.write_all(chunks, |_, _| {}).expect("room");
            }
            "copy" => pieces.zip(chunks).for_each(|(from, to)| {
                to[headers..][..from.len()].copy_from_slice(from);
            }),
            "copy-and-sum" => pieces.zip(chunks).for_each(|(from, to)| {
                black_box(engine.copy(from, &mut to[headers..][..from.len()]));
            }),
            _ => panic!("linerate, copy or copy-and-sum"),
        }
    }
}
