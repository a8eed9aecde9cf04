//! Which options make sense with `-r`. Those that are only about interfaces and have no counterpart in
//! tcpdump are refused by the command line itself (`conflicts_with`).

use linerate_capture::Format;
use linerate_capture::filter::Side;
use linerate_capture::read::Reader;
use linerate_ring::packet::Traffic;

use super::arguments::{Arguments, StampType};
use super::values::Limit;

/// What a file cannot do.
pub(super) fn refusal(arguments: &Arguments) -> Option<String> {
    if arguments.filter_in == Some(Side::Kernel) {
        return Some("--filter-in kernel: a file (-r) has no kernel side; leave it out".into());
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

/// What this file cannot do.
pub(super) fn refusal_of(arguments: &Arguments, reader: &Reader) -> Option<String> {
    let wanted = matches!(arguments.direction, Some(Traffic::In | Traffic::Out));
    (wanted && reader.format() != Format::Pcapng).then(|| {
        "-Q needs the direction of each packet, and a pcap file does not have it; pcapng files of \
         packet sockets do"
            .into()
    })
}

/// Options that tcpdump, too, takes with `-r` and has no use for: scripts rely on that.
pub(super) fn idle(arguments: &Arguments) -> Vec<&'static str> {
    let given = [
        (arguments.buffer_size.is_some(), "-B"),
        (arguments.no_promiscuous_mode, "-p"),
        (arguments.immediate_mode, "--immediate-mode"),
        (arguments.time_stamp_type != StampType::Host, "-j"),
    ];
    given.into_iter().filter(|(given, _)| *given).map(|(_, option)| option).collect()
}
