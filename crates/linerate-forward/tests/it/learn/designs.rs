//! The designs of statistics of the hash maps: what is counted is the same, wherever it is.

use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags};
use linerate_forward::config::Statistics;
use linerate_forward::layout::{HashedSession, Stray};
use linerate_forward::program::Options;
use linerate_forward::reason::Reason;
use zerocopy::FromBytes;

use super::lab::{Accelerator, BOTH, LEFT, Lab, RIGHT, at, deliver};

/// The thread stays on one CPU, and with it what its packets make the kernel do: a session in a per-CPU map
/// is learned for each CPU by itself.
fn stay() {
    use linerate_ring::cpu;
    cpu::stay_on(cpu::allowed().expect("CPUs")[0]).expect("stayed");
}

/// Packets and bytes of every session, of all CPUs, in order.
fn counted(fast: &Accelerator, design: Statistics) -> Vec<(u64, u64)> {
    let hashed = fast.programs.maps.get("hashed").expect("a map");
    let mut all = Vec::new();
    for key in hashed.keys() {
        let sessions = |value: &[u8]| {
            let (hashed, _) = HashedSession::read_from_prefix(value).expect("a session");
            (hashed.session.packets, hashed.session.bytes)
        };
        let counts = match design {
            Statistics::PerCpu => {
                let values = hashed.lookup_percpu(&key, MapFlags::ANY).expect("read");
                values.expect("an entry").iter().map(|value| sessions(value)).collect()
            }
            Statistics::Split => {
                let counters = fast.programs.maps.get("counters").expect("a map");
                let values = counters.lookup_percpu(&key, MapFlags::ANY).expect("read");
                let stray = |value: &Vec<u8>| {
                    let (stray, _) = Stray::read_from_prefix(value).expect("counters");
                    (stray.packets, stray.bytes)
                };
                values.expect("an entry").iter().map(stray).collect()
            }
            _ => vec![sessions(&hashed.lookup(&key, MapFlags::ANY).expect("read").expect("one"))],
        };
        all.push(counts.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)));
    }
    all.sort_unstable();
    all
}

#[test]
fn the_designs_with_hash_maps_learn_and_count_too() {
    learner_or_skip!("the_designs_with_hash_maps_learn_and_count_too");
    stay();
    for design in [Statistics::Shared, Statistics::PerCpu, Statistics::Split] {
        let lab = Lab::new("sde");
        lab.masquerade();
        let options = Options { statistics: design, max_sessions: 64, ..Options::default() };
        let fast = Accelerator::attach_as(&lab, &options, Duration::from_secs(60));
        for family in BOTH {
            let client = Lab::udp(&lab.left, LEFT[family], 4000);
            let server = Lab::udp(&lab.right, RIGHT[family], 5000);
            for round in 0..10 {
                let from = deliver(&client, at(RIGHT[family], 5000), &server, "question");
                deliver(&server, from, &client, "answer");
                if round == 5 {
                    fast.bump();
                }
            }
        }
        let expected = [(10, 340), (10, 360), (10, 540), (10, 560)];
        assert_eq!(counted(&fast, design), expected, "{design:?}: {}", fast.told());
        // Two of each session until it is learned, and one after the change.
        assert_eq!(fast.left(Reason::Stale), 4, "{design:?}: {}", fast.told());
        assert_eq!(fast.left(Reason::Unknown), 8, "{design:?}: {}", fast.told());
    }
}
