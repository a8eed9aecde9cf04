use std::os::fd::AsRawFd;

use super::*;

#[test]
fn the_table_is_five_sixths_full_at_most() {
    for max_sessions in [1024, 1_000_000, 1 << 20, (1 << 20) + 1, 50_000_000] {
        let slots = u64::from(Sizes::of(max_sessions).buckets) * WAYS as u64;
        assert!(5 * slots >= 6 * max_sessions, "{max_sessions}: {slots}");
        assert!(5 * slots < 6 * max_sessions + 5 * WAYS as u64, "{max_sessions}: {slots}");
    }
}

#[test]
fn the_programs_load_in_every_design() {
    linerate_testkit::root_or_skip!();
    for multi_buffer in [false, true] {
        for &statistics in Statistics::ALL {
            let options =
                Options { statistics, multi_buffer, max_sessions: 1024, ..Options::default() };
            let programs =
                Programs::load(&options).unwrap_or_else(|error| panic!("{options:?}: {error}"));
            assert!(programs.xdp().is_ok());
            assert!(programs.heartbeat().unwrap() > 0);
        }
    }
}

/// The kernel refuses a program whose verification takes more than a million steps (BPF_COMPLEXITY_LIMIT_INSNS), and
/// another version of it counts others.
#[test]
fn the_verifier_has_room() {
    linerate_testkit::root_or_skip!();
    let options = Options { max_sessions: 1024, multi_buffer: true, ..Options::default() };
    let programs = Programs::load(&options).unwrap();
    for (name, program) in programs.iter() {
        let steps = steps(program);
        println!("{name}: {steps} steps");
        assert!(steps < 200_000, "{name}: {steps} steps");
    }
}

fn steps(program: BorrowedFd<'_>) -> u32 {
    let text =
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("verified_insns:")).unwrap();
    line.trim().parse().unwrap()
}

#[test]
fn nothing_is_sent_by_a_port_that_is_none_any_more() {
    linerate_testkit::root_or_skip!();
    let programs = Programs::load(&Options { max_sessions: 1024, ..Options::default() }).unwrap();
    let maps = &programs.maps;
    // The loopback interface stands for a trunk, with ports 1 and 2 for VLAN devices on it.
    let sends = |port| egress_enabled(maps, port, 1).unwrap();
    (0..3).for_each(|port| send_by(maps, port, 1).unwrap());
    unregister(maps, 2, 7);
    assert_eq!([0, 1, 2].map(sends), [true, true, false], "a VLAN device is gone");
    unregister(maps, 0, 1);
    assert_eq!([0, 1, 2].map(sends), [false; 3], "the trunk is gone");
}
