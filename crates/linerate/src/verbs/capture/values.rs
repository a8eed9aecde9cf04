//! How the values of `linerate capture`'s options are written.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use linerate_capture::filter::{FilterLocation, TagReading};
use linerate_capture::source::SourceKind;
use linerate_forward::config;
use linerate_pcapfile::Compression;
use linerate_ring::TimestampSource;
use linerate_ring::packet::{DirectionFilter, Mode};
use linerate_ring::trace::Points;
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2};

pub(super) use crate::cli::values::{Cpus, cpus, deliveries, microseconds, pages};
use crate::cli::values::{bytes, named, parse_known};

/// `--source`, where `auto` leaves the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source(pub(super) Option<SourceKind>);

/// `-a`: when the capture ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// After this time.
    Duration(Duration),
    /// After this many packets.
    Packets(u64),
    /// When the file has this many bytes.
    FileSize(u64),
    /// After this many files.
    Files(u64),
}

/// `-b`: when a file is full, and how many are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RingLimit {
    /// Bytes of a file.
    FileSize(u64),
    /// Seconds from its first packet on.
    Duration(u64),
    /// Packets of a file.
    Packets(u64),
    /// Files.
    Files(u32),
    /// Seconds, at whose multiples files end.
    Interval(u64),
    /// Whether the time stands before the number in the names.
    TimeFirst(bool),
    /// The signal that starts another file.
    Signal(i32),
    /// Where to print the names of finished files.
    PrintName(PathBuf),
}

/// tcpdump's `-C`: millions of bytes, or a binary unit.
pub(super) fn file_size(text: &str) -> Result<u64, String> {
    let bytes = match text.parse::<u64>() {
        Ok(millions) => millions.checked_mul(1_000_000),
        Err(_) => bytes(text, 0, usize::MAX).ok().map(|bytes| bytes as u64),
    };
    match bytes {
        Some(0) => Err("a file needs room for a packet".into()),
        Some(bytes) => Ok(bytes),
        None => Err("a number, or one with k, M or G, of bytes that a file can have".into()),
    }
}

pub(super) fn limit(text: &str) -> Result<Limit, String> {
    let explain =
        || "a limit is duration:SECONDS, packets:NUMBER, filesize:KB or files:NUMBER".to_owned();
    let (kind, value) = text.split_once(':').ok_or_else(explain)?;
    match kind {
        "duration" => crate::cli::values::seconds(value).map(Limit::Duration),
        "packets" => match value.parse() {
            Ok(number @ 1..) => Ok(Limit::Packets(number)),
            _ => Err(explain()),
        },
        "files" => match value.parse() {
            Ok(number @ 1..) => Ok(Limit::Files(number)),
            _ => Err(explain()),
        },
        "filesize" => match value.parse::<u64>() {
            Ok(kilobytes @ 1..) => Ok(Limit::FileSize(kilobytes.saturating_mul(1000))),
            _ => Err(explain()),
        },
        _ => Err(explain()),
    }
}

pub(super) fn ring_limit(text: &str) -> Result<RingLimit, String> {
    let limit = text.split_once(':').and_then(|(kind, value)| {
        if kind == "printname" && !value.is_empty() {
            return Some(RingLimit::PrintName(value.into()));
        }
        if kind == "signal" {
            let signals = [("HUP", SIGHUP), ("USR1", SIGUSR1), ("USR2", SIGUSR2)];
            let found =
                signals.into_iter().find(|(name, _)| *name == value.trim_start_matches("SIG"));
            return found.map(|(_, number)| RingLimit::Signal(number));
        }
        let number = value.parse::<u64>().ok().filter(|number| *number > 0)?;
        match kind {
            "filesize" => Some(RingLimit::FileSize(number.checked_mul(1000)?)),
            "duration" => Some(RingLimit::Duration(number)),
            "interval" => Some(RingLimit::Interval(number)),
            "nametimenum" if number <= 2 => Some(RingLimit::TimeFirst(number == 2)),
            "packets" => Some(RingLimit::Packets(number)),
            "files" => Some(RingLimit::Files(number.try_into().ok()?)),
            _ => None,
        }
    });
    limit.ok_or_else(|| {
        "it is filesize:KB, duration:SECONDS, interval:SECONDS, packets:NUMBER, signal:HUP, USR1 or USR2, files:NUMBER, \
         nametimenum:1 or 2, or printname:FILE"
            .to_owned()
    })
}

