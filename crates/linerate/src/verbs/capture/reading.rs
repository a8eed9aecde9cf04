//! Which options work with `-r`. The command line itself (`conflicts_with`) refuses options that are only
//! about interfaces and that tcpdump does not have.

use linerate_capture::filter::FilterLocation;
use linerate_pcapfile::Format;
use linerate_ring::packet::DirectionFilter;

use super::arguments::{Arguments, TimestampType};
use super::values::Limit;

/// Why these arguments do not work for a file.
pub(super) fn refusal(arguments: &Arguments) -> Option<String> {
    if arguments.filter_in == Some(FilterLocation::Kernel) {
        return Some("--filter-in kernel: a file (-r) has no kernel side; leave it out".into());
    }
    let served = [("--metrics", arguments.metrics.metrics), ("--web", arguments.web.web)];
    if let Some((option, _)) = served.iter().find(|(_, address)| address.is_some()) {
        return Some(format!(
            "{option} serves the counts of a capture from an interface; with a file (-r), --stats prints them"
        ));
    }
    let duration = arguments.limit(|limit| match limit {
        Limit::Duration(duration) => Some(*duration),
        _ => None,
    });
    duration.map(|_| {
        "-a duration: ends a capture from an interface; a file (-r) ends by itself, or after -c"
            .into()
    })
}

/// Why these arguments do not work for this file.
pub(super) fn refusal_of(arguments: &Arguments, format: Format) -> Option<String> {
    let wanted = matches!(arguments.direction, Some(DirectionFilter::In | DirectionFilter::Out));
    (wanted && format != Format::Pcapng).then(|| {
        "-Q needs the direction of each packet, and a pcap file does not have it; pcapng files of \
         packet sockets do"
            .into()
    })
}

/// Options that have no effect with `-r`, but that tcpdump accepts there: scripts rely on that.
pub(super) fn without_effect(arguments: &Arguments) -> Vec<&'static str> {
    let given = [
        (arguments.buffer_size.is_some(), "-B"),
        (arguments.no_promiscuous_mode, "-p"),
        (arguments.immediate_mode, "--immediate-mode"),
        (arguments.time_stamp_type != TimestampType::Host, "-j"),
    ];
    given.into_iter().filter(|(given, _)| *given).map(|(_, option)| option).collect()
}
