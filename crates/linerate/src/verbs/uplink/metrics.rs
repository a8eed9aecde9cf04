//! The metrics of an uplink.

use std::fmt;

use linerate_service::{MetricEncoder, Unit};
use linerate_uplink::Report;

/// Writes them.
pub(super) fn encode(report: &Report, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let Report { config, statistics, .. } = report;
    let (tx, rx) = (&statistics.tx, &statistics.rx);
    encoder.gauges(
        "linerate_uplink_info",
        "1 for the device, its interface and the backend",
        None,
        ["device", "interface", "backend"],
        [([config.device.as_str(), &config.interface, &config.backend], 1.0)],
    )?;
    let help = "Bytes of frames given to the interface (tx) and received from it (rx)";
    let bytes = [(["tx"], tx.bytes), (["rx"], rx.bytes)];
    encoder.counters("linerate_uplink", help, Some(&Unit::Bytes), ["direction"], bytes)?;
    let help = "Super-packets that were split (tx) or made (rx)";
    let packets = [(["tx"], tx.super_packets), (["rx"], rx.super_packets)];
    encoder.counters("linerate_uplink_super_packets", help, None, ["direction"], packets)?;
    let help = "Segments that super-packets were split into (tx) or made of (rx)";
    let packets = [(["tx"], tx.segments), (["rx"], rx.joined)];
    encoder.counters("linerate_uplink_segments", help, None, ["direction"], packets)?;
    let help = "Super-packets that the kernel had to split";
    encoder.counter("linerate_uplink_kernel_split_packets", help, None, tx.by_kernel)?;
    let help = "Packets passed on unchanged";
    let packets = [(["tx"], tx.packets), (["rx"], rx.packets)];
    encoder.counters("linerate_uplink_other_packets", help, None, ["direction"], packets)?;
    encoder.counters(
        "linerate_uplink_dropped_packets",
        "Packets lost, by cause",
        None,
        ["cause"],
        statistics.dropped.named().map(|(cause, count)| ([cause], count)),
    )?;
    encoder.counters(
        "linerate_uplink_unsplit_packets",
        "Super-packets that could not be split, by reason",
        None,
        ["reason"],
        statistics.unsplit.iter().map(|(reason, count)| ([reason], count)),
    )
}