/// A number of seconds, minutes, hours, days or weeks.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let seconds = text.char_indices().last().and_then(|(last, unit)| {
        let unit = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 7 * 86_400,
            _ => return None,
        };
        text[..last].parse::<u64>().ok()?.checked_mul(unit)
    });
    let explain = || "an age is a number and s, m, h, d or w, such as 7d".to_owned();
    seconds.map(Duration::from_secs).ok_or_else(explain)
}

pub(super) fn link_type(text: &str) -> Result<u16, String> {
    linerate_capture::link_type::named(text)
        .ok_or_else(|| "no link type of libpcap has this name; -L lists those of interfaces".into())
}

pub(super) fn sources() -> impl TypedValueParser<Value = Source> {
    PossibleValuesParser::new(["auto", "packet", "xdp", "tee", "trace", "drops"])
        .map(|word| Source(word.parse().ok()))
}

pub(super) fn points() -> impl TypedValueParser<Value = Points> {
    named([("entry", Points::Entry), ("exit", Points::Exit), ("both", Points::Both)])
}

pub(super) fn directions() -> impl TypedValueParser<Value = DirectionFilter> {
    use DirectionFilter::{In, InOut, Out};
    named([("in", In), ("out", Out), ("inout", InOut)])
}

pub(super) fn timestamp_sources() -> impl TypedValueParser<Value = TimestampSource> {
    use TimestampSource::{Hardware, Reader, Software};
    named([("host", Software), ("host_lowprec", Reader), ("adapter", Hardware)])
}

pub(in crate::verbs) fn compressions() -> impl TypedValueParser<Value = Compression> {
    named([("zstd", Compression::Zstd), ("lz4", Compression::Lz4), ("none", Compression::None)])
}

pub(super) fn modes() -> impl TypedValueParser<Value = Mode> {
    parse_known(["hash", "lb", "cpu", "rollover", "rnd", "qm"])
}

pub(super) fn filter_locations() -> impl TypedValueParser<Value = FilterLocation> {
    parse_known(["kernel", "user"])
}

pub(super) fn tag_readings() -> impl TypedValueParser<Value = TagReading> {
    parse_known(["live", "file"])
}

/// The snapshot length in bytes; 0 stands for the most, as in tcpdump.
pub(super) fn snapshot_length(text: &str) -> Result<u32, String> {
    bytes(text, 0, super::DEFAULT_SNAPLEN as usize).map(|bytes| bytes as u32)
}

/// A timeout of flow records, in the notation of `linerate forward`.
pub(super) fn flow_time(text: &str) -> Result<Duration, String> {
    let range = &config::ACTIVE_TIMEOUT_RANGE;
    let time = config::duration(text)?;
    range.contains(&time).then_some(time).ok_or_else(|| {
        let [least, most] = [range.start(), range.end()].map(|end| config::write_duration(*end));
        format!("a time from {least} to {most}")
    })
}

/// Bytes of the beginning of a flow.
pub(super) fn cutoff(text: &str) -> Result<u64, String> {
    bytes(text, 1, 1 << 40).map(|bytes| bytes as u64)
}

/// Readers of an interface; 0 for `auto`.
pub(super) fn readers(text: &str) -> Result<usize, String> {
    match text {
        "auto" => Ok(0),
        number => crate::cli::values::threads(number).map_err(|error| format!("auto, or {error}")),
    }
}

#[cfg(test)]
mod tests;
