//! A core's CPU time, from `/proc/stat`, and how far a receiver is behind.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use linerate_net::cpu;
use linerate_testkit::Interface;

use crate::interrupt;
use crate::measure::cores::Cores;
use crate::measure::process::{CpuClock, Running};

/// How often [`CoreMonitor`] polls: the precision of its interval.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A shorter interval has too few of the hundredths of a second in which `/proc/stat` counts.
const MIN_INTERVAL: Duration = Duration::from_millis(500);

/// Ticks of one core since boot, by what it did (`proc(5)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Core {
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
pub(crate) struct CpuShares {
    /// In programs.
    pub(crate) user: f64,
    /// In the kernel on behalf of programs: the "system load" of Fiveg 2010, which leaves interrupts
    /// out.
    pub(crate) system: f64,
    /// In hardware and software interrupts.
    pub(crate) interrupt: f64,
}

impl CpuShares {
    /// All that the core did, interrupts too.
    pub(crate) fn busy(self) -> f64 {
        self.user + self.system + self.interrupt
    }
}

impl Core {
    /// Reads the line of core `number`.
    pub(crate) fn read(number: usize) -> Result<Self> {
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
    pub(crate) fn since(self, before: Self) -> CpuShares {
        let ticks = |part: fn(&Self) -> u64| part(&self).saturating_sub(part(&before)) as f64;
        let user = ticks(|core| core.user + core.nice);
        let interrupt = ticks(|core| core.interrupt + core.softirq);
        let system = ticks(|core| core.system);
        let rest = ticks(|core| core.idle + core.iowait + core.steal);
        let all = (user + system + interrupt + rest).max(1.0);
        CpuShares { user: user / all, system: system / all, interrupt: interrupt / all }
    }

    /// Seconds of `elapsed` in which the core worked since `before`, to 10 ms. The kernel samples what a core does at
    /// its ticks, but times how long it is idle (`NO_HZ`): what is not idle is more exact than the sum of the samples.
    pub(crate) fn busy_since(self, before: Self, elapsed: Duration) -> f64 {
        let rest = |core: Self| core.idle + core.iowait + core.steal;
        let ticks = rest(self).saturating_sub(rest(before)) as f64;
        let busy = elapsed.as_secs_f64() - ticks / rustix::param::clock_ticks_per_second() as f64;
        busy.max(0.0)
    }
}

/// What a [`CoreMonitor`] saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreUsage {
    /// What the core did from the first frame to the last; `None` where that was too short to tell.
    pub(crate) share: Option<CpuShares>,
    /// CPU time that the receiver had used when the last frame arrived.
    pub(crate) used: Duration,
}

/// One reading of the interface and the receiver.
#[derive(Clone, Copy, Debug)]
struct Poll {
    at: Instant,
    frames: u64,
    used: Duration,
}

/// Watches a core and a receiver from the first frame that arrives at an interface to the last, so that
/// neither the start of the sender nor its end dilutes the shares.
#[derive(Debug)]
pub(crate) struct CoreMonitor {
    flowing: Arc<AtomicBool>,
    ending: Arc<AtomicBool>,
    thread: JoinHandle<Result<CoreUsage>>,
}

impl CoreMonitor {
    /// Starts to watch the consumer's core, from the generator's, where its own CPU time does not count.
    pub(crate) fn start(cores: Cores, interface: &Interface, receiver: &Running) -> Result<Self> {
        let clock = receiver.clock()?;
        let (flowing, ending) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (interface, flows, ends) = (interface.clone(), flowing.clone(), ending.clone());
        let thread = thread::Builder::new()
            .name("lab-watch".into())
            .spawn(move || watch(cores, &interface, clock, &flows, &ends))
            .context("cannot start a thread")?;
        Ok(Self { flowing, ending, thread })
    }

    /// Waits until frames arrive, or for `limit`.
    pub(crate) fn wait_for_frames(&self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        while !self.flowing.load(Ordering::Relaxed) && Instant::now() < end {
            interrupt::sleep(Duration::from_millis(5))?;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<CoreUsage> {
        self.ending.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the thread that watches a core died"))?
    }
}

fn watch(
    cores: Cores,
    interface: &Interface,
    receiver: CpuClock,
    flowing: &AtomicBool,
    ending: &AtomicBool,
) -> Result<CoreUsage> {
    cpu::pin(cores.generator).context("cannot watch from the generator's core")?;
    let poll = || -> Result<Poll> {
        let frames = interface.statistics()?.rx_packets;
        Ok(Poll { at: Instant::now(), frames, used: receiver.read()? })
    };
    let first = poll()?;
    // The last three polls at which there were more frames than before.
    let mut grown = [first; 3];
    let mut before = first;
    let mut stretch: Option<[(Instant, Core); 2]> = None;
    while !ending.load(Ordering::Relaxed) {
        thread::sleep(POLL_INTERVAL);
        let now = poll()?;
        if now.frames > before.frames {
            let core = (now.at, Core::read(cores.consumer)?);
            let [start, _] = stretch.unwrap_or([core; 2]);
            stretch = Some([start, core]);
            grown = [grown[1], before, now];
            flowing.store(true, Ordering::Relaxed);
        }
        before = now;
    }
    let long = stretch.filter(|[first, last]| last.0 - first.0 >= MIN_INTERVAL);
    let share = long.map(|[first, last]| last.1.since(first.1));
    Ok(CoreUsage { share, used: used_by_the_last_frame(grown) })
}

/// The last frame came somewhere between two polls. Where follows from the frames between them and the
/// rate between the two polls before; a receiver that is behind works all that time.
fn used_by_the_last_frame([first, second, third]: [Poll; 3]) -> Duration {
    let seconds = |from: Poll, to: Poll| (to.at - from.at).as_secs_f64();
    let frames = |from: Poll, to: Poll| (to.frames - from.frames) as f64;
    let rate = frames(first, second) / seconds(first, second).max(1e-9);
    let needed = frames(second, third) / rate;
    let part = (needed / seconds(second, third).max(1e-9)).clamp(0.0, 1.0);
    let part = if part.is_finite() { part } else { 1.0 };
    second.used + (third.used - second.used).mul_f64(part)
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
        let idle = 50.0 / rustix::param::clock_ticks_per_second() as f64;
        let busy = after.busy_since(before, Duration::from_secs(2));
        assert!((busy - (2.0 - idle)).abs() < 1e-9, "{busy}");
    }

    #[test]
    fn what_came_after_the_last_frame_is_told_from_what_came_before() {
        let start = Instant::now();
        let poll = |at, frames, used| Poll {
            at: start + Duration::from_millis(at),
            frames,
            used: Duration::from_millis(used),
        };
        let of = |last| used_by_the_last_frame([poll(0, 0, 0), poll(20, 2000, 20), last]);
        assert_eq!(of(poll(40, 4000, 40)).as_millis(), 40);
        assert_eq!(of(poll(40, 2500, 40)).as_millis(), 25);
        assert_eq!(of(poll(40, 9000, 40)).as_millis(), 40);
        // Nothing came before: no rate, and all that was used was for these frames.
        let none = poll(0, 0, 3);
        assert_eq!(used_by_the_last_frame([none, none, poll(20, 5, 9)]).as_millis(), 9);
        assert_eq!(used_by_the_last_frame([none; 3]).as_millis(), 3);
    }

    #[test]
    fn this_machine_has_a_first_core() {
        let core = Core::read(crate::measure::cores::Cores::choose().generator).unwrap();
        assert!(core.user + core.system + core.idle > 0);
    }
}
