//! `linerate capture`: packets from interfaces or files into files or lines.

mod arguments;
mod check;
mod config;
mod decoder;
mod flows;
pub(crate) mod foreign;
mod list;
mod live;
mod metrics;
mod output;
mod select;
mod stats;
pub(super) mod values;

use std::ffi::OsString;
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use linerate_capture::clock;
use linerate_capture::engine::{
    self, Engine, EngineOptions, FileInput, FileProgress, InputFile, ProcessOptions, Sample,
};
use linerate_capture::filter::{CookedHeader, FilterCache, TagReading, cooked_header};
use linerate_capture::link_type;
use linerate_capture::privilege;
use linerate_capture::sink::file::FileSink;
use linerate_capture::source::{OpenInterface, SourceKind, SourceOptions};
use linerate_flow::meter;
use linerate_net::namespace::Namespace;
use linerate_pcapfile::{BlockReader, Error as FileError, refuse_terminal};
use linerate_process::Attribution;
use linerate_ring::TimestampSource;
use linerate_service::{Manager, answer_unavailable};

pub(crate) use arguments::Arguments;
pub(super) use arguments::FileFormat;
pub(crate) use check::check;
pub(crate) use config::words as config_words;
pub(crate) use live::remedy;
pub(super) use output::{compression, extension, uncompressed};
use stats::CaptureStats;
use values::Limit;

use crate::cli::metrics::Publisher;
use crate::cli::signals::Signals;
use crate::cli::{as_usage_error, stdio};

/// The default snapshot length in bytes, as in tcpdump.
const DEFAULT_SNAPLEN: u32 = 262_144;

/// The least bytes of buffer for each of many interfaces, as long as all together stay below
/// [`MAX_TOTAL_BUFFER`].
const MIN_BUFFER: u64 = 4 << 20;

/// The most bytes of buffer for all interfaces together, if each gets the least.
const MAX_TOTAL_BUFFER: u64 = 256 << 20;

/// Runs the verb.
pub(crate) fn run(mut arguments: Arguments, verbose: u8) -> Result<ExitCode> {
    arguments.verbose = verbose;
    let arguments = &arguments;
    let names = check(arguments).map_err(as_usage_error)?;
    // Before this thread enters another namespace, where nobody would ask.
    let listeners = arguments.web.listen(arguments.metrics)?;
    if let [netns] = arguments.netns.as_slice() {
        // Every thread that starts from now on is in it, too.
        Namespace::find(netns)?.enter()?;
    }
    if arguments.list_interfaces || arguments.list_data_link_types {
        let listed = match arguments.list_interfaces {
            true => list::run(arguments.json),
            false => list::link_types(&names.concat(), arguments.json),
        };
        return match arguments.netns.first() {
            Some(netns) => listed.with_context(|| in_namespace(netns)),
            None => listed,
        };
    }
    arguments.write.as_deref().map_or(Ok(()), refuse_terminal)?;
    output::check(arguments)?;
    if let Some(user) = &arguments.relinquish_privileges {
        privilege::check_user(user)?;
    }
    let filter = filter_text(arguments)?;
    if arguments.read.is_some() {
        return from_file(arguments, filter);
    }
    from_interfaces(arguments, &names, filter, listeners)
}

/// `--check`: opens nothing, and prints the command line.
pub(crate) fn check_only(arguments: &Arguments, words: &[OsString]) -> Result<ExitCode> {
    let checked = || -> Result<()> {
        check(arguments)?;
        output::check(arguments)?;
        engine::check_cpus(&arguments.cpu.clone().unwrap_or_default().0)?;
        if let Some(user) = &arguments.relinquish_privileges {
            privilege::check_user(user)?;
        }
        let filter = filter_text(arguments)?;
        let stop = Signals::register()?.stop();
        let mut filters =
            FilterCache::new(filter.as_deref(), TagReading::Live, snaplen(arguments), stop);
        Ok(filters.check_for_sockets()?)
    };
    checked().map_err(as_usage_error)?;
    stdio::println_whole(config::command_line(words))?;
    Ok(ExitCode::SUCCESS)
}

