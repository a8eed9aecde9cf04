//! Filters that are exchanged while frames come, and the end of a capture under load, for all that
//! capture in XDP: no frame is judged by two filters or by none, and each change is there when the
//! call returns.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::xdp_support::{Cable, Raw, SetOnDrop, copying, number, small, to_port, udp};
use linerate_bpf::filter::Instruction;
use linerate_ring::tee::{Action, Tee};
use linerate_ring::xdp::Sockets;
use linerate_ring::{Batch as _, Options, Result, Ring, TimestampSource};
use linerate_testkit::{VethOptions, root_or_skip};

/// What a source and a tee have in common beside their rings.
trait Capture: Ring {
    fn set_filter(&mut self, filter: Option<&[Instruction]>) -> Result<()>;
    /// Frames accepted, lost, and neither.
    fn counts(&self) -> (u64, u64, u64);
}

macro_rules! capture {
    ($kind:ty, |$counts:ident| $sums:expr) => {
        impl Capture for $kind {
            fn set_filter(&mut self, filter: Option<&[Instruction]>) -> Result<()> {
                let loaded = self.load_filter(filter)?;
                self.replace_filter(&loaded)
            }

            fn counts(&self) -> (u64, u64, u64) {
                let $counts = self.statistics().expect("counts");
                $sums
            }
        }
    };
}
capture!(Sockets, |c| (c.matched, c.lost(), c.unmatched));
capture!(Tee, |c| (c.captured, c.lost(), c.unmatched + c.late));

/// Adds the numbers of the frames that are there; waits a while when none is.
fn read(capture: &mut impl Capture, numbers: &mut Vec<u64>) -> bool {
    let ready = capture.wait(Duration::from_secs(1)).expect("waited");
    while let Some(mut batch) = capture.next_batch() {
        while let Some(frame) = batch.next() {
            numbers.push(number(frame.head()));
        }
    }
    ready
}

/// A filter, as the numbers of the frames that it accepts.
type Accepts = fn(u64) -> bool;

const PHASES: [Accepts; 5] = [|_| true, |n| n % 2 == 0, |n| n % 2 == 1, |_| true, |_| false];

/// Runs through all phases while frames with rising numbers come, whose ports are 7 and 8 in turn.
fn exchange(cable: &Cable, mut capture: impl Capture, what: &str) {
    let (even, odd) = (to_port(7), to_port(8));
    let filters = [Some(&even[..]), Some(&odd[..]), None];
    let (raw, sent, done) = (cable.raw(), AtomicU64::new(0), AtomicBool::new(false));
    let mut numbers = Vec::new();
    // The last number that a phase has certainly seen, and the first by which the next one shows:
    // every other frame is as good for both.
    let mut bounds = Vec::new();
    std::thread::scope(|scope| {
        let (sent, done) = (&sent, &done);
        scope.spawn(move || {
            while !done.load(SeqCst) {
                let n = sent.fetch_add(1, SeqCst);
                raw.send(&udp(7 + (n % 2) as u16, n, 100));
            }
        });
        let ending = SetOnDrop(done);
        for phase in 0..4 {
            let enough = numbers.len() + 2000;
            while numbers.len() < enough {
                assert!(read(&mut capture, &mut numbers), "{what}: nothing comes in phase {phase}");
            }
            let last = numbers.last().copied().unwrap();
            match filters.get(phase) {
                Some(filter) => capture.set_filter(*filter).unwrap(),
                None => capture.stop().unwrap(),
            }
            bounds.push((last, sent.load(SeqCst) + 1));
        }
        while read(&mut capture, &mut numbers) {}
        let before = numbers.len();
        let after = sent.load(SeqCst) + 1000;
        while sent.load(SeqCst) < after {
            std::thread::yield_now();
        }
        assert!(
            !read(&mut capture, &mut numbers) && numbers.len() == before,
            "{what}: after the stop"
        );
        drop(ending);
    });
    // Every frame was judged by the filter of its phase and by no other.
    let (mut phase, mut received) = (0, numbers.iter().copied().peekable());
    for n in 0..sent.load(SeqCst) {
        let came = received.next_if_eq(&n).is_some();
        while PHASES[phase](n) != came {
            let (last, first) = bounds[phase];
            assert!((last..=first).contains(&n), "{what}: phase {phase} ends at {n}: {bounds:?}");
            phase += 1;
        }
    }
    assert_eq!((phase, received.next()), (4, None), "{what}: {bounds:?}");
    let (accepted, lost, others) = capture.counts();
    assert_eq!((accepted, lost), (numbers.len() as u64, 0), "{what}");
    assert_eq!(accepted + others, sent.load(SeqCst), "{what}");
}

