//! AF_XDP sources on real veth pairs: what is sent arrives, or is in a count.

mod xdp_support;

use std::time::Duration;

use linerate_netns::{VethOptions, root_or_skip};
use linerate_ring::region::Pages;
use linerate_ring::xdp::{Source, SourceBuilder};
use xdp_support::{Cable, udp};

fn source(
    cable: &Cable,
    with: impl FnOnce(SourceBuilder<'static>) -> SourceBuilder<'static> + Send,
) -> Source {
    cable
        .receiver
        .run(|| with(Source::builder("rx").buffer(8 << 20).pages(Pages::Small)).build())
        .expect("the namespace")
        .expect("a source")
}

/// Reads until nothing has come for a while; calls `each` with every frame.
fn drain(source: &mut Source, mut each: impl FnMut(&linerate_ring::Frame<'_>)) {
    while source.wait(Duration::from_millis(300)).expect("wait") {
        while let Some(mut batch) = source.batch() {
            while let Some(frame) = batch.next() {
                each(&frame);
            }
        }
    }
}

#[test]
fn all_that_is_sent_arrives_in_order_and_unchanged() {
    root_or_skip!("all_that_is_sent_arrives_in_order_and_unchanged");
    let cable = Cable::new(VethOptions::default());
    let mut source = source(&cable, |b| b);
    let raw = cable.raw();
    let sender = std::thread::spawn(move || {
        for n in 0..20_000 {
            raw.send(&udp(7, n, 60 + (n % 1400) as usize));
        }
    });
    let mut expected = 0;
    drain(&mut source, |frame| {
        assert_eq!(frame.head(), udp(7, expected, 60 + (expected % 1400) as usize));
        expected += 1;
    });
    sender.join().unwrap();
    let counts = source.statistics().unwrap();
    assert_eq!((expected, counts.received, counts.lost()), (20_000, 20_000, 0), "{counts:?}");
    assert_eq!(counts.matched, 20_000);
    println!("{:?} {:?}", source.attached(), source.mode());
}
