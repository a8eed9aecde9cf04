//! One measurement: a receiver, traffic, and the outcome of every frame.

use std::time::{Duration, Instant};

use anyhow::Result;
use linerate_net::text::plural;

use crate::interrupt;
use crate::measure::cpu::{CoreMonitor, CpuShares};
use crate::measure::process::{Cpu, Running};
use crate::peers::capture::{Peer, PeerReport};
use crate::topology::pair::Pair;
use crate::traffic::generated::{SendReport, Traffic};

/// Idle time after which an interface or receiver is considered finished.
const QUIET_INTERVAL: Duration = Duration::from_millis(150);
/// Maximum wait for a busy receiver after the last frame.
const MAX_BACKLOG_TIME: Duration = Duration::from_secs(60);

/// What happened to the frames of one measurement.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    pub(crate) sent: SendReport,
    /// Frames that the two interfaces counted as dropped, the refused ones among them.
    pub(crate) interface_dropped: u64,
    pub(crate) peer_report: PeerReport,
    /// How long the receiver went on working on what its buffer held when the last frame arrived: the
    /// CPU time that it used from then on, which on a core of its own is the time itself.
    pub(crate) behind: Duration,
    /// CPU time of the receiver.
    pub(crate) cpu: Cpu,
    /// What its core did from the first frame to the last; `None` where that was too short to tell.
    pub(crate) share: Option<CpuShares>,
    pub(crate) void: Option<String>,
}

impl Measurement {
    /// Frames captured a second, from the first frame sent until the last one was read: what a large
    /// buffer holds at the end of sending is not captured yet.
    pub(crate) fn rate(&self) -> f64 {
        self.peer_report.captured as f64 / (self.sent.seconds + self.behind.as_secs_f64()).max(1e-9)
    }

    /// Frames that were sent and not captured.
    pub(crate) fn lost(&self) -> u64 {
        self.sent.frames.saturating_sub(self.peer_report.captured)
    }

    /// The part of the frames sent that was not captured, 0 to 1.
    pub(crate) fn loss(&self) -> f64 {
        self.lost() as f64 / (self.sent.frames.max(1)) as f64
    }

    /// CPU nanoseconds of the receiver for each captured frame.
    pub(crate) fn cpu_per_frame(&self) -> f64 {
        (self.cpu.user + self.cpu.system) * 1e9 / (self.peer_report.captured.max(1)) as f64
    }

    /// The same, void if frames went out at less than 0.95 of `rate`: what is easy at a lower rate says
    /// nothing of this one.
    #[must_use]
    pub(crate) fn void_below_rate(mut self, rate: Option<u64>) -> Self {
        if let Some(rate) = rate.filter(|rate| self.sent.rate() < *rate as f64 * 0.95) {
            let sent = self.sent.rate();
            let why = format!("{sent:.0} frames a second were sent where {rate} were asked for");
            self.void.get_or_insert(why);
        }
        self
    }

    pub(crate) fn counts(&self) -> bool {
        self.void.is_none()
    }

