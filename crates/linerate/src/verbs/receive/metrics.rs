//! The metrics of a receiver.

use std::fmt;

use linerate_service::{Page, Unit};

use super::worker::Progress;

/// Writes them.
pub(super) fn encode(progress: &Progress, page: &mut Page<'_, '_>) -> fmt::Result {
    let Progress { backend, messages, bytes, calls, losses, feed } = progress;
    let info = [([backend.as_str()], 1.0)];
    page.gauges("linerate_receive_info", "1 for the backend", None, ["backend"], info)?;
    page.counter("linerate_receive_messages", "Messages received", None, *messages)?;
    page.counter("linerate_receive", "Bytes of their payloads", Some(&Unit::Bytes), *bytes)?;
    page.counter("linerate_receive_system_calls", "System calls of the receiver", None, *calls)?;
    let help = "Messages truncated because they were longer than --message-size";
    page.counter("linerate_receive_truncated_messages", help, None, losses.truncated)?;
    page.counters(
        "linerate_receive_dropped_messages",
        "Messages lost, by cause",
        None,
        ["cause"],
        losses.named().map(|(cause, count)| ([cause], count)),
    )?;
    let Some(feed) = feed else { return Ok(()) };
    let help = "Messages of the feed, without duplicates";
    page.counter("linerate_receive_feed_messages", help, None, feed.messages)?;
    page.counter("linerate_receive_feed_gaps", "Gaps in the feed", None, feed.gaps)?;
    // It falls when a line that is behind brings them.
    let help = "Messages of the feed that are missing now";
    page.gauge("linerate_receive_feed_missing_messages", help, None, feed.missing as f64)
}
