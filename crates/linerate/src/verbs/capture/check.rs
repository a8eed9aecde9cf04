//! Options that contradict each other by their values, and options that a file (`-r`) does not have. The command line
//! itself (`conflicts_with`) refuses options that never go together.

use std::path::Path;

use anyhow::{Result, bail};
use linerate_capture::filter::FilterLocation;
use linerate_capture::interface::ANY;
use linerate_capture::source::SourceKind;
use linerate_flow::outputs::Destination;
use linerate_pcapfile::Format;
use linerate_ring::TimestampSource;
use linerate_ring::packet::DirectionFilter;

use super::arguments::Arguments;
use super::values::{Limit, RingLimit};
use super::{output, select};

/// The interfaces for each `--netns`, as [`select::interfaces`], if all options make sense together.
///
/// # Errors
/// What does not.
pub(crate) fn check(arguments: &Arguments) -> Result<Vec<Vec<String>>> {
    let lists = arguments.list_interfaces || arguments.list_data_link_types;
    if arguments.netns.len() > 1 && lists {
        bail!("-D and -L list one namespace: give one --netns");
    }
    if arguments.netns.len() > 1 && arguments.relinquish_privileges.is_some() {
        bail!(
            "-Z gives up what it takes to enter several namespaces: leave it out, or give one --netns"
        );
    }
    if arguments.list_interfaces {
        return Ok(Vec::new());
    }
    let names = select::interfaces(arguments)?;
    if lists {
        return Ok(names);
    }
    check_output(arguments)?;
    if arguments.finds_processes() {
        check_processes(arguments)?;
    }
    match arguments.read {
        Some(_) => check_file(arguments)?,
        None => check_source(arguments, &names)?,
    }
    Ok(names)
}

fn check_output(arguments: &Arguments) -> Result<()> {
    let is_stdout = arguments.write.as_deref() == Some(Path::new("-"));
    if is_stdout && arguments.json {
        bail!(
            "--json and -w - both write to standard output; write to a file, or leave out --json"
        );
    }
    let rotates = output::rotation(arguments).rotates();
    if arguments.rotate_count.is_some() && !rotates {
        bail!(
            "-W limits the number of files, but nothing starts a new file: give -C SIZE or -G SECONDS too"
        );
    }
    let deletes = arguments.keep.is_some() || arguments.keep_free.is_some();
    if is_stdout && (deletes || !arguments.ring_buffer.is_empty()) {
        bail!("-b, --keep and --keep-free are for files: standard output (-w -) is one stream");
    }
    if !arguments.ring_buffer.is_empty() && !rotates {
        bail!(
            "-b files: needs one of -b filesize:, duration:, interval:, packets: and signal:, which start another file"
        );
    }
    let is_signal = |limit: &&RingLimit| matches!(limit, RingLimit::Signal(_));
    if arguments.ring_buffer.iter().filter(is_signal).count() > 1 {
        bail!("-b signal: one signal starts another file, and several are given");
    }
    if arguments.autostop.iter().any(|limit| matches!(limit, Limit::Files(_))) && !rotates {
        bail!("-a files: needs -C, -G or -b, which start another file");
    }
    if arguments.skip_empty && (is_stdout || !rotates) {
        bail!("--skip-empty is for several files: it needs -C, -G or -b, and a -w that is no -");
    }
    if deletes && !rotates {
        bail!(
            "--keep and --keep-free delete the older files of a capture: they need -C, -G or -b, which start another \
             file"
        );
    }
    let keeps_records = arguments.flows_keep.is_some() || arguments.flows_keep_free.is_some();
    if keeps_records && !arguments.flows.iter().any(|one| matches!(one, Destination::Folder(_))) {
        bail!(
            "--flows-keep and --flows-keep-free delete files of records: they need --flows FOLDER"
        );
    }
    if is_stdout && arguments.per_thread_files {
        bail!("--per-thread-files writes several files; give -w a name");
    }
    Ok(())
}

/// Whether the capture is on all interfaces of a namespace (`-i any`).
pub(super) fn takes_any(arguments: &Arguments, names: &[Vec<String>]) -> bool {
    let drops = arguments.source_kind() == Some(SourceKind::Drops);
    !drops && names.iter().flatten().any(|name| name == ANY)
}

fn check_processes(arguments: &Arguments) -> Result<()> {
    if arguments.read.is_some() {
        bail!(
            "--process-info, --pid, --process, --container and --unit: a file (-r) does not say which process had a \
             socket when its packets were captured; use them for the capture"
        );
    }
    if arguments.time_stamp_type != TimestampSource::Software {
        bail!(
            "--process-info needs the kernel's time of each packet, because sockets change their processes: leave out -j"
        );
    }
    if !arguments.selection().is_empty() || arguments.discard || !arguments.flows.is_empty() {
        return Ok(());
    }
    if output::is_decoded(arguments) {
        bail!(
            "-e, -v, -A, -X, -x and -t print by tcpdump, which does not show processes: leave them out"
        );
    }
    if output::is_pcap(arguments) {
        bail!("--process-info writes comments, and a pcap file has none: use --format pcapng");
    }
    Ok(())
}

fn check_source(arguments: &Arguments, names: &[Vec<String>]) -> Result<()> {
    use SourceKind::{Drops, Packet, Trace};
    let Some(source) = arguments.source_kind() else { return Ok(()) };
    if takes_any(arguments, names) && source != Packet {
        bail!("-i any is for packet sockets (--source packet, or auto)");
    }
    if matches!(source, Trace | Drops) && output::is_decoded(arguments) {
        bail!(
            "-e, -v, -A, -X, -x and -t print by tcpdump, which does not show verdicts and reasons: leave them out with \
             --source trace and drops"
        );
    }
    Ok(())
}

fn check_file(arguments: &Arguments) -> Result<()> {
    if arguments.filter_in == Some(FilterLocation::Kernel) {
        bail!("--filter-in kernel: a file (-r) has no kernel side; leave it out");
    }
    if arguments.rotation_signal().is_some() {
        bail!(
            "-b signal: is for a capture from an interface; with a file (-r), use -b packets: or filesize:"
        );
    }
    let served = [("--metrics", arguments.metrics.metrics), ("--web", arguments.web.web)];
    if let Some((option, _)) = served.iter().find(|(_, address)| address.is_some()) {
        bail!(
            "{option} serves the counts of a capture from an interface; with a file (-r), --stats prints them"
        );
    }
    if arguments.autostop.iter().any(|limit| matches!(limit, Limit::Duration(_))) {
        bail!(
            "-a duration: ends a capture from an interface; a file (-r) ends by itself, or after -c"
        );
    }
    Ok(())
}

/// Refuses options that files of this format cannot serve.
pub(super) fn check_format(arguments: &Arguments, format: Format) -> Result<()> {
    let wanted = matches!(arguments.direction, Some(DirectionFilter::In | DirectionFilter::Out));
    if wanted && format != Format::Pcapng {
        bail!(
            "-Q needs the direction of each packet, and a pcap file does not have it; pcapng files of packet sockets do"
        );
    }
    Ok(())
}

/// Options that have no effect with `-r`, but that tcpdump accepts there: scripts rely on that.
pub(super) fn without_effect(arguments: &Arguments) -> Vec<&'static str> {
    let given = [
        (arguments.buffer_size.is_some(), "-B"),
        (arguments.no_promiscuous_mode, "-p"),
        (arguments.immediate_mode, "--immediate-mode"),
        (arguments.time_stamp_type != TimestampSource::Software, "-j"),
    ];
    given.into_iter().filter(|(given, _)| *given).map(|(_, option)| option).collect()
}
