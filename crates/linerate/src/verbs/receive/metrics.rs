//! The metrics of a receiver.

use std::fmt;

use linerate_service::{MetricEncoder, Unit};

use super::stats::{Counts, Progress};

/// Writes them.
pub(super) fn encode(progress: &Progress, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let Progress { backend, counts } = progress;
    let Counts { messages, bytes, calls, losses, feed, requests } = counts;
    let info = [([backend.as_str()], 1.0)];
    encoder.gauges("linerate_receive_info", "1 for the backend", None, ["backend"], info)?;
    encoder.counter("linerate_receive_messages", "Messages received", None, *messages)?;
    encoder.counter("linerate_receive", "Bytes of their payloads", Some(&Unit::Bytes), *bytes)?;
    encoder.counter(
        "linerate_receive_system_calls",
        "System calls of the receiver",
        None,
        *calls,
    )?;
    let help = "Messages truncated because they were longer than --message-size";
    encoder.counter("linerate_receive_truncated_messages", help, None, losses.truncated)?;
    encoder.counters(
        "linerate_receive_dropped_messages",
        "Messages lost, by cause",
        None,
        ["cause"],
        losses.named().map(|(cause, count)| ([cause], count)),
    )?;
    let Some(feed) = feed else { return Ok(()) };
    let help = "Messages of the feed, without duplicates";
    encoder.counter("linerate_receive_feed_messages", help, None, feed.messages)?;
    encoder.counter("linerate_receive_feed_gaps", "Gaps in the feed", None, feed.gaps)?;
    // It falls when a line that is behind brings them.
    let help = "Messages of the feed that are missing now";
    encoder.gauge("linerate_receive_feed_missing_messages", help, None, feed.missing as f64)?;
    let Some(requests) = requests else { return Ok(()) };
    let help = "Requests for missing messages of the feed";
    encoder.counter("linerate_receive_feed_requests", help, None, requests.requests)?;
    let help = "Messages of the feed that answers to requests brought";
    encoder.counter("linerate_receive_feed_retransmitted_messages", help, None, feed.retransmitted)
}
