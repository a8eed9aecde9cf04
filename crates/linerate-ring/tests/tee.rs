//! Tees on real veth pairs: a copy for each capture, and the stack still gets everything.

mod xdp_support;

use std::time::Duration;

use linerate_netns::{VethOptions, root_or_skip};
use linerate_ring::tee::{Builder, Tee};
use xdp_support::{Cable, udp};

fn tee(cable: &Cable, with: impl FnOnce(Builder<'static>) -> Builder<'static> + Send) -> Tee {
    cable
        .receiver
        .run(|| with(Tee::builder("rx").buffer(8 << 20)).build())
        .expect("the namespace")
        .unwrap_or_else(|error| panic!("{error}"))
}

fn drain(tee: &mut Tee, mut each: impl FnMut(&linerate_ring::Frame<'_>)) {
    while tee.wait(Duration::from_millis(300)).expect("wait") {
        while let Some(mut batch) = tee.batch() {
            while let Some(frame) = batch.next() {
                each(&frame);
            }
        }
    }
}

#[test]
fn all_that_is_sent_is_copied_in_order_and_unchanged() {
    root_or_skip!("all_that_is_sent_is_copied_in_order_and_unchanged");
    let cable = Cable::new(VethOptions::default());
    let mut tee = tee(&cable, |b| b);
    let raw = cable.raw();
    let sender = std::thread::spawn(move || {
        for n in 0..20_000 {
            raw.send(&udp(7, n, 60 + (n % 1400) as usize));
        }
    });
    let mut expected = 0;
    drain(&mut tee, |frame| {
        assert_eq!(frame.head(), udp(7, expected, 60 + (expected % 1400) as usize));
        assert_eq!(frame.wire_len as usize, frame.len());
        expected += 1;
    });
    sender.join().unwrap();
    let counts = tee.statistics().unwrap();
    assert_eq!((expected, counts.received, counts.lost()), (20_000, 20_000, 0), "{counts:?}");
}
