//! What a core did, from `/proc/stat`.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use linerate_netns::Interface;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::bench::Cores;
use crate::interrupt;

/// How often [`Watch`] looks: the end of a stretch is known to this.
const GLANCE: Duration = Duration::from_millis(20);
/// A shorter stretch has too few of the hundredths of a second in which `/proc/stat` counts.
const SHORTEST: Duration = Duration::from_millis(500);

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

/// Watches a core from the first frame that arrives at an interface to the last, so that neither the
/// start of the sender nor its end dilutes the shares.
#[derive(Debug)]
pub struct Watch {
    flowing: Arc<AtomicBool>,
    ending: Arc<AtomicBool>,
    thread: JoinHandle<Result<Option<Share>>>,
}

impl Watch {
    /// Begins to watch the consumer's core, from the generator's: who looks there would be seen.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(cores: Cores, interface: &Interface) -> Result<Self> {
        let (flowing, ending) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (interface, flows, ends) = (interface.clone(), flowing.clone(), ending.clone());
        let thread = thread::Builder::new()
            .name("lab-watch".into())
            .spawn(move || watch(cores, &interface, &flows, &ends))
            .context("cannot start a thread")?;
        Ok(Self { flowing, ending, thread })
    }

    /// Waits until frames arrive, or for `limit`.
    ///
    /// # Errors
    /// When a signal asks for the end.
    pub fn wait_for_frames(&self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        while !self.flowing.load(Ordering::Relaxed) && Instant::now() < end {
            interrupt::sleep(Duration::from_millis(5))?;
        }
        Ok(())
    }

    /// Ends; `None` when frames did not arrive for long enough to say anything.
    ///
    /// # Errors
    /// When counters could not be read.
    pub fn finish(self) -> Result<Option<Share>> {
        self.ending.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the thread that watches a core died"))?
    }
}

fn watch(
    cores: Cores,
    interface: &Interface,
    flowing: &AtomicBool,
    ending: &AtomicBool,
) -> Result<Option<Share>> {
    let mut set = CpuSet::new();
    set.set(cores.generator)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .context("cannot watch from the generator's core")?;
    let mut seen = interface.counters()?.rx_packets;
    let mut stretch: Option<[(Instant, Core); 2]> = None;
    while !ending.load(Ordering::Relaxed) {
        thread::sleep(GLANCE);
        let frames = interface.counters()?.rx_packets;
        if frames == seen {
            continue;
        }
        seen = frames;
        let now = (Instant::now(), Core::read(cores.consumer)?);
        let [first, _] = stretch.unwrap_or([now; 2]);
        stretch = Some([first, now]);
        flowing.store(true, Ordering::Relaxed);
    }
    let long = stretch.filter(|[first, last]| last.0 - first.0 >= SHORTEST);
    Ok(long.map(|[first, last]| last.1.since(first.1)))
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