/// The text of the filter, if there is one.
fn filter_text(arguments: &Arguments) -> Result<Option<String>> {
    Ok(match &arguments.filter_file {
        Some(path) => Some(
            std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the filter in {}", path.display()))?,
        ),
        None => Some(arguments.expression.join(" ")).filter(|text| !text.trim().is_empty()),
    })
}

fn from_interfaces(
    arguments: &Arguments,
    names: &[Vec<String>],
    filter: Option<String>,
    listeners: [Option<TcpListener>; 2],
) -> Result<ExitCode> {
    let signals = Signals::register_with(arguments.rotation_signal())?;
    let mut options = source_options(arguments, filter);
    let any = check::takes_any(arguments, names);
    // Several link types are only for pcapng.
    let one_type = output::is_pcap(arguments).then_some(CookedHeader::V2);
    let chosen = arguments.linktype.and_then(cooked_header).or(one_type);
    options.cooked = chosen.filter(|_| any && !arguments.split);
    if any {
        options.source = Some(SourceKind::Packet);
        // `any` shows the host's own traffic, on possibly many interfaces.
        options.promiscuous = false;
    }
    let cpus = arguments.cpu.clone().unwrap_or_default().0;
    engine::check_cpus(&cpus)?;
    // Flow records and files of readers have the interfaces that are there at the start.
    let fixed = arguments.per_thread_files || !arguments.flows.is_empty();
    let takes_later = any && !fixed && arguments.netns.len() <= 1;
    let by_no_name = options.source == Some(SourceKind::Drops) || options.cooked.is_some();
    let at_once = takes_later || by_no_name;
    if arguments.wait && !wait(arguments, names, at_once, &signals, &listeners)? {
        return Ok(ExitCode::SUCCESS);
    }
    let (attached, mut opened) = beating(arguments.wait, || {
        // Before the first packet.
        let attached = arguments.finds_processes().then(Attribution::attach).transpose()?;
        let at_once = match takes_later {
            true => engine::open_any(&options, &signals.stop())?,
            false => None,
        };
        let opened = match at_once {
            Some(opened) => opened,
            None => open_all(arguments, names, &options, any, &signals)?,
        };
        anyhow::Ok((attached, opened))
    })?;
    check_link_types(arguments, &opened)?;
    if !arguments.flows.is_empty() {
        for one in &mut opened {
            one.warnings.extend(flows::split_flow_warning(one, &arguments.fanout));
        }
    }
    if !arguments.quiet {
        live::announce(&opened, snaplen(arguments), arguments.verbose > 0);
    }
    if arguments.final_report {
        live::warn(&opened);
    }
    if let Some(user) = arguments.relinquish_privileges.as_deref().filter(|user| *user != "root") {
        privilege::become_user(user)?;
    }
    let processes = match attached {
        Some(attached) => Some(ProcessOptions {
            attribution: Arc::new(attached.start()?),
            selection: arguments.selection(),
        }),
        None => None,
    };
    let counters = engine::counters(&opened)?;
    let (sink, decoder) = output::sink(arguments, |path| {
        // Only packet sockets see both directions.
        let both = opened.iter().any(|one| {
            one.selection.kind == SourceKind::Packet
                && options.traffic != Some(linerate_ring::packet::DirectionFilter::In)
        });
        let start = Some(clock::now());
        let file = || output::options(arguments, path, both, start, signals.stop());
        Ok(match arguments.per_thread_files {
            true => engine::start_file_sinks(&opened, &counters, file)?,
            false => vec![engine::start_file_sink(&opened, &counters, file())?],
        })
    })?;
    let sampled = arguments.sample.map_or(1.0, Sample::probability);
    let metering = flows::metering(arguments, engine::interface_names(&opened), sampled)?;
    let engine_options = EngineOptions {
        count: smaller(arguments.count, arguments.limit(packets)),
        packet_buffered: arguments.packet_buffered,
        cpus,
        outlive_interfaces: any,
        processes,
        sample: arguments.sample,
        cutoff: arguments.cutoff,
        drop_privileges: true,
        snaplen: snaplen(arguments),
        split: arguments.split,
    };
    let running = Engine::start(opened, counters, sink, metering, &engine_options)?;
    privilege::drop_all();
    signals.drop_privileges();
    let [page, metrics] = listeners;
    let publisher = Publisher::default()
        .metrics(metrics, "capture", arguments.quiet, metrics::encode)?
        .page(page, "capture", arguments.quiet, metrics::encode, CaptureStats::to_json)?;
    let outcome = live::follow(running, &signals, arguments, publisher);
    live::conclude(outcome, arguments, decoder)
}

