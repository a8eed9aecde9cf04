//! What each CPU did, from `/proc/stat`.

use std::time::Duration;

/// Clock ticks of one CPU since the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticks {
    busy: u64,
    softirq: u64,
    total: u64,
}

/// Parts of a CPU's time, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub(super) struct Share {
    /// Anything but waiting.
    pub(super) busy: f64,
    /// Soft interrupts alone, in which packets are forwarded.
    pub(super) softirq: f64,
}

/// Reads the ticks of all CPUs that are on, by number. Empty where `/proc` is not there.
pub(super) fn read() -> Vec<(u32, Ticks)> {
    parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// The columns of proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal.
fn parse(text: &str) -> Vec<(u32, Ticks)> {
    let cpu = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let number = line.strip_prefix("cpu")?.starts_with(|c: char| c.is_ascii_digit());
        let number = number.then(|| words.next())??.parse().ok()?;
        let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        let [.., idle, waiting, _, softirq, _] = ticks[..] else { return None };
        let total = ticks.iter().sum();
        Some((number, Ticks { busy: total - idle - waiting, softirq, total }))
    };
    text.lines().filter_map(cpu).collect()
}

/// What each CPU did between the two; one that was off in one of them is left out.
pub(super) fn shares(before: &[(u32, Ticks)], after: &[(u32, Ticks)]) -> Vec<(u32, Share)> {
    let share = |(number, now): &(u32, Ticks)| {
        let (_, then) = before.iter().find(|(other, _)| other == number)?;
        let total = now.total.checked_sub(then.total).filter(|total| *total > 0)? as f64;
        let part = |now: u64, then: u64| now.saturating_sub(then) as f64 / total;
        let share =
            Share { busy: part(now.busy, then.busy), softirq: part(now.softirq, then.softirq) };
        Some((*number, share))
    };
    after.iter().filter_map(share).collect()
}

/// `/proc/stat` counts in hundredths of a second: less time than this shows nothing.
pub(super) const SHORTEST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_in_between() {
        let before = parse("cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 0 0 100 0 0 10 0 0 0\nintr 5\n");
        let after = parse("cpu0 20 0 5 150 10 0 35 0 0 0\ncpu7 1 1 1 1 1 1 1 1 0 0\n");
        assert_eq!((before.len(), after.len()), (1, 2));
        // 100 ticks: 10 user, 5 system, 50 idle, 10 waiting, 25 softirq.
        let share = Share { busy: 0.4, softirq: 0.25 };
        assert_eq!(shares(&before, &after), [(0, share)]);
        assert_eq!(shares(&after, &after), []);
    }

    #[test]
    fn this_machine_has_cpus() {
        assert!(!read().is_empty());
    }
}
