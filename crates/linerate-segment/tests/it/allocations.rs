//! Splitting allocates nothing, with any of the ways to take the segments.

use linerate_segment::segment::{Options, Segments, Split};

use crate::segment::build::{Network, Packet, Tunnel};

#[test]
fn splitting_allocates_nothing() {
    let tunnel = Tunnel::Vxlan { checksum: true, group: false };
    let tunnelled = Packet { outer: Some((Network::v6(), tunnel)), ..Packet::tcp(60_000) };
    let cases = [
        (Packet::tcp(60_000).build(), Split::Tcp { mss: 1448 }),
        (tunnelled.build(), Split::Mtu(1500)),
        (Packet::udp(60_000).build(), Split::Udp { size: 1400 }),
        (Packet::udp(60_000).build(), Split::Fragments { mtu: 1500 }),
    ];
    for (packet, split) in cases {
        let options = Options::new(split);
        let mut out = [0; 2048];
        let mut buffers = vec![[0; 2048]; 64];
        let (mut written, mut at_once, mut parts, mut iterated) = (0, 0, 0, 0);
        let counted = allocation_counter::measure(|| {
            let mut segments = Segments::new(&packet, &options).unwrap();
            while let Some(len) = segments.write_next(&mut out).unwrap() {
                written += len;
            }
            let mut segments = Segments::new(&packet, &options).unwrap();
            let buffers = buffers.iter_mut().map(|buffer| &mut buffer[..]);
            segments.write_all(buffers, |_, len| at_once += len).unwrap();
            let mut segments = Segments::new(&packet, &options).unwrap();
            while let Some(segment) = segments.next_view() {
                parts += segment.header.len() + segment.payload.len();
            }
            for segment in Segments::new(&packet, &options).unwrap() {
                iterated += segment.header().len() + segment.payload().len();
            }
        });
        assert_eq!(counted.count_total, 0);
        assert!(written > 60_000);
        assert_eq!((at_once, parts, iterated), (written, written, written));
    }
}
