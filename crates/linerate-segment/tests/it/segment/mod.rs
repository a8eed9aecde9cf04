//! The segmenter against packets that etherparse builds.

pub(crate) mod build;
mod errors;
mod fragments;
mod properties;
mod rules;
mod strategies;

use linerate_segment::Result;
use linerate_segment::segment::{LinkType, Options, Segments, Split};
use linerate_wire::checksum::Engine;

/// All segments, taken in each of the four ways and by each engine, which must agree.
fn split(packet: &[u8], options: &Options) -> Result<Vec<Vec<u8>>> {
    let mut segments = Segments::new(packet, options)?;
    let iterator = segments.clone();
    let mut parts = segments.clone();
    let at_once = segments.clone();
    let (count, max_len) = (segments.len(), segments.max_len());
    let mut written = Vec::new();
    // Exactly as much as is needed, and then with room to spare.
    let mut out = vec![0xa5; max_len + 512];
    loop {
        let room = if written.len() % 2 == 0 { max_len } else { max_len + 512 };
        let Some(len) = segments.write_next(&mut out[..room]).unwrap() else { break };
        written.push(out[..len].to_vec());
    }
    assert_eq!(written.len(), count);
    assert_eq!(written.iter().map(Vec::len).max(), Some(max_len));
    assert_eq!((segments.len(), segments.next_view().is_none()), (0, true));
    for expected in &written {
        let part = parts.next_view().unwrap();
        assert_eq!(&[part.header, part.payload].concat(), expected);
    }
    let iterated: Vec<_> = iterator.map(|s| [s.header(), s.payload()].concat()).collect();
    assert_eq!(iterated, written);
    for engine in Engine::available() {
        assert_eq!(
            write_all(at_once.clone().with_engine(engine), max_len + 9),
            written,
            "{engine}"
        );
    }
    Ok(written)
}

/// Into buffers of so many bytes, one more than is needed.
fn write_all(mut segments: Segments<'_>, len: usize) -> Vec<Vec<u8>> {
    let count = segments.len();
    let mut buffers = vec![vec![0xa5; len]; count + 1];
    let mut buffers = buffers.iter_mut().map(Vec::as_mut_slice);
    let mut written = Vec::new();
    segments.write_all(&mut buffers, |buffer, len| written.push(buffer[..len].to_vec())).unwrap();
    assert_eq!((segments.len(), buffers.len()), (0, 1), "no buffer is taken in vain");
    written
}

fn options(packet: &build::Packet, split: Split) -> Options {
    let link = if packet.ethernet.is_some() { LinkType::Ethernet } else { LinkType::Ip };
    Options { link, ..Options::new(split) }
}
