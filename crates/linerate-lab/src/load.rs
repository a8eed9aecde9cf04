//! What a core did, from `/proc/stat`.

use std::fs;

use anyhow::{Context, Result};

/// Ticks of one core since boot, by what it did (`proc(5)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Core {
    user: u64,
    nice: u64,
    system: u64,
    idle: u64,
    iowait: u64,
    interrupt: u64,
    softirq: u64,
    steal: u64,
}

/// Shares of a stretch of time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// In programs.
    pub user: f64,
    /// In the kernel on behalf of programs: the "system load" of seed 001, which leaves interrupts
    /// out.
    pub system: f64,
    /// In hardware and software interrupts.
    pub interrupt: f64,
}

impl Core {
    /// Reads the line of core `number`.
    ///
    /// # Errors
    /// When there is no such core.
    pub fn read(number: usize) -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Self::parse(&text, number).with_context(|| format!("/proc/stat has no core {number}"))
    }

    fn parse(text: &str, number: usize) -> Option<Self> {
        let name = format!("cpu{number}");
        let line = text.lines().find(|line| line.split(' ').next() == Some(&name))?;
        let mut ticks = line.split_whitespace().skip(1).map(|word| word.parse().ok());
        let mut next = || ticks.next().flatten();
        Some(Self {
            user: next()?,
            nice: next()?,
            system: next()?,
            idle: next()?,
            iowait: next()?,
            interrupt: next()?,
            softirq: next()?,
            steal: next()?,
        })
    }

    /// What happened since `before`.
    pub fn since(self, before: Self) -> Share {
        let ticks = |part: fn(&Self) -> u64| part(&self).saturating_sub(part(&before)) as f64;
        let user = ticks(|core| core.user + core.nice);
        let interrupt = ticks(|core| core.interrupt + core.softirq);
        let system = ticks(|core| core.system);
        let rest = ticks(|core| core.idle + core.iowait + core.steal);
        let all = (user + system + interrupt + rest).max(1.0);
        Share { user: user / all, system: system / all, interrupt: interrupt / all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_taken_of_the_right_core() {
        let text = |user, softirq| {
            format!("cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 {user} 0 50 100 0 0 {softirq} 0 0 0\ncpu10 1\n")
        };
        let before = Core::parse(&text(100, 10), 1).unwrap();
        let mut after = Core::parse(&text(130, 30), 1).unwrap();
        after.idle += 50;
        let share = after.since(before);
        assert_eq!((share.user, share.system, share.interrupt), (0.3, 0.0, 0.2));
        assert_eq!(Core::parse(&text(1, 1), 0), None);
    }

    #[test]
    fn this_machine_has_a_first_core() {
        let core = Core::read(crate::bench::Cores::choose().generator).unwrap();
        assert!(core.user + core.system + core.idle > 0);
    }
}
