//! The metrics of a capture.

use std::fmt;

use linerate_capture::engine::{InterfaceReport, Report};
use linerate_capture::statistics::{DropCause, Drops, QueueCounts};
use linerate_flow::export::ExportStatistics;
use linerate_service::{MetricEncoder, Unit};

use super::stats::CaptureStats;

/// Writes them.
pub(super) fn encode(stats: &CaptureStats, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let report = &stats.report;
    let labels = ["interface"];
    let each = |of: fn(&InterfaceReport) -> u64| {
        report.interfaces.iter().map(move |one| ([one.name.as_str()], of(one)))
    };
    encoder.gauges(
        "linerate_capture_source_info",
        "1 for the source of an interface, with the reason for it",
        None,
        ["interface", "source", "pages", "reason"],
        report
            .interfaces
            .iter()
            .map(|one| ([&one.name, &one.source, &one.pages, &one.reason], 1.0)),
    )?;
    let name = "linerate_capture_received_packets";
    let help = "Packets that the filter accepted, lost ones included";
    encoder.counters(name, help, None, labels, each(|one| one.received))?;
    let name = "linerate_capture_captured_packets";
    let help = "Packets that reached the sink";
    encoder.counters(name, help, None, labels, each(|one| one.captured))?;
    let help = "Bytes on the wire of the captured packets";
    encoder.counters("linerate_capture_captured", help, BYTES, labels, each(|one| one.bytes))?;
    ledger(report, encoder)?;
    let fill = report.interfaces.iter().map(|one| ([one.name.as_str()], one.fill.into()));
    let help = "How full the buffer between kernel and reader is";
    encoder.gauges("linerate_capture_ring_fill", help, Some(&ratio()), labels, fill)?;
    queues(report, encoder)?;
    if let Some(processes) = &report.processes {
        let help = "Events of sockets that came too fast";
        let name = "linerate_capture_lost_socket_events";
        encoder.counter(name, help, None, processes.lost_events)?;
        let help = "Packets of flows that were not reported, because too many began in a second";
        let name = "linerate_capture_limited_flow_packets";
        encoder.counter(name, help, None, processes.limited_flows)?;
    }
    flows(report, encoder)?;
    files(report, encoder)
}

const BYTES: Option<&Unit> = Some(&Unit::Bytes);

fn ratio() -> Unit {
    Unit::Other("ratio".to_owned())
}

/// The causes of an interface, or of a queue, that are losses (or not).
fn causes(drops: &Drops, losses: bool) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    let of_kind = drops.iter().filter(move |(cause, _)| cause.is_loss() == losses);
    of_kind.map(|(cause, count)| (cause.name(), count))
}

/// The drop ledger. What the files did not take is counted for all interfaces together while the capture runs.
fn ledger(report: &Report, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let of_file = [DropCause::Disk, DropCause::PipeClosed].map(DropCause::name);
    let by_cause = |losses: bool| {
        report.interfaces.iter().flat_map(move |one| {
            let causes = causes(&one.dropped, losses);
            causes
                .filter(move |(cause, _)| !of_file.contains(cause))
                .map(|(cause, count)| ([one.name.as_str(), cause], count))
        })
    };
    encoder.counters(
        "linerate_capture_dropped_packets",
        "Packets lost, by cause",
        None,
        ["interface", "cause"],
        by_cause(true),
    )?;
    encoder.counters(
        "linerate_capture_events",
        "Events that are not losses of this capture",
        None,
        ["interface", "event"],
        by_cause(false),
    )?;
    let all = &report.dropped;
    let unwritten = causes(all, true).filter(|(cause, _)| of_file.contains(cause));
    encoder.counters(
        "linerate_capture_unwritten_packets",
        "Captured packets that the files did not take, by cause",
        None,
        ["cause"],
        unwritten.map(|(cause, count)| ([cause], count)),
    )
}

