//! What the tests of packet rings share: a veth pair between two namespaces, frames, and collecting.

use std::time::{Duration, Instant};

use linerate_ring::packet::{DirectionFilter, Options, Ring, TxRing};
use linerate_ring::{Batch as _, Direction, Result, Ring as _, Timestamp};
use linerate_testkit::{Namespace, Veth, VethOptions};

/// Ethertype for experiments (IEEE 802), which no protocol of the kernel takes.
pub(crate) const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// Two namespaces and a veth pair: `tx` sends, `rx` receives.
pub(crate) struct Cable {
    pub(crate) veth: Veth,
    pub(crate) sender: Namespace,
    pub(crate) receiver: Namespace,
    /// The first ring on `rx`. The kernel shows a frame to the first ring last, so what this one
    /// has counted the others have got.
    witness: Ring,
    /// Frames that had arrived when the veth pair was ready.
    tried: usize,
}

impl Cable {
    pub(crate) fn new() -> Self {
        let sender = Namespace::create("prtx").expect("a namespace");
        let receiver = Namespace::create("prrx").expect("a namespace");
        let options = VethOptions::default();
        let veth = Veth::create(&sender, "tx", &receiver, "rx", options).expect("a veth pair");
        let witness = Options {
            direction: DirectionFilter::In,
            block_size: 4096,
            blocks: Some(1),
            ..Options::new("rx")
        };
        let witness = receiver.run(|| Ring::open(witness)).expect("the namespace").expect("a ring");
        let mut cable = Self { veth, sender, receiver, witness, tried: 0 };
        // The kernel starts the queue of a new interface from a work item, and silently drops what
        // is sent before.
        let deadline = Instant::now() + Duration::from_secs(5);
        while cable.tried == 0 {
            assert!(Instant::now() < deadline, "nothing comes through");
            cable.launch(&[numbered(0, 60)]);
            let timeout = Instant::now() + Duration::from_millis(100);
            while cable.tried == 0 && Instant::now() < timeout {
                std::thread::sleep(Duration::from_millis(1));
                cable.tried = cable.arrived();
            }
        }
        cable
    }

    /// Sends frames from `tx`; returns when they have arrived.
    pub(crate) fn send(&self, frames: &[Vec<u8>]) {
        let before = self.arrived();
        self.launch(frames);
        self.settle(before - self.tried + frames.len());
    }

    /// Frames that reached `rx` or were lost on the way.
    fn arrived(&self) -> usize {
        self.witness.statistics().unwrap().packets as usize + self.lost()
    }

    /// Waits until as many frames have arrived since the veth pair was ready.
    pub(crate) fn settle(&self, frames: usize) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.arrived() < self.tried + frames && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends frames from `tx`, not caring whether they arrive.
    pub(crate) fn launch(&self, frames: &[Vec<u8>]) {
        let mut ring = self.transmit();
        for frame in frames {
            loop {
                if let Some(mut slot) = ring.frame(frame.len()).expect("a fitting length") {
                    slot.copy_from_slice(frame);
                    slot.send();
                    break;
                }
                ring.flush().expect("flushed");
            }
        }
        assert!(ring.finish(Duration::from_secs(5)).expect("finished"));
        assert_eq!(ring.statistics().sent, frames.len() as u64);
    }

    pub(crate) fn transmit(&self) -> TxRing {
        let build = || TxRing::open("tx", 256);
        self.sender.run(build).expect("the namespace").expect("a transmit ring")
    }

    /// Frames that the veth pair lost: beyond a thousand, a CPU's backlog drops what a busy softirq has
    /// not fetched (`net.core.netdev_max_backlog`).
    pub(crate) fn lost(&self) -> usize {
        self.veth.a.statistics().expect("statistics").tx_dropped as usize
    }

    /// A ring in the receiver's namespace.
    pub(crate) fn receive(&self, options: Options) -> Result<Ring> {
        self.receiver.run(move || Ring::open(options)).expect("the namespace")
    }

    pub(crate) fn ring(&self) -> Ring {
        self.receive(quick("rx")).expect("a ring")
    }
}

/// A ring that hands over soon.
pub(crate) fn quick(interface: &str) -> Options {
    Options {
        retire_timeout: Duration::from_millis(5),
        buffer_size: 4 << 20,
        ..Options::new(interface)
    }
}

/// A frame of `len` bytes that carries a number.
pub(crate) fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1];
    frame.extend(ETHERTYPE);
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..len).map(|at| (at as u32).wrapping_mul(31 + number) as u8));
    frame
}

pub(crate) fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().expect("four bytes"))
}

/// A frame, kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    pub(crate) wire_len: u32,
    pub(crate) direction: Direction,
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) checksum_partial: bool,
}

/// Everything that waits in the ring.
pub(crate) fn drain(ring: &mut Ring) -> Vec<Kept> {
    let mut kept = Vec::new();
    while let Some(mut batch) = ring.next_batch() {
        while let Some(frame) = batch.next() {
            kept.push(Kept {
                bytes: frame.head().to_vec(),
                wire_len: frame.wire_len,
                direction: frame.direction,
                timestamp: frame.timestamp,
                checksum_partial: frame.checksum_partial,
            });
        }
    }
    kept
}

/// Frames until there are `count`, or five seconds have passed.
pub(crate) fn collect(ring: &mut Ring, count: usize) -> Vec<Kept> {
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut kept = drain(ring);
    while kept.len() < count && Instant::now() < deadline {
        ring.wait(Duration::from_millis(100)).expect("waited");
        kept.extend(drain(ring));
    }
    kept
}

/// Stops the ring and takes everything that came before.
pub(crate) fn finish(ring: &mut Ring) -> Vec<Kept> {
    ring.stop().expect("stopped");
    let mut kept = drain(ring);
    while ring.wait(Duration::from_secs(5)).expect("waited") {
        kept.extend(drain(ring));
    }
    kept
}
