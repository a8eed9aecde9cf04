//! The metrics of a capture.

use std::fmt;

use linerate_capture::engine::{InterfaceReport, Report};
use linerate_capture::statistics::{DropCause, Drops, QueueCounts};
use linerate_flow::export::ExportStatistics;
use linerate_service::{MetricEncoder, Unit, metrics};

use super::stats::CaptureStats;

/// Writes them.
pub(super) fn encode(stats: &CaptureStats, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let report = &stats.report;
    let each = |of: fn(&InterfaceReport) -> u64| {
        report.interfaces.iter().map(move |one| ([one.name.as_str()], of(one)))
    };
    let sources = report.interfaces.iter();
    let sources = sources.map(|one| ([&one.name, &one.source, &one.pages, &one.reason], 1.0));
    metrics! { encoder;
        gauges "linerate_capture_source_info" "1 for the source of an interface, with the reason for it"
            ["interface", "source", "pages", "reason"] = sources;
        counters "linerate_capture_received_packets" "Packets that the filter accepted, lost ones included"
            ["interface"] = each(|one| one.received);
        counters "linerate_capture_captured_packets" "Packets that reached the sink"
            ["interface"] = each(|one| one.captured);
        counters "linerate_capture_captured" "Bytes on the wire of the captured packets"
            ["interface"] in (Unit::Bytes) = each(|one| one.bytes);
    }
    ledger(report, encoder)?;
    let fill = report.interfaces.iter().map(|one| ([one.name.as_str()], one.fill.into()));
    metrics! { encoder;
        gauges "linerate_capture_ring_fill" "How full the buffer between kernel and reader is"
            ["interface"] in (ratio()) = fill;
    }
    queues(report, encoder)?;
    if let Some(processes) = &report.processes {
        metrics! { encoder;
            counter "linerate_capture_lost_socket_events" "Events of sockets that came too fast" = processes.lost_events;
            counter "linerate_capture_limited_flow_packets"
                "Packets of flows that were not reported, because too many began in a second" = processes.limited_flows;
        }
    }
    flows(report, encoder)?;
    files(report, encoder)
}

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
    let unwritten = causes(&report.dropped, true).filter(|(cause, _)| of_file.contains(cause));
    metrics! { encoder;
        counters "linerate_capture_dropped_packets" "Packets lost, by cause" ["interface", "cause"] = by_cause(true);
        counters "linerate_capture_events" "Events that are not losses of this capture"
            ["interface", "event"] = by_cause(false);
        counters "linerate_capture_unwritten_packets" "Captured packets that the files did not take, by cause"
            ["cause"] = unwritten.map(|(cause, count)| ([cause], count));
    }
    Ok(())
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
    let received = queues(|queue| vec![("", queue.received)]);
    let lost = queues(|queue| causes(&queue.drops, true).filter(|(_, count)| *count > 0).collect());
    metrics! { encoder;
        counters "linerate_capture_queue_received_packets"
            "Packets of a receive queue that the filter in the kernel accepted, lost ones included"
            ["interface", "queue"] = received.map(|(interface, queue, _, count)| ([interface, queue], count));
        counters "linerate_capture_queue_dropped_packets"
            "Packets of a receive queue lost between the driver and the reader, by cause"
            ["interface", "queue", "cause"]
            = lost.map(|(interface, queue, cause, count)| ([interface, queue, cause.to_owned()], count));
    }
    Ok(())
}

fn flows(report: &Report, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let Some(ExportStatistics { meter, output }) = &report.flows else { return Ok(()) };
    let causes = [
        ("not_ip", meter.not_ip),
        ("malformed", meter.malformed),
        ("link_type", meter.link_type),
        ("time_range", meter.time_range),
    ];
    metrics! { encoder;
        gauge "linerate_capture_flows_active" "Flows in the table" = meter.active as f64;
        counter "linerate_capture_flows_exported" "Flow records that meters gave" = meter.exported;
        counter "linerate_capture_flows_overflow" "Flow records that were given early, because the table was full"
            = meter.overflow;
        counter "linerate_capture_flow_packets" "Packets of flows" = meter.packets;
        counters "linerate_capture_unmetered_packets" "Packets of no flow, by cause"
            ["cause"] = causes.map(|(cause, count)| ([cause], count));
        counter "linerate_capture_flow_records_written" "Flow records in complete files" = output.files.records;
        counter "linerate_capture_flow_records_unwritten" "Flow records that could not be written to files"
            = output.not_written;
        counter "linerate_capture_deleted_flow_files"
            "Files of flow records deleted by --flows-keep or --flows-keep-free" = output.files.deleted;
    }
    if output.collectors.is_empty() {
        return Ok(());
    }
    let by_outcome = output.collectors.iter().flat_map(|(collector, one)| {
        [("sent", one.flows), ("not_sent", one.not_sent_flows)]
            .map(|(outcome, count)| ([collector.to_string(), outcome.to_owned()], count))
    });
    let refused =
        output.collectors.iter().map(|(collector, one)| ([collector.to_string()], one.refused));
    metrics! { encoder;
        counters "linerate_capture_flow_records_exported" "Flow records for collectors, by outcome"
            ["collector", "outcome"] = by_outcome;
        counters "linerate_capture_flow_messages_refused"
            "IPFIX messages that the collector's host refused, at least" ["collector"] = refused;
    }
    Ok(())
}

fn files(report: &Report, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let Some(fill) = report.writer_fill else { return Ok(()) };
    metrics! { encoder;
        counter "linerate_capture_written_packets" "Packets in files" = report.written;
        counter "linerate_capture_written" "Bytes in files" in (Unit::Bytes) = report.file_bytes;
        counter "linerate_capture_files" "Files started" = report.files;
        counter "linerate_capture_deleted_files" "Files deleted by -b files:, --keep or --keep-free"
            = report.deleted_files;
        gauge "linerate_capture_writer_fill" "Share of the writer's buffers that wait for the file"
            in (ratio()) = fill.into();
    }
    Ok(())
}