#[test]
fn filters_are_exchanged_between_two_frames() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let inside = |open: fn() -> Result<Tee>| cable.receiver.run(open).unwrap().unwrap();
    // A tee beside others: before and after it in the chain.
    let _first = inside(|| Tee::open("rx", &Options { buffer: Some(1 << 16), ..copying() }, None));
    let tee = inside(|| Tee::open("rx", &copying(), None));
    let _last = inside(|| Tee::open("rx", &Options { buffer: Some(1 << 16), ..copying() }, None));
    exchange(&cable, tee, "a tee");
    drop((_first, _last));
    exchange(
        &cable,
        inside(|| Tee::open("rx", &Options { action: Action::Redirect, ..copying() }, None)),
        "a tee that takes",
    );
    let source = cable
        .receiver
        .run(|| Sockets::open("rx", &Options { buffer: None, ..small() }, None))
        .unwrap()
        .unwrap();
    exchange(&cable, source, "a source");
}

#[test]
fn a_stop_needs_no_privilege() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let raw = cable.raw();
    let inside = |open: fn() -> Result<Tee>| cable.receiver.run(open).unwrap().unwrap();
    without_privilege(&raw, inside(|| Tee::open("rx", &copying(), None)), "a tee");
    without_privilege(
        &raw,
        inside(|| Tee::open("rx", &Options { action: Action::Redirect, ..copying() }, None)),
        "a tee that takes",
    );
    for stamps in [TimestampSource::Reader, TimestampSource::Hardware] {
        let open = || {
            Sockets::open(
                "rx",
                &Options { buffer: Some(16 << 20), timestamps: stamps, ..small() },
                None,
            )
        };
        let source = cable.receiver.run(open).unwrap().unwrap();
        without_privilege(&raw, source, "a source");
    }
}

fn without_privilege(raw: &Raw, mut capture: impl Capture + Send + 'static, what: &str) {
    (0..500).for_each(|n| raw.send(&udp(7, n, 100)));
    let (mut capture, refused) = std::thread::spawn(move || {
        drop_capabilities();
        let refused = capture.set_filter(Some(&to_port(8)));
        capture.stop().expect("stopped");
        (capture, refused)
    })
    .join()
    .unwrap();
    let denied = matches!(refused, Err(linerate_ring::Error::Privilege { .. }));
    assert!(denied, "{what}: a new filter takes privilege: {refused:?}");
    (500..1000).for_each(|n| raw.send(&udp(7, n, 100)));
    let mut numbers = Vec::new();
    while read(&mut capture, &mut numbers) {}
    assert!(numbers.iter().copied().eq(0..500), "{what}: {numbers:?}");
    assert_eq!(capture.counts(), (500, 0, 500), "{what}");
}

/// Takes every capability from this thread.
fn drop_capabilities() {
    let (header, none) = ([0x2008_0522u32, 0], [0u32; 6]);
    // SAFETY: version 3 of the structures, for this thread, which the call only reads.
    let answer = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    assert_eq!(answer, 0, "capset");
}

#[test]
fn a_refused_filter_leaves_the_old_one() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    // Reads the register r5, which is uninitialised.
    let bad = [Instruction::new(0xbf, 0, 5, 0, 0), Instruction::new(0x95, 0, 0, 0, 0)];
    let even = to_port(7);
    let mut tee = cable.receiver.run(|| Tee::open("rx", &copying(), None)).unwrap().unwrap();
    tee.set_filter(Some(&even)).unwrap();
    let error = tee.set_filter(Some(&bad)).expect_err("refused");
    assert!(
        matches!(error, linerate_ring::Error::Bpf(linerate_bpf::Error::Verifier { .. })),
        "{error}"
    );
    let raw = cable.raw();
    (0..100).for_each(|n| raw.send(&udp(7 + (n % 2) as u16, n, 100)));
    let mut numbers = Vec::new();
    while numbers.len() < 50 {
        assert!(read(&mut tee, &mut numbers));
    }
    assert!(numbers.iter().all(|n| n % 2 == 0), "{numbers:?}");
    assert_eq!(tee.statistics().unwrap().unmatched, 50);
}