    /// A row of raw data, each cell with its column.
    pub(crate) fn cells(&self) -> [(&'static str, String); 14] {
        let causes: Vec<String> = self
            .peer_report
            .dropped
            .iter()
            .map(|(cause, count)| format!("{cause}: {count}"))
            .collect();
        [
            ("sent", self.sent.frames.to_string()),
            ("refused", self.sent.refused.to_string()),
            ("interface_dropped", self.interface_dropped.to_string()),
            ("captured", self.peer_report.captured.to_string()),
            ("dropped", self.peer_report.lost().to_string()),
            ("causes", causes.join("; ")),
            ("seconds", format!("{:.6}", self.sent.seconds)),
            ("behind_s", format!("{:.6}", self.behind.as_secs_f64())),
            ("sent_per_second", format!("{:.0}", self.sent.rate())),
            ("captured_per_second", format!("{:.0}", self.rate())),
            ("cpu_user_s", format!("{:.6}", self.cpu.user)),
            ("cpu_system_s", format!("{:.6}", self.cpu.system)),
            (
                "core_system_share",
                self.share.map(|share| format!("{:.4}", share.system)).unwrap_or_default(),
            ),
            ("void", self.void.clone().unwrap_or_default()),
        ]
    }
}

pub(crate) fn measure(pair: &Pair, peer: &Peer, traffic: &Traffic) -> Result<Measurement> {
    measure_with(pair, peer, traffic, |_, _| Ok(()))
}

/// The same; `meddle` is called when the first frames have arrived, with the receiver and the sender.
pub(crate) fn measure_with(
    pair: &Pair,
    peer: &Peer,
    traffic: &Traffic,
    meddle: impl FnOnce(&mut Running, &mut Running) -> Result<()>,
) -> Result<Measurement> {
    pair.cable.b.set_gro(traffic.needs_napi())?;
    let traced = peer.traces().then(|| Peer::start_traced(pair)).transpose()?;
    let mut receiver = Running::start(&peer.name, &mut peer.command(pair)?)?;
    match traced {
        Some(_) => pair.wait_until_tracing(&mut receiver)?,
        None => pair.wait_until_listening(&mut receiver)?,
    }
    let dropped_before = interface_drops(pair)?;
    let watch = CoreMonitor::start(pair.cores, &pair.cable.b, &receiver)?;
    let mut sender = traffic.start(pair)?;
    watch.wait_for_frames(Duration::from_secs(2))?;
    meddle(&mut receiver, &mut sender)?;
    let sent = traffic.finish(sender)?;
    let watched = watch.finish()?;
    let used = settle(pair, peer, &receiver)?;
    receiver.check()?;
    let behind = if peer.busy_polls() { Duration::ZERO } else { used.saturating_sub(watched.used) };
    let finished = receiver.stop(Duration::from_secs(120))?;
    let cpu = finished.cpu;
    let peer_report = peer.peer_report(finished)?;
    let [sender_drops, receiver_drops] = interface_drops(pair)?;
    if let Some(traced) = traced {
        traced.stop(Duration::from_secs(10))?;
    }
    pair.wait_until_free()?;
    // What the peer had no room for counts at the sending interface. What an XDP program drops counts at the
    // receiving one; there it is either what the sink was asked to drop or what the capture program lists
    // itself.
    let refused = sender_drops - dropped_before[0];
    let in_driver = peer.uses_xdp() || matches!(peer_report.source.as_str(), "xdp" | "tee");
    let stack = if in_driver { 0 } else { receiver_drops - dropped_before[1] };
    let interface_dropped = refused + stack;
    let void = account(sent, &peer_report, interface_dropped);
    let share = watched.share;
    Ok(Measurement { sent, interface_dropped, peer_report, behind, cpu, share, void })
}

/// Frames sent must equal frames captured plus counted drops; otherwise the run is void.
fn account(sent: SendReport, peer_report: &PeerReport, interface_dropped: u64) -> Option<String> {
    let explained = peer_report.captured + peer_report.lost() + interface_dropped;
    if explained == sent.frames {
        return None;
    }
    let difference = i128::from(sent.frames) - i128::from(explained);
    Some(if difference > 0 {
        format!("{difference} of {} frames are unaccounted for", sent.frames)
    } else {
        format!("{} more than the {} sent", plural(explained - sent.frames, "frame"), sent.frames)
    })
}

fn interface_drops(pair: &Pair) -> Result<[u64; 2]> {
    Ok([pair.cable.a.statistics()?.tx_dropped, pair.cable.b.statistics()?.rx_dropped])
}

/// Waits until the receiving interface has been quiet and `receiver` idle for a while, and then for as
/// long as `peer` may leave frames in its ring: what it has not read when it is told to end is
/// lost, and that would be our fault. Returns the CPU time that it had used when it was idle.
pub(crate) fn settle(pair: &Pair, peer: &Peer, receiver: &Running) -> Result<Duration> {
    let clock = receiver.clock()?;
    let look = || Ok::<_, anyhow::Error>((pair.cable.b.statistics()?.rx_packets, clock.read()?));
    let end = Instant::now() + MAX_BACKLOG_TIME;
    let mut before = look()?;
    let used = loop {
        interrupt::sleep(QUIET_INTERVAL)?;
        let now = look()?;
        let idle =
            peer.busy_polls() || now.1 - before.1 < QUIET_INTERVAL / 5 || Instant::now() > end;
        if now.0 == before.0 && idle {
            break now.1;
        }
        before = now;
    };
    interrupt::sleep(peer.flush_delay())?;
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent_in_a_second(frames: u64) -> Measurement {
        Measurement {
            sent: SendReport { frames, refused: 0, seconds: 1.0 },
            interface_dropped: 0,
            peer_report: PeerReport::default(),
            behind: Duration::ZERO,
            cpu: Cpu::default(),
            share: None,
            void: None,
        }
    }

    #[test]
    fn a_run_that_is_too_slow_for_its_rate_is_void() {
        let measured = sent_in_a_second(900);
        assert!(measured.clone().void_below_rate(None).counts());
        assert!(measured.clone().void_below_rate(Some(940)).counts());
        let slow = measured.void_below_rate(Some(1000));
        assert!(slow.void.as_ref().unwrap().contains("where 1000 were"), "{slow:?}");
    }

    #[test]
    fn what_a_buffer_holds_at_the_end_is_not_captured_yet() {
        let mut measured = sent_in_a_second(1000);
        measured.peer_report.captured = 900;
        measured.behind = Duration::from_millis(500);
        assert_eq!((measured.rate(), measured.sent.rate()), (600.0, 1000.0));
    }

    #[test]
    fn frames_that_nobody_counted_make_a_run_void() {
        let sent = SendReport { frames: 100, refused: 5, seconds: 1.0 };
        let peer_report = |captured| PeerReport {
            captured,
            dropped: [("ring".to_owned(), 10)].into(),
            ..PeerReport::default()
        };
        assert_eq!(account(sent, &peer_report(85), 5), None);
        let missing = account(sent, &peer_report(80), 5).unwrap();
        assert!(missing.starts_with("5 of 100"), "{missing}");
        let surplus = account(sent, &peer_report(86), 5).unwrap();
        assert!(surplus.starts_with("1 frame more"), "{surplus}");
    }
}
