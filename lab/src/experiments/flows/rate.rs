//! `flows-rate`: what metering costs a capture, by the number of flows.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::experiments::capture::measurement::settle;
use crate::experiments::capture::write::memory_folder;
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::measure::process::{Running, count};
use crate::peers::capture::Peer;
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Claim, Role};
use crate::topology::pair::Pair;
use crate::traffic::generated::{Sessions, Traffic};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "flows-rate",
    title: "Metering flows while capturing",
    about: "64-byte frames of 1, 100,000 and 1,000,000 flows in random order, at full speed, to linerate capture \
            --source xdp --discard, alone and with --flows, in turns (A B A B …). First one frame of each flow is \
            sent, so that all flows are in the table. Flow records go to a tmpfs. CPU time for each frame counts \
            from the first frame until the last one was read. What metering adds to a packet is that time less \
            that of the capture alone right before it. The records are written after that: what a record costs \
            is the CPU time until the end, divided by the records.",
    run,
};

const ALONE: &str = "capture alone";
const METERING: &str = "with --flows";

/// Numbers of flows, each with the nanoseconds that metering may add to a packet.
const PLACES: [(u64, f64); 3] = [(1, 60.0), (100_000, 120.0), (1_000_000, 200.0)];

/// Frames a second at first, while each flow is added to the table.
const WARM_UP_RATE: u64 = 500_000;

/// Bytes that the flow records may take.
const RECORD_BYTES: u64 = 256 << 20;

/// The result of a measurement.
#[derive(Clone, Copy, Debug)]
struct Received {
    sent: u64,
    captured: u64,
    /// From the first frame sent until the last was read.
    seconds: f64,
    /// CPU time of the capture in these seconds.
    cpu: Duration,
    /// Flow records, and the CPU time of the capture from the last frame to its end.
    records: u64,
    cpu_of_records: f64,
}

impl Received {
    /// Frames captured a second.
    fn rate(&self) -> f64 {
        self.captured as f64 / self.seconds.max(1e-9)
    }

    /// CPU nanoseconds for each captured frame.
    fn cost(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / self.captured.max(1) as f64
    }

    /// The part of the frames that was not captured, 0 to 1.
    fn loss(&self) -> f64 {
        self.sent.saturating_sub(self.captured) as f64 / self.sent.max(1) as f64
    }

    /// CPU nanoseconds for each record.
    fn cost_of_record(&self) -> f64 {
        self.cpu_of_records * 1e9 / self.records as f64
    }
}

fn run(context: &mut Context) -> Result<()> {
    let frames = context.quick_or_full(3_000_000, 10_000_000);
    let capture = Peer::capture("xdp").discarding();
    if !context.can_run(&capture)? {
        return Ok(());
    }
    let lines = vec![(ALONE.to_owned(), Role::Limit), (METERING.to_owned(), Role::Ours)];
    let xs = PLACES.map(|(flows, _)| flows as f64);
    let samples = Samples::collect(context, lines, &xs, |context, line, place, repeat| {
        let (name, x, flows) = ([ALONE, METERING][line], xs[place], PLACES[place].0);
        let seconds = 4.0 + flows as f64 / WARM_UP_RATE as f64 + frames as f64 / 2e6;
        let received = context.try_measure(name, x, repeat, seconds, |pair| {
            measure(pair, &capture, name == METERING, flows, frames)
        })?;
        if let Some(received) = &received {
            context.row("flows", (name, x, repeat), &cells(received))?;
        }
        Ok(received)
    })?;
    let x = || Axis::logarithmic("flows", "");
    context.charts.extend([
        Chart::lines(
            "rate",
            "Frames captured a second",
            "Higher is better.",
            x(),
            Axis::linear("captured", "frames a second"),
            samples.lines_with(Received::rate, |repeats| {
                let lost = Distribution::of(repeats.iter().flatten().map(Received::loss));
                let lost = lost.map_or(0.0, |lost| lost.median);
                (lost > 0.0).then(|| format!("{:.3}% lost", lost * 100.0))
            }),
        ),
        Chart::lines(
            "cost",
            "CPU time of the capture for each frame",
            "Lower is better.",
            x(),
            Axis::linear("CPU time", "ns a frame"),
            samples.lines(Received::cost),
        ),
    ]);
    let repeats = context.options.repeats;
    for (flows, bound) in PLACES {
        let (alone, metering) = ((ALONE, flows as f64), (METERING, flows as f64));
        context.claims.push(Claim::at_least(
            &format!("frames captured a second with --flows over capture alone, flows: {flows}"),
            samples.ratio(metering, alone, Received::rate),
            0.75,
            repeats,
        ));
        let (with, without) =
            (samples.values(metering, Received::cost), samples.values(alone, Received::cost));
        let claim = format!("CPU time that metering adds to a packet in ns, flows: {flows}");
        context.claims.push(Claim::at_most(&claim, added(&with, &without), bound, repeats));
        // The cost of a record cannot be told from a single one.
        let record = samples.distribution(metering, Received::cost_of_record);
        if let Some(record) = record.filter(|_| flows > 1) {
            let Distribution { min, median, max, .. } = record;
            context.notes.push(format!(
                "With {flows} flows a record costs {median:.0} ns of CPU time ({min:.0} to {max:.0}), written \
                 in Parquet, compressed by zstd."
            ));
        }
    }
    Ok(())
}