fn queues(report: &Report, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let queues = |of: fn(&QueueCounts) -> Vec<(&'static str, u64)>| {
        report.interfaces.iter().flat_map(move |one| {
            one.queues.iter().flat_map(move |queue| {
                let number = queue.queue.to_string();
                of(queue)
                    .into_iter()
                    .map(move |(cause, count)| (one.name.clone(), number.clone(), cause, count))
            })
        })
    };
    encoder.counters(
        "linerate_capture_queue_received_packets",
        "Packets of a receive queue that the filter in the kernel accepted, lost ones included",
        None,
        ["interface", "queue"],
        queues(|queue| vec![("", queue.received)])
            .map(|(interface, queue, _, count)| ([interface, queue], count)),
    )?;
    encoder.counters(
        "linerate_capture_queue_dropped_packets",
        "Packets of a receive queue lost between the driver and the reader, by cause",
        None,
        ["interface", "queue", "cause"],
        queues(|queue| causes(&queue.drops, true).filter(|(_, count)| *count > 0).collect())
            .map(|(interface, queue, cause, count)| ([interface, queue, cause.to_owned()], count)),
    )
}

fn flows(report: &Report, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let Some(ExportStatistics { meter, output }) = &report.flows else { return Ok(()) };
    let help = "Flows in the table";
    encoder.gauge("linerate_capture_flows_active", help, None, meter.active as f64)?;
    let help = "Flow records that meters gave";
    encoder.counter("linerate_capture_flows_exported", help, None, meter.exported)?;
    let help = "Flow records that were given early, because the table was full";
    encoder.counter("linerate_capture_flows_overflow", help, None, meter.overflow)?;
    let help = "Packets of flows";
    encoder.counter("linerate_capture_flow_packets", help, None, meter.packets)?;
    let help = "Packets of no flow, by cause";
    let causes = [
        ("not_ip", meter.not_ip),
        ("malformed", meter.malformed),
        ("link_type", meter.link_type),
        ("time_range", meter.time_range),
    ];
    let causes = causes.map(|(cause, count)| ([cause], count));
    encoder.counters("linerate_capture_unmetered_packets", help, None, ["cause"], causes)?;
    let help = "Flow records in complete files";
    encoder.counter("linerate_capture_flow_records_written", help, None, output.files.records)?;
    let help = "Flow records that could not be written to files";
    encoder.counter("linerate_capture_flow_records_unwritten", help, None, output.not_written)?;
    let help = "Files of flow records deleted by --flows-keep or --flows-keep-free";
    encoder.counter("linerate_capture_deleted_flow_files", help, None, output.files.deleted)?;
    if output.collectors.is_empty() {
        return Ok(());
    }
    let by_outcome = output.collectors.iter().flat_map(|(collector, one)| {
        [("sent", one.flows), ("not_sent", one.not_sent_flows)]
            .map(|(outcome, count)| ([collector.to_string(), outcome.to_owned()], count))
    });
    let (name, labels) = ("linerate_capture_flow_records_exported", ["collector", "outcome"]);
    encoder.counters(name, "Flow records for collectors, by outcome", None, labels, by_outcome)?;
    let refused =
        output.collectors.iter().map(|(collector, one)| ([collector.to_string()], one.refused));
    let name = "linerate_capture_flow_messages_refused";
    let help = "IPFIX messages that the collector's host refused, at least";
    encoder.counters(name, help, None, ["collector"], refused)
}

fn files(report: &Report, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let Some(fill) = report.writer_fill else { return Ok(()) };
    let help = "Packets in files";
    encoder.counter("linerate_capture_written_packets", help, None, report.written)?;
    encoder.counter("linerate_capture_written", "Bytes in files", BYTES, report.file_bytes)?;
    encoder.counter("linerate_capture_files", "Files started", None, report.files)?;
    let help = "Files deleted by -b files:, --keep or --keep-free";
    encoder.counter("linerate_capture_deleted_files", help, None, report.deleted_files)?;
    let help = "Share of the writer's buffers that wait for the file";
    encoder.gauge("linerate_capture_writer_fill", help, Some(&ratio()), fill.into())
}
