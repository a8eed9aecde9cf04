//! The metrics of a receiver.

use std::fmt;

use linerate_service::{MetricEncoder, Unit, metrics};

use super::stats::{Counts, Progress};

/// Writes them.
pub(super) fn encode(progress: &Progress, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let Progress { backend, counts } = progress;
    let Counts { messages, bytes, calls, losses, feed, requests } = counts;
    metrics! { encoder;
        gauges "linerate_receive_info" "1 for the backend" ["backend"] = [([backend.as_str()], 1.0)];
        counter "linerate_receive_messages" "Messages received" = *messages;
        counter "linerate_receive" "Bytes of their payloads" in (Unit::Bytes) = *bytes;
        counter "linerate_receive_system_calls" "System calls of the receiver" = *calls;
    }
    // What cannot be read is not 0.
    if let Some(losses) = losses {
        metrics! { encoder;
            counter "linerate_receive_truncated_messages"
                "Messages truncated because they were longer than --message-size" = losses.truncated;
            counters "linerate_receive_dropped_messages" "Messages lost, by cause"
                ["cause"] = losses.named().map(|(cause, count)| ([cause], count));
        }
    }
    let Some(feed) = feed else { return Ok(()) };
    metrics! { encoder;
        counter "linerate_receive_feed_messages" "Messages of the feed, without duplicates" = feed.messages;
        counter "linerate_receive_feed_gaps" "Gaps in the feed" = feed.gaps;
        // It falls when a line that is behind brings them.
        gauge "linerate_receive_feed_missing_messages" "Messages of the feed that are missing now"
            = feed.missing as f64;
    }
    let Some(requests) = requests else { return Ok(()) };
    metrics! { encoder;
        counter "linerate_receive_feed_requests" "Requests for missing messages of the feed" = requests.requests;
        counter "linerate_receive_feed_retransmitted_messages"
            "Messages of the feed that answers to requests brought" = feed.retransmitted;
    }
    Ok(())
}
