//! Several rings that share one interface's frames.

use std::time::{Duration, Instant};

use crate::packet_support::{Cable, finish, number, numbered, quick};
use linerate_ring::Ring as _;
use linerate_ring::packet::{DirectionFilter, Fanout, Mode, Options, Ring};
use linerate_testkit::root_or_skip;

const RINGS: usize = 3;
const FRAMES: u32 = 600;

/// The group's rings get every frame once between them; returns what each got.
fn share(fanout: Fanout) -> [Vec<u32>; RINGS] {
    let cable = Cable::new();
    let options = Options { fanout: Some(fanout), direction: DirectionFilter::In, ..quick("rx") };
    let mut rings = cable.receiver.run(|| Ring::open_group(options, RINGS)).unwrap().unwrap();
    assert!(rings.iter().all(|ring| ring.fanout_group() == rings[0].fanout_group()));
    cable.send(&(0..FRAMES).map(|n| numbered(n, 100)).collect::<Vec<_>>());
    let mut shares = rings
        .iter_mut()
        .map(|ring| finish(ring).iter().map(|kept| number(&kept.bytes)).collect::<Vec<_>>());
    let shares = [(); RINGS].map(|()| shares.next().unwrap());
    let mut all = shares.concat();
    all.sort_unstable();
    assert_eq!(all, (0..FRAMES).collect::<Vec<_>>());
    let packets: u64 = rings.iter().map(|ring| ring.statistics().unwrap().packets).sum();
    assert_eq!(packets, u64::from(FRAMES));
    shares
}

#[test]
fn every_mode_shares_all_frames() {
    root_or_skip!();
    for mode in [Mode::Hash, Mode::Cpu, Mode::Random, Mode::QueueMapping, Mode::Rollover] {
        let shares = share(Fanout::new(mode));
        if matches!(mode, Mode::Random) {
            assert!(shares.iter().all(|share| share.len() > 100), "{shares:?}");
        }
        if matches!(mode, Mode::Hash | Mode::QueueMapping) {
            // One flow and one queue: one ring has it all.
            assert_eq!(shares.iter().filter(|share| !share.is_empty()).count(), 1);
        }
    }
}

#[test]
fn taking_turns_is_fair() {
    root_or_skip!();
    let shares = share(Fanout::new(Mode::LoadBalance));
    assert!(shares.iter().all(|share| share.len() == FRAMES as usize / RINGS));
}

#[test]
fn groups_are_joined_by_number_and_mismatches_are_refused() {
    root_or_skip!();
    let cable = Cable::new();
    let join = |fanout: Fanout| cable.receive(Options { fanout: Some(fanout), ..quick("rx") });
    let first = join(Fanout::new(Mode::LoadBalance).group(77)).unwrap();
    let _second = join(Fanout::new(Mode::LoadBalance).group(77)).unwrap();
    assert_eq!(first.fanout_group(), Some(77));
    let unique = join(Fanout::new(Mode::LoadBalance)).unwrap();
    assert_ne!(unique.fanout_group(), Some(77));
    let error = join(Fanout::new(Mode::Cpu).group(77)).unwrap_err().to_string();
    assert!(error.contains("join fanout group 77") && error.contains("another mode"), "{error}");
    let error = cable.receiver.run(|| Ring::open_group(quick("rx"), 2)).unwrap().unwrap_err();
    assert!(error.to_string().contains("needs a fanout mode"), "{error}");
}

#[test]
fn a_group_survives_the_interface_going_down() {
    root_or_skip!();
    let cable = Cable::new();
    let options = Options { fanout: Some(Fanout::new(Mode::LoadBalance)), ..quick("rx") };
    let mut rings: Vec<Ring> =
        cable.receiver.run(|| Ring::open_group(options, 2)).unwrap().unwrap();
    cable.veth.b.down().unwrap();
    for ring in &mut rings {
        let error = ring.wait(Duration::from_secs(5)).unwrap_err();
        assert!(error.to_string().contains("interface rx is down"), "{error}");
    }
    cable.veth.b.up().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    let heard = |rings: &[Ring]| rings.iter().all(|ring| ring.statistics().unwrap().packets > 0);
    while !heard(&rings) && Instant::now() < deadline {
        cable.launch(&(0..4).map(|n| numbered(n, 60)).collect::<Vec<_>>());
    }
    assert!(heard(&rings));
}

#[test]
fn modes_read_back_what_they_print() {
    for word in ["hash", "lb", "cpu", "rollover", "rnd", "qm"] {
        assert_eq!(word.parse::<Mode>().unwrap().to_string(), word);
    }
    let error = "ebpf".parse::<Mode>().unwrap_err();
    assert!(error.contains("unknown fanout mode `ebpf`: choose one of hash"), "{error}");
}
