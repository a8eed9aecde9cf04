//! Names of rotated files, by tcpdump's rules.

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
    /// How many files (`-W`).
    pub count: Option<u32>,
}

impl Rotation {
    /// Whether there is ever a second file.
    pub fn rotates(&self) -> bool {
        self.size.is_some() || self.seconds.is_some()
    }
}

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
        let base = if self.rotation.seconds.is_some() {
            formatted(&self.base, self.period)
        } else {
            self.base.clone()
        };
        let digits = self.rotation.size.and(self.rotation.count).map_or(0, digits);
        if self.number == 0 && digits == 0 {
            return base;
        }
        let mut name = base.into_os_string();
        name.push(format!("{:0digits$}", self.number));
        name.into()
    }

    /// Goes on to the next file because the current one is full.
    pub(super) fn next_by_size(&mut self) {
        self.number += 1;
        if self.rotation.seconds.is_none() && self.rotation.count == Some(self.number) {
            self.number = 0;
        }
    }

    /// Goes on to the period that `now` falls into. False if the count of files is reached, and the
    /// capture is to end.
    pub(super) fn next_by_time(&mut self, now: Timestamp) -> bool {
        if self.rotation.size.is_none() && self.rotation.count == Some(self.periods) {
            return false;
        }
        self.periods += 1;
        let before = formatted(&self.base, self.period);
        if let Some(length) = self.period_length() {
            self.period.0 += now.0.saturating_sub(self.period.0) / length * length;
        }
        // Without the time in the name, or with less detail, a file would be overwritten.
        let same = formatted(&self.base, self.period) == before;
        self.number = if same { self.number + 1 } else { 0 };
        true
    }

    /// When the current period ends.
    pub(super) fn period_end(&self) -> Option<Timestamp> {
        Some(Timestamp(self.period.0.saturating_add(self.period_length()?)))
    }

    fn period_length(&self) -> Option<u64> {
        self.rotation.seconds.map(|seconds| seconds.max(1).saturating_mul(1_000_000_000))
    }
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
    jiff::fmt::strtime::format(base.to_str()?, &zoned).ok().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_size(count: Option<u32>, files: usize) -> Vec<String> {
        let rotation = Rotation { size: Some(1), seconds: None, count };
        let mut names = FileNames::new(Path::new("f"), rotation, Timestamp(0));
        let mut next = || {
            let name = names.current().display().to_string();
            names.next_by_size();
            name
        };
        (0..files).map(|_| next()).collect()
    }

    #[test]
    fn size_alone_numbers_from_the_second_file() {
        assert_eq!(by_size(None, 3), ["f", "f1", "f2"]);
    }

    #[test]
    fn a_count_pads_and_goes_around() {
        assert_eq!(by_size(Some(3), 5), ["f0", "f1", "f2", "f0", "f1"]);
        assert_eq!(by_size(Some(11), 2), ["f00", "f01"]);
        // tcpdump has no digit to spare for a ring of one.
        assert_eq!(by_size(Some(1), 2), ["f", "f"]);
    }

    #[test]
    fn seconds_format_the_start_of_the_period_and_skip_empty_ones() {
        let second = 1_000_000_000;
        let rotation = Rotation { seconds: Some(10), ..Rotation::default() };
        let mut names = FileNames::new(Path::new("f-%s"), rotation, Timestamp(100 * second));
        assert_eq!(names.current(), Path::new("f-100"));
        assert_eq!(names.period_end(), Some(Timestamp(110 * second)));
        assert!(names.next_by_time(Timestamp(137 * second)));
        assert_eq!(names.current(), Path::new("f-130"));
    }

    #[test]
    fn periods_of_one_name_are_numbered() {
        let second = 1_000_000_000;
        let rotation = Rotation { seconds: Some(1), ..Rotation::default() };
        let mut names = FileNames::new(Path::new("f"), rotation, Timestamp(0));
        assert_eq!(names.current(), Path::new("f"));
        assert!(names.next_by_time(Timestamp(second)));
        assert_eq!(names.current(), Path::new("f1"));
        assert!(names.next_by_time(Timestamp(5 * second)));
        assert_eq!(names.current(), Path::new("f2"));
        // Two periods fall into one minute, the third does not.
        let rotation = Rotation { seconds: Some(20), ..Rotation::default() };
        let mut names = FileNames::new(Path::new("f%M-"), rotation, Timestamp(20 * second));
        assert_eq!(names.current(), Path::new("f00-"));
        assert!(names.next_by_time(Timestamp(40 * second)));
        assert_eq!(names.current(), Path::new("f00-1"));
        assert!(names.next_by_time(Timestamp(60 * second)));
        assert_eq!(names.current(), Path::new("f01-"));
    }

    #[test]
    fn a_name_that_cannot_be_filled_in_is_told_apart() {
        assert!(is_format(Path::new("f-%H%M%S.pcap")) && is_format(Path::new("plain")));
        assert!(is_format(Path::new("100%%.pcap")));
        assert!(!is_format(Path::new("f-%!.pcap")) && !is_format(Path::new("100%")));
    }

    #[test]
    fn seconds_and_a_count_end_the_capture() {
        let rotation = Rotation { seconds: Some(1), count: Some(2), size: None };
        let mut names = FileNames::new(Path::new("f%s"), rotation, Timestamp(0));
        assert!(names.next_by_time(Timestamp(1_000_000_000)));
        assert!(!names.next_by_time(Timestamp(2_000_000_000)));
    }

    #[test]
    fn seconds_and_size_number_within_the_period() {
        let rotation = Rotation { seconds: Some(1), size: Some(1), count: None };
        let mut names = FileNames::new(Path::new("f%s-"), rotation, Timestamp(0));
        names.next_by_size();
        assert_eq!(names.current(), Path::new("f0-1"));
        assert!(names.next_by_time(Timestamp(1_000_000_000)));
        assert_eq!(names.current(), Path::new("f1-"));
    }
}
