//! The later files of a capture: in the same folder, with the names that a capture gives its files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use linerate_pcapfile::Reader;

use super::beginning::Beginning;

/// What strftime(3) writes in letters: weekdays, months, halves of the day.
const TIME_WORDS: &[&str] = &[
    "Mon",
    "Tue",
    "Wed",
    "Thu",
    "Fri",
    "Sat",
    "Sun",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
    "January",
    "February",
    "March",
    "April",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
    "AM",
    "PM",
    "am",
    "pm",
];

/// From the first to the last packet of a record, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Period {
    pub(super) start: i64,
    pub(super) last: i64,
}

/// Captures by folder and name.
#[derive(Default)]
pub(super) struct Captures {
    /// The names in each folder, by what those of a capture have in common.
    folders: HashMap<PathBuf, HashMap<String, Vec<PathBuf>>>,
    /// The files of a capture in the order of their first packets.
    ordered: HashMap<(PathBuf, String), Vec<CaptureFile>>,
}

/// A file that a capture can have written.
struct CaptureFile {
    /// The time of its first packet.
    time: i64,
    path: PathBuf,
    interfaces: Vec<String>,
}

impl Captures {
    /// The files that may have packets of this period, if a record points at this file and goes on in later ones.
    pub(super) fn later(&mut self, path: &Path, period: Period) -> Result<Vec<PathBuf>> {
        let files = self.files(path)?;
        let own = files.iter().find(|file| file.path == path);
        let interfaces = own.map(|own| own.interfaces.clone()).unwrap_or_default();
        let first = match own.filter(|own| own.time <= period.start) {
            // A file may begin a little before its predecessor's last packets.
            Some(own) => files.partition_point(|file| file.time < own.time),
            // The first file is gone. The one before the record's start may have packets after it.
            None => files.partition_point(|file| file.time <= period.start).saturating_sub(1),
        };
        let same = |file: &&CaptureFile| {
            interfaces.is_empty()
                || file.interfaces.is_empty()
                || file.interfaces.iter().any(|name| interfaces.contains(name))
        };
        let later = files[first..].iter().take_while(|file| file.time <= period.last);
        Ok(later
            .filter(|file| file.path != path)
            .filter(same)
            .map(|file| file.path.clone())
            .collect())
    }

    fn files(&mut self, path: &Path) -> Result<&[CaptureFile]> {
        let (folder, pattern) = capture_of(path);
        if !self.folders.contains_key(&folder) {
            let mut names: HashMap<String, Vec<PathBuf>> = HashMap::new();
            if folder.is_dir() {
                let cannot_read = || format!("cannot read the folder {}", folder.display());
                for entry in folder.read_dir().with_context(cannot_read)? {
                    let found = entry.with_context(cannot_read)?.path();
                    names.entry(self::pattern(&found)).or_default().push(found);
                }
            }
            self.folders.insert(folder.clone(), names);
        }
        let names = self.folders[&folder].get(&pattern);
        Ok(self.ordered.entry((folder, pattern)).or_insert_with(|| {
            let mut files: Vec<CaptureFile> =
                names.into_iter().flatten().filter_map(|path| CaptureFile::of(path)).collect();
            files.sort_by(|a, b| (a.time, &a.path).cmp(&(b.time, &b.path)));
            files
        }))
    }
}

impl CaptureFile {
    /// `None` for other files, the results of searches, and files without packets.
    fn of(path: &Path) -> Option<Self> {
        if !path.is_file() {
            return None;
        }
        let path = path.to_owned();
        if let Ok(Some(Beginning { time, of_capture, interfaces, .. })) = Beginning::of(&path) {
            return time.filter(|_| of_capture).map(|time| Self { time, path, interfaces });
        }
        let mut reader = Reader::open(&path).ok()?;
        let time = i64::try_from(reader.next().ok()??.frame.timestamp?.0).ok()?;
        Some(Self { time, path, interfaces: Vec::new() })
    }
}

/// What the files of a capture have in common: the folder, and the pattern of their names.
pub(super) fn capture_of(path: &Path) -> (PathBuf, String) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    (folder.unwrap_or(Path::new(".")).to_owned(), pattern(path))
}

/// What the names of one capture's files have in common: they differ in a number at the end (`-C`) and in the parts of
/// a time (`-G`, `-b`), which have at least two digits. So `eth0.pcap` and `eth1.pcap` are of two captures.
fn pattern(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut rest = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let mut pattern = String::new();
    while let Some(first) = rest.chars().next() {
        let kind = |c: char| (c.is_ascii_digit(), c.is_ascii_alphabetic());
        let length = match kind(first) {
            (false, false) => first.len_utf8(),
            same => rest.find(|c: char| kind(c) != same).unwrap_or(rest.len()),
        };
        let (run, behind) = rest.split_at(length);
        rest = behind;
        match first.is_ascii_digit() && length > 1 || TIME_WORDS.contains(&run) {
            true => pattern.push('%'),
            false => pattern.push_str(run),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_capture_have_one_pattern() {
        for names in [
            &["r.pcapng", "r.pcapng1", "r.pcapng12"][..],
            &["r.pcap00", "r.pcap09", "r.pcap10"],
            &["f-235959.pcap", "f-000000.pcap", "f-000000.pcap1"],
            &["Mon-Jan.pcap", "Tue-February.pcap"],
            &["f_00001_20260131235959.pcapng.zst", "f_00002_20260201000000.pcapng.zst"],
        ] {
            let patterns: Vec<_> = names.iter().map(|name| pattern(Path::new(name))).collect();
            assert!(patterns.iter().all(|one| *one == patterns[0]), "{patterns:?}");
        }
        for (a, b) in [("eth0.pcap", "eth1.pcap"), ("a.pcap", "b.pcap1"), ("a.pcap", "a.pcapng")] {
            assert_ne!(pattern(Path::new(a)), pattern(Path::new(b)));
        }
    }
}