/// The differences of the first and the second, repeat by repeat.
fn added(with: &[f64], without: &[f64]) -> Option<Distribution> {
    Distribution::of(with.iter().zip(without).map(|(with, without)| with - without))
}

fn cells(received: &Received) -> [(&'static str, String); 6] {
    [
        ("sent", received.sent.to_string()),
        ("captured", received.captured.to_string()),
        ("captured_per_second", format!("{:.0}", received.rate())),
        ("cpu_ns_a_frame", format!("{:.1}", received.cost())),
        ("records", received.records.to_string()),
        ("cpu_s_of_records", format!("{:.6}", received.cpu_of_records)),
    ]
}

fn measure(
    pair: &Pair,
    capture: &Peer,
    metering: bool,
    flows: u64,
    frames: u64,
) -> Result<Received> {
    let folder = memory_folder(RECORD_BYTES)?;
    let peer = match metering {
        true => capture.clone().metering(folder.path().join("flows")),
        false => capture.clone(),
    };
    let mut receiver = Running::start(&peer.name, &mut peer.command(pair)?)?;
    pair.wait_until_listening(&mut receiver)?;
    let all = Sessions::uniform(flows);
    let warm_up = Traffic::smallest(flows, Some(WARM_UP_RATE)).of_sessions(all).send(pair)?;
    settle(pair, &peer, &receiver)?;
    let clock = receiver.clock()?;
    let before = clock.read()?;
    let order = if flows > 1 { all.shuffled() } else { all };
    let sent = Traffic::smallest(frames, None).of_sessions(order).send(pair)?;
    let at_end_of_sending = clock.read()?;
    let used = settle(pair, &peer, &receiver)?;
    receiver.check()?;
    let finished = receiver.stop(Duration::from_secs(120))?.success()?;
    let cpu_of_records = finished.cpu.user + finished.cpu.system - used.as_secs_f64();
    let report = finished.json()?;
    pair.wait_until_free()?;
    let (captured, lost) = (count(&report, "captured")?, count(&report["dropped"], "total")?);
    let refused = warm_up.refused + sent.refused;
    ensure!(
        captured + lost + refused == warm_up.frames + sent.frames,
        "{captured} captured, {lost} lost and {refused} refused are not the {} sent",
        warm_up.frames + sent.frames
    );
    let records = if metering { metered(&report, captured, flows)? } else { 0 };
    let behind = used.saturating_sub(at_end_of_sending);
    Ok(Received {
        sent: sent.frames,
        captured: captured.saturating_sub(warm_up.frames),
        seconds: sent.seconds + behind.as_secs_f64(),
        cpu: used.saturating_sub(before),
        records,
        cpu_of_records,
    })
}

/// The flow records of a report; all packets must be in them, and all flows must have had room.
fn metered(report: &serde_json::Value, captured: u64, flows: u64) -> Result<u64> {
    let metered = |name| count(&report["flows"], name);
    let (packets, records) = (metered("packets")?, metered("records")?);
    ensure!(packets == captured, "{packets} of {captured} captured frames were metered");
    ensure!(metered("overflow")? == 0, "the table of flows was full");
    ensure!(
        records >= flows,
        "{records} records of {flows} flows: frames were lost before all flows were known"
    );
    Ok(records)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_packet_costs_what_it_costs_more_than_without_metering() {
        let received = |cpu| Received {
            sent: 1000,
            captured: 900,
            seconds: 0.5,
            cpu: Duration::from_micros(cpu),
            records: 10,
            cpu_of_records: 0.001,
        };
        assert_eq!((received(90).rate(), received(90).cost()), (1800.0, 100.0));
        assert_eq!((received(90).loss(), received(90).cost_of_record()), (0.1, 100_000.0));
        let costs = |cpu: [u64; 3]| cpu.map(|cpu| received(cpu).cost());
        let added = added(&costs([135, 180, 126]), &costs([90, 90, 90])).unwrap();
        assert_eq!((added.min, added.median, added.max), (40.0, 50.0, 100.0));
    }

    #[test]
    fn frames_that_were_not_metered_and_flows_without_room_make_a_run_void() {
        let report = |packets, overflow, records| json!({"flows": {"packets": packets, "overflow": overflow, "records": records}});
        assert_eq!(metered(&report(10, 0, 4), 10, 4).unwrap(), 4);
        for (report, why) in [
            (report(9, 0, 4), "9 of 10 captured"),
            (report(10, 1, 4), "was full"),
            (report(10, 0, 3), "3 records of 4 flows"),
        ] {
            let error = metered(&report, 10, 4).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
