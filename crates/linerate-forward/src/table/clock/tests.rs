use super::*;

#[test]
fn a_second_is_hz_jiffies() {
    let clock = Clock::read(1000);
    assert!([100, 250, 300, 1000].contains(&clock.hz()), "{clock:?}");
    let hz = u64::from(clock.hz());
    assert_eq!(clock.jiffies(Duration::from_secs(7)), 7 * hz);
    assert_eq!(clock.jiffies(Duration::from_nanos(1)), 1);
    assert_eq!(clock.duration(7 * hz), Duration::from_secs(7));
    assert_eq!(clock.jiffies(clock.duration(12_345)), 12_345);
    let before = clock.now();
    std::thread::sleep(Duration::from_millis(50));
    let passed = clock.now() - before;
    assert!(passed >= clock.jiffies(Duration::from_millis(45)), "{passed} jiffies");
}

#[test]
fn the_past_is_told_over_the_end_of_the_low_half() {
    let clock = Clock::read((1 << 32) + 10);
    let hz = clock.hz();
    assert!(clock.since(10u32.wrapping_sub(3 * hz)) >= Duration::from_secs(3));
    assert_eq!(clock.since(1000 * hz), Duration::ZERO);
}

/// `/proc/timer_list` has the jiffies, for root and where the kernel has it.
#[test]
fn the_estimate_is_the_kernels_to_a_second() {
    let Ok(text) = std::fs::read_to_string("/proc/timer_list") else { return };
    let jiffies = text.lines().find_map(|line| line.strip_prefix("jiffies:"));
    let real: u64 = jiffies.expect("a line for each CPU").trim().parse().unwrap();
    let clock = Clock::from_boot_time();
    let apart = clock.now().abs_diff(real);
    assert!(apart <= 2 * u64::from(clock.hz()), "{apart} jiffies from the kernel's {real}");
}