/// How often `--wait` looks for interfaces.
const WAIT_INTERVAL: Duration = Duration::from_millis(250);

/// Waits until the interfaces of all namespaces exist; false if a signal ends that. With `at_once` no interface has to be
/// up for `any`. Who asks at `listeners` is told.
fn wait(
    arguments: &Arguments,
    names: &[Vec<String>],
    at_once: bool,
    signals: &Signals,
    listeners: &[Option<TcpListener>],
) -> Result<bool> {
    let missing = || -> Result<Option<String>> {
        for (index, names) in names.iter().enumerate() {
            let find = || list::missing(names, at_once);
            let missing = match arguments.netns.as_slice() {
                [] | [_] => find()?,
                several => Namespace::find(&several[index])?.run(find)??,
            };
            if missing.is_some() {
                return Ok(missing);
            }
        }
        Ok(None)
    };
    let (mut manager, mut said) = (Manager::find(), None);
    while let Some(missing) = missing()? {
        if signals.is_stopped() {
            return Ok(false);
        }
        if said.as_ref() != Some(&missing) {
            let text = format!("waiting for {missing}");
            // The service has started: nothing else has to wait for the interface.
            manager.ready(&text);
            stdio::eprintln(format_args!("linerate: {text}"));
            said = Some(missing.clone());
        }
        for listener in listeners.iter().flatten() {
            answer_unavailable(listener, &format!("waiting for {missing}"))?;
        }
        manager.beat();
        std::thread::sleep(WAIT_INTERVAL);
    }
    Ok(true)
}

/// Opens, with messages to the watchdog if the service is ready already: libpcap may compile for minutes.
fn beating<T>(is_ready: bool, open: impl FnOnce() -> T) -> T {
    let (done, ended) = channel::<()>();
    std::thread::scope(|scope| {
        if is_ready {
            scope.spawn(move || {
                let mut manager = Manager::find();
                while ended.recv_timeout(WAIT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    manager.beat();
                }
            });
        }
        let opened = open();
        drop(done);
        opened
    })
}

/// Opens the interfaces of all namespaces; `names` has those of each.
fn open_all(
    arguments: &Arguments,
    names: &[Vec<String>],
    options: &SourceOptions,
    any: bool,
    signals: &Signals,
) -> Result<Vec<OpenInterface>> {
    let several = match arguments.netns.as_slice() {
        [] => return open(&names[0], options, any, signals, ""),
        [netns] => {
            let opened = open(&names[0], options, any, signals, "");
            return opened.with_context(|| in_namespace(netns));
        }
        several => several,
    };
    let mut all = Vec::new();
    for (netns, names) in several.iter().zip(names) {
        let namespace = Arc::new(Namespace::find(netns)?);
        let opened = namespace
            .run(|| open(names, options, any, signals, &format!("{netns}/")))?
            .with_context(|| in_namespace(netns))?;
        all.extend(opened.into_iter().map(|one| OpenInterface {
            label: format!("{netns}/{}", one.label),
            namespace: Some(Arc::clone(&namespace)),
            ..one
        }));
    }
    Ok(all)
}

