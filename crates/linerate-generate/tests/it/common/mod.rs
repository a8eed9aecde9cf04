//! Two namespaces, a veth pair, and a packet ring at its peer.
pub(crate) mod verify;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use linerate_ring::packet::{Options, Ring};
use linerate_ring::{Batch as _, Ring as _};
use linerate_testkit::{Namespace, Veth, VethOptions};

/// How long the peer may be silent before a capture ends without all that it waits for.
const SILENCE: Duration = Duration::from_secs(3);

/// Interface `near` sends, interface `far` receives; neither host sends anything else.
pub(crate) struct Cable {
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
    pub(crate) veth: Veth,
}

/// A frame as it arrived, and when, in nanoseconds.
pub(crate) type Arrival = (Vec<u8>, u64);

impl Cable {
    pub(crate) fn new(mtu: u32) -> Self {
        let near = Namespace::create("gen-near").unwrap();
        let far = Namespace::create("gen-far").unwrap();
        for namespace in [&near, &far] {
            namespace.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
        }
        let options = VethOptions { mtu, ..VethOptions::default() };
        let veth = Veth::create(&near, "near", &far, "far", options).unwrap();
        veth.b.set_gro(true).unwrap();
        Self { near, far, veth }
    }

    /// Runs `send` in the near namespace while the peer captures until `count` frames are there.
    pub(crate) fn carry<T: Send>(
        &self,
        count: usize,
        send: impl FnOnce() -> T + Send,
    ) -> (Vec<Arrival>, T) {
        let (ready, is_ready) = mpsc::channel();
        thread::scope(|scope| {
            let capture = scope.spawn(move || {
                self.far
                    .run(|| {
                        let mut ring = Ring::open(Options {
                            buffer_size: 32 << 20,
                            retire_timeout: Duration::from_millis(10),
                            ..Options::new("far")
                        })
                        .unwrap();
                        ready.send(()).unwrap();
                        let arrivals = collect(&mut ring, count);
                        assert_eq!(ring.statistics().unwrap().drops, 0, "the peer lost frames");
                        arrivals
                    })
                    .unwrap()
            });
            is_ready.recv().unwrap();
            let sent = self.near.run(send).unwrap();
            (capture.join().unwrap(), sent)
        })
    }
}

fn collect(ring: &mut Ring, count: usize) -> Vec<Arrival> {
    let mut arrivals = Vec::with_capacity(count);
    while arrivals.len() < count && ring.wait(SILENCE).unwrap() {
        while let Some(mut batch) = ring.next_batch() {
            while let Some(frame) = batch.next() {
                arrivals.push((frame.head().to_vec(), frame.timestamp.unwrap_or_default().0));
            }
        }
    }
    // Once more, for frames that the test did not send.
    ring.wait(Duration::from_millis(50)).unwrap();
    while let Some(mut batch) = ring.next_batch() {
        while let Some(frame) = batch.next() {
            arrivals.push((frame.head().to_vec(), frame.timestamp.unwrap_or_default().0));
        }
    }
    arrivals
}
