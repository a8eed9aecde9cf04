use linerate_testkit::root_or_skip;

use super::*;
use crate::config::Statistics;
use crate::runtime::program::Programs;

fn memory(max_sessions: u64) -> Memory {
    Memory::of(&Options { max_sessions, ..Options::default() }).unwrap()
}

#[test]
fn what_is_told_is_what_the_kernel_accounts_for_the_maps() {
    root_or_skip!();
    for (statistics, max_sessions) in
        Statistics::ALL.iter().flat_map(|one| [(*one, 1024), (*one, 50_000)])
    {
        let options = Options { max_sessions, statistics, ..Options::default() };
        let told = Memory::of(&options).unwrap().maps;
        let programs = Programs::load(&options).unwrap();
        for (name, map) in programs.maps.iter() {
            println!("{statistics}, {max_sessions}: {name} {}", of_map(map.as_fd()).unwrap());
        }
        let accounted = of_maps(&programs.maps).unwrap();
        // The map headers, some hundred bytes each, and the programs' constants.
        let margin = 32 << 10;
        assert!(
            told.abs_diff(accounted) <= margin,
            "{statistics}, {max_sessions} sessions: told {told}, accounted {accounted}"
        );
    }
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let most = memory(50_000_000);
    assert!(most.total() > 7 << 30 && most.total() < 8 << 30, "{most}");
    let said = most.check_against(4 << 30).unwrap_err().to_string();
    assert!(said.contains("room for 50000000 sessions takes"), "{said}");
    assert!(said.contains("has 4.0 GiB available; max-sessions = 25000000 would fit"), "{said}");
    assert!(memory(25_000_000).check_against(4 << 30).is_ok());
}

#[test]
fn a_session_of_room_takes_160_bytes_all_told() {
    let million = memory(1_000_000);
    assert!(million.total() <= 160_000_000, "{million}");
}

#[test]
fn the_kernels_text_is_read() {
    let text = "MemTotal: 9 kB\nMemAvailable:   23744384 kB\nBuffers: 1 kB\n";
    assert_eq!(field(text, "MemAvailable:"), Some(23_744_384 << 10));
    assert_eq!(field("MemTotal: 9 kB\n", "MemAvailable:"), None);
    let text = fs::read_to_string(MEMINFO).unwrap();
    let all = field(&text, "MemTotal:").unwrap();
    assert!(field(&text, "MemAvailable:").unwrap() < all);
}

#[test]
fn auto_takes_at_most_a_part_of_the_memory() {
    let options = Options::default();
    let auto = |total, connections| auto_of(total, connections, &options).unwrap();
    for total in [256 << 20, 512 << 20, 1 << 30, 4 << 30, 64 << 30] {
        let sessions = auto(total, None);
        assert!(memory(sessions).total() <= total / 32, "{total}: {}", memory(sessions));
        // It is the largest.
        assert!(memory(2 * sessions).total() > total / 32, "{total}: {}", memory(sessions));
    }
    assert!(memory(auto(512 << 20, None)).total() <= 16 << 20);
    assert!(auto(512 << 20, None) >= 65_536, "{}", auto(512 << 20, None));
    // Both directions of each connection; an instance always has room for the least.
    assert_eq!(auto(64 << 30, Some(65_536)), 131_072);
    assert_eq!(auto(64 << 30, Some(65_537)), 262_144);
    assert_eq!(auto(64 << 30, Some(0)), auto(64 << 30, None));
    assert_eq!((auto(16 << 20, None), auto(64 << 30, Some(10))), (1024, 1024));
    assert!(auto(u64::MAX, None) <= *MAX_SESSIONS_RANGE.end());
}