/// Refuses interfaces without the requested link type, and those of which `--sample` or `--process-info` finds no flows.
fn check_link_types(arguments: &Arguments, opened: &[OpenInterface]) -> Result<()> {
    if let Some(linktype) = arguments.linktype
        && let Some(other) = opened.iter().find(|one| one.linktype != linktype)
    {
        let (name, asked) = (&other.label, link_type::name(linktype).0);
        bail!("{name} does not have the link type {asked}; -L lists those that it has");
    }
    if (arguments.sample.is_some() || arguments.finds_processes())
        && let Some(other) = opened.iter().find(|one| !meter::supports_link_type(one.linktype))
    {
        let (name, linktype) = (&other.label, link_type::name(other.linktype).0);
        bail!("no flows can be found on {name}: its link type {linktype} is not parsed");
    }
    Ok(())
}

/// The context of an error about an interface of a namespace.
fn in_namespace(netns: &str) -> String {
    format!("in the network namespace {netns}")
}

/// Opens these interfaces of the namespace of the calling thread; with `any` those that still exist. `place` is the
/// prefix of their names in messages.
fn open(
    names: &[String],
    options: &SourceOptions,
    any: bool,
    signals: &Signals,
    place: &str,
) -> Result<Vec<OpenInterface>> {
    let drops = options.source == Some(SourceKind::Drops);
    let names = list::resolve(names, drops || options.cooked.is_some())?;
    if !any {
        return Ok(engine::open_all(&names, options, &signals.stop())?);
    }
    let mut options = options.clone();
    if options.cooked.is_none() {
        options.buffer.get_or_insert(buffer_of_each(names.len() as u64));
    }
    let (opened, gone) = engine::open_remaining(&names, &options, &signals.stop())?;
    for name in gone {
        stdio::warn(format_args!("{place}{name} is gone; the capture starts without it"));
    }
    Ok(opened)
}

fn from_file(arguments: &Arguments, filter: Option<String>) -> Result<ExitCode> {
    let path = arguments.read.as_deref().unwrap_or_else(|| "-".as_ref());
    if !arguments.quiet {
        check::without_effect(arguments).iter().for_each(|option| {
            stdio::warn(format_args!("{option} has no effect on a file"));
        });
    }
    let signals = Signals::register()?;
    let reader = match BlockReader::open_until(path, &signals.stop()) {
        // No data came: there is nothing to write or to count.
        Err(FileError::Cancelled { .. }) => return Ok(ExitCode::SUCCESS),
        reader => reader?,
    };
    check::check_format(arguments, reader.format()).map_err(as_usage_error)?;
    // Files may have longer packets than the default for interfaces.
    let snaplen = match snaplen(arguments) {
        DEFAULT_SNAPLEN => u32::MAX,
        bytes => bytes,
    };
    let tags = arguments.filter_vlan.unwrap_or(TagReading::File);
    let mut filters = FilterCache::new(filter.as_deref(), tags, snaplen, signals.stop());
    // Before a file is made, or emptied. The interfaces of a pcapng file come later.
    let big_endian = reader.is_big_endian();
    filters.check(reader.interfaces().first().map(|first| (first.linktype, big_endian)))?;
    if let Some(user) = arguments.relinquish_privileges.as_deref().filter(|user| *user != "root") {
        privilege::become_user(user)?;
    }
    let input = FileInput {
        reader,
        filters,
        snaplen,
        count: smaller(arguments.count, arguments.limit(packets)),
        traffic: arguments.direction.unwrap_or_default(),
        sample: arguments.sample,
        cutoff: arguments.cutoff,
        packet_buffered: arguments.packet_buffered,
    };
    let sampled = arguments.sample.map_or(1.0, Sample::probability);
    let metering = || flows::metering(arguments, Vec::new(), sampled);
    if let Some(path) = arguments.write.as_deref()
        && output::copies_blocks(arguments, path, input.reader.format())
    {
        let output = FileSink::start(output::copy_options(arguments, path, signals.stop()))?;
        let progress = FileProgress::new(Some(&output));
        let to = output::format(arguments, path);
        let metering = metering()?;
        let copy = || engine::copy_blocks(input, output, to, metering, &signals.stop(), &progress);
        let outcome = live::accompany(&progress, &signals, arguments, copy);
        return live::conclude(outcome, arguments, None);
    }
    let input = match input.into_reader() {
        Err(FileError::Cancelled { .. }) => return Ok(ExitCode::SUCCESS),
        input => input?,
    };
    let (sink, decoder) = output::sink(arguments, |path| {
        let FileInput { reader, filters, .. } = &input;
        let text = filters.text();
        let options = output::file_options(arguments, path, reader, text, snaplen, signals.stop());
        Ok(vec![FileSink::start(options)?])
    })?;
    let progress = FileProgress::new(sink.files().first());
    let (file, metering) = (InputFile::new(path), metering()?);
    let read = || engine::read_file(input, file, sink, metering, &signals.stop(), &progress);
    let outcome = live::accompany(&progress, &signals, arguments, read);
    live::conclude(outcome, arguments, decoder)
}

