//! Names of rotated files, by tcpdump's rules.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use linerate_ring::Timestamp;

/// When a capture continues in another file.
///
/// The names follow tcpdump(1): with a size alone `name`, `name1`, `name2`, …; with a size and a
/// count `name0` to `nameN` with leading zeros, as a ring; with seconds the name is a
/// strftime(3) format, and a count is where the capture ends; with both, the numbers start again in each
/// period and the count only pads them. Unlike tcpdump, files of several periods that would have the
/// same name are numbered, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes a file may have before the next packet opens another one (`-C`).
    pub size: Option<u64>,
    /// Seconds of packet time that go into a file (`-G`).
    pub seconds: Option<u64>,
    /// Periods begin at multiples of `seconds` (`-b interval:`).
    pub aligned: bool,
    /// dumpcap's names have the time before the number (`-b nametimenum:2`).
    pub time_first: bool,
    /// Packets that a file may have (`-b packets:`).
    pub packets: Option<u64>,
    /// [`FileSink::rotate`](super::FileSink::rotate) starts another file, too (`-b signal:`).
    pub on_request: bool,
    /// How many files (`-W`, `-b files:`).
    pub count: Option<u32>,
    /// Whose rules the names follow.
    pub naming: Naming,
    /// Files without a packet are removed.
    pub skip_empty: bool,
}

/// How rotated files are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// As tcpdump does.
    #[default]
    Tcpdump,
    /// As dumpcap does (`-b`): a number and the local time at which the file starts stand before the extension. The
    /// seconds of a file count from its first packet. With a count the oldest file is deleted.
    Dumpcap,
}

impl Rotation {
    /// Whether there is ever a second file.
    pub fn rotates(&self) -> bool {
        self.on_request || self.size.is_some() || self.seconds.is_some() || self.packets.is_some()
    }

    /// Whether the name of the first file has the time in it.
    pub(super) fn names_time(&self) -> bool {
        self.seconds.is_some() || self.naming == Naming::Dumpcap
    }
}

/// dumpcap's names have five digits.
const DUMPCAP_NUMBERS: u32 = 100_000;

/// Returns one file name after the other.
#[derive(Debug)]
pub(super) struct FileNames {
    base: PathBuf,
    rotation: Rotation,
    number: u32,
    periods: u32,
    /// Start of the current period.
    period: Timestamp,
}

impl FileNames {
    /// Names derived from `base`; `start` begins the first period.
    pub(super) fn new(base: &Path, rotation: Rotation, start: Timestamp) -> Self {
        Self { base: base.to_owned(), rotation, number: 0, periods: 1, period: start }
    }

    /// The current file's name.
    pub(super) fn current(&self) -> PathBuf {
        if self.rotation.naming == Naming::Dumpcap {
            return self.dumpcap();
        }
        let base = self.without_number();
        let digits = self.rotation.size.and(self.rotation.count).map_or(0, digits);
        if self.number == 0 && digits == 0 {
            return base;
        }
        let mut name = base.into_os_string();
        name.push(format!("{:0digits$}", self.number));
        name.into()
    }

    /// The current file's name without its number.
    fn without_number(&self) -> PathBuf {
        match self.rotation.seconds {
            Some(_) => formatted(&self.base, self.period),
            None => self.base.clone(),
        }
    }

    /// What all names of this period begin with, if a number follows.
    pub(super) fn stem(&self) -> Option<PathBuf> {
        let is_numbered = self.rotation.naming == Naming::Tcpdump && self.rotation.size.is_some();
        is_numbered.then(|| self.without_number())
    }

    /// `NAME_00001_20260131235959.EXTENSION`.
    fn dumpcap(&self) -> PathBuf {
        let name = self.base.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let dot = extension(&name);
        let number = (self.number + 1) % DUMPCAP_NUMBERS;
        let time = formatted(Path::new("%Y%m%d%H%M%S"), self.period);
        let (stem, time, end) = (&name[..dot], time.display(), &name[dot..]);
        let name = match self.rotation.time_first {
            true => format!("{stem}_{time}_{number:05}{end}"),
            false => format!("{stem}_{number:05}_{time}{end}"),
        };
        self.base.with_file_name(name)
    }

    /// Goes on to the next file because the current one is full; its first packet came at `now`.
    pub(super) fn advance_number(&mut self, now: Timestamp) {
        self.number += 1;
        if self.rotation.naming == Naming::Dumpcap {
            self.period = now;
        } else if self.rotation.seconds.is_none() && self.rotation.count == Some(self.number) {
            self.number = 0;
        }
    }

    /// As [`FileNames::advance_number`]; always true.
    pub(super) fn fill(&mut self, now: Timestamp) -> bool {
        self.advance_number(now);
        true
    }

