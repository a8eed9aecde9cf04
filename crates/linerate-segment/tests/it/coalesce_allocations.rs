//! A coalescer allocates nothing once it is there.

use linerate_segment::coalesce::{Coalescer, Flow, Options, Output};

use crate::coalesce::build::{Spec, Tunnel, bytes};

#[test]
fn joining_allocates_nothing() {
    let specs = [
        Spec::default(),
        Spec { ports: [5, 6], ..Spec::v6() },
        Spec { ports: [7, 8], ..Spec::udp() },
        Spec { tunnel: Some(Tunnel::Vxlan { checksum: true }), ..Spec::default() },
    ];
    let streams: Vec<_> = specs.iter().map(|spec| spec.stream(&bytes(100_000), 1000, 1)).collect();
    // One of each in turn, and now and then something that cannot be joined.
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for index in 0..100 {
        frames.extend(streams.iter().map(|stream| stream[index].clone()));
        if index % 10 == 0 {
            frames.push(specs[0].after(index * 1000, 0).build(&[]));
            frames.push(vec![0; 60]);
            frames.push(frames[0][..40].to_vec());
        }
    }
    // Fewer flows than there are, so that some have to make room.
    for flows in [1, 3, 16] {
        let mut coalescer = Coalescer::new(vec![Flow::default(); flows], &Options::default());
        let mut whole = vec![0; 70_000];
        let (mut out, mut joined) = (0, 0);
        let mut sink = |output: Output<'_>| match output {
            Output::Frame { .. } => out += 1,
            Output::Super(packet) => {
                out += packet.payload().len();
                joined += packet.tokens().len();
                assert!(packet.virtio().is_none_or(|header| header.is_gso()));
                let written = packet.write(&mut whole, |token| &frames[token as usize]);
                assert_eq!(written, Some(packet.len()));
            }
        };
        let counted = allocation_counter::measure(|| {
            for (token, frame) in frames.iter().enumerate() {
                coalescer.flush_before((token as u64).saturating_sub(200), &mut sink);
                coalescer.push(frame, token as u64, token as u64, &mut sink);
            }
            coalescer.flush_all(&mut sink);
        });
        assert_eq!(counted.count_total, 0);
        assert_eq!(out, frames.len());
        assert!(flows < 4 || joined > 380, "{joined}");
    }
}