/// Bytes of buffer for each of this many interfaces.
fn buffer_of_each(interfaces: u64) -> u64 {
    let interfaces = interfaces.max(1);
    let least = MIN_BUFFER.min(MAX_TOTAL_BUFFER / interfaces);
    (linerate_ring::packet::DEFAULT_BUFFER / interfaces).max(least)
}

fn source_options(arguments: &Arguments, filter: Option<String>) -> SourceOptions {
    let flows = !arguments.flows.is_empty();
    let processes = arguments.finds_processes();
    let needs_headers =
        arguments.sample.is_some() || arguments.cutoff.is_some() || flows || processes;
    SourceOptions {
        source: arguments.source_kind(),
        traffic: arguments.direction,
        take_over: arguments.take_over,
        copy_first: false,
        cooked: None,
        linktype: arguments.linktype,
        split: arguments.split,
        delivery: arguments.xdp_delivery,
        // A super-packet must be whole to be split; its segments are cut on their way into the file.
        // The addresses and ports of a flow are looked at before the packet is cut.
        snaplen: match needs_headers {
            _ if arguments.split => DEFAULT_SNAPLEN,
            // Nothing but headers is needed.
            _ if flows && arguments.write.is_none() => SAMPLED_BYTES,
            true => snaplen(arguments).max(SAMPLED_BYTES),
            false => snaplen(arguments),
        },
        buffer: arguments.buffer_size.map(|kib| kib.saturating_mul(1024)),
        pages: arguments.pages,
        promiscuous: !arguments.no_promiscuous_mode,
        immediate: arguments.immediate_mode,
        block_timeout: None,
        busy_poll: arguments.busy_poll,
        threads: arguments.threads,
        fanout: arguments.fanout,
        fanout_group: None,
        filter,
        filter_vlan: arguments.filter_vlan.unwrap_or(TagReading::Live),
        filter_in: arguments.filter_in,
        trace_points: arguments.trace_at,
        rate_limit: arguments.rate_limit,
        timestamps: match arguments.discard && !flows && !processes {
            true => TimestampSource::None,
            false => arguments.time_stamp_type,
        },
    }
}

/// Bytes that reach the ports behind VLAN tags and the usual IPv6 extension headers.
const SAMPLED_BYTES: u32 = 256;

fn snaplen(arguments: &Arguments) -> u32 {
    match arguments.snapshot_length {
        0 => DEFAULT_SNAPLEN,
        bytes => bytes,
    }
}

fn packets(limit: &Limit) -> Option<u64> {
    match limit {
        Limit::Packets(number) => Some(*number),
        _ => None,
    }
}

fn smaller(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}