    /// Goes on to the period that `now` falls into. False if the count of files is reached, and the
    /// capture is to end.
    pub(super) fn advance_period(&mut self, now: Timestamp) -> bool {
        if self.rotation.naming == Naming::Dumpcap {
            self.advance_number(now);
            return true;
        }
        if self.rotation.size.is_none() && self.rotation.count == Some(self.periods) {
            return false;
        }
        self.periods += 1;
        let before = formatted(&self.base, self.period);
        match self.period_length() {
            // The clock was set back.
            _ if now < self.period => self.period = now,
            Some(length) => self.period.0 += (now.0 - self.period.0) / length * length,
            None => {}
        }
        // Without the time in the name, or with less detail, a file would be overwritten.
        let same = formatted(&self.base, self.period) == before;
        self.number = if same { self.number + 1 } else { 0 };
        true
    }

    /// When the current period ends; `None` if no time is as late.
    pub(super) fn period_end(&self) -> Option<Timestamp> {
        let length = self.period_length()?;
        let start = self.period.0 - if self.rotation.aligned { self.period.0 % length } else { 0 };
        start.checked_add(length).map(Timestamp)
    }

    pub(super) fn period_length(&self) -> Option<u64> {
        self.rotation.seconds.map(|seconds| seconds.max(1).saturating_mul(1_000_000_000))
    }
}

/// Whether a capture to `base` gives files names like this one. A name that it may give, but that cannot be proven to be
/// one, is none.
pub(super) fn is_name_of(base: &Path, rotation: Rotation, name: &str) -> bool {
    let Some(base) = base.file_name().and_then(OsStr::to_str).filter(|_| rotation.rotates()) else {
        return false;
    };
    if rotation.naming == Naming::Dumpcap {
        return is_dumpcap_name(base, rotation.time_first, name);
    }
    let matches = |stem: &str| match rotation.seconds {
        Some(_) => is_formatted(base, stem),
        None => stem == base,
    };
    // The number may follow digits of the format.
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    (0..=digits).any(|digits| matches(&name[..name.len() - digits]))
}

fn is_dumpcap_name(base: &str, time_first: bool, name: &str) -> bool {
    let (stem, end) = base.split_at(extension(base));
    let middle = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(end));
    let Some((first, second)) = middle
        .and_then(|middle| middle.strip_prefix('_'))
        .and_then(|numbers| numbers.split_once('_'))
    else {
        return false;
    };
    let (number, time) = if time_first { (second, first) } else { (first, second) };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (number.len(), time.len()) == (5, 14) && is_digits(number) && is_digits(time)
}

/// Whether `name` is the format with a time filled in: what is read from it makes the same name again.
fn is_formatted(format: &str, name: &str) -> bool {
    let format = in_c_locale(format);
    let time = jiff::fmt::strtime::parse(&format, name);
    time.and_then(|time| time.to_string(&format)).is_ok_and(|again| again == name)
}

/// Where the extensions of format and compression begin.
fn extension(name: &str) -> usize {
    let stem = [".zst", ".lz4"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    stem.rfind('.').unwrap_or(stem.len())
}

/// Digits of the highest number below `count`.
fn digits(count: u32) -> usize {
    match count.saturating_sub(1) {
        0 => 0,
        highest => highest.ilog10() as usize + 1,
    }
}

/// Whether a name can be filled in. One that cannot would be the same for every period, and each file would
/// overwrite the previous one.
pub(super) fn is_format(base: &Path) -> bool {
    filled(base, Timestamp(0)).is_some()
}

/// The name with its strftime conversions filled in for local time; what is no valid format stays
/// as it is.
fn formatted(base: &Path, when: Timestamp) -> PathBuf {
    filled(base, when).unwrap_or_else(|| base.to_owned())
}

fn filled(base: &Path, when: Timestamp) -> Option<PathBuf> {
    let instant = jiff::Timestamp::from_second(when.seconds() as i64).ok()?;
    let zoned = instant.to_zoned(TimeZone::system());
    jiff::fmt::strtime::format(in_c_locale(base.to_str()?), &zoned).ok().map(PathBuf::from)
}

/// The format with what depends on the locale written out, as tcpdump has it: in the C locale, which has no other
/// names and digits for `%E` and `%O`.
fn in_c_locale(format: &str) -> String {
    let mut written = String::new();
    let mut rest = format.chars();
    while let Some(one) = rest.next() {
        let conversion = match one {
            '%' => rest.next(),
            _ => None,
        };
        let conversion = match conversion {
            Some(modifier @ ('E' | 'O')) => rest.next().or(Some(modifier)),
            other => other,
        };
        match conversion {
            Some('c') => written.push_str("%a %b %e %H:%M:%S %Y"),
            Some('r') => written.push_str("%I:%M:%S %p"),
            Some('x') => written.push_str("%m/%d/%y"),
            Some('X') => written.push_str("%H:%M:%S"),
            conversion => written.extend([Some(one), conversion].into_iter().flatten()),
        }
    }
    written
}

#[cfg(test)]
mod tests;
