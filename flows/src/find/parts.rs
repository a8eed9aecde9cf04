//! The parts of packet files that records point at.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::later::{Captures, Period, capture_of};
use super::located;
use super::output::place;
use crate::print::message;

/// Parts that are closer than this are read as one.
const MAX_GAP: u64 = 64 << 10;

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) first: u64,
    /// `None`: to the end of the file.
    pub(super) end: Option<u64>,
    /// The oldest record that points into it: if no packet of its time is there, the file was replaced.
    pub(super) oldest: Option<Period>,
}

/// A packet file of records, and when the first of its flows begins.
pub(super) struct Named {
    pub(super) sensor: Option<String>,
    pub(super) file: String,
    pub(super) start: i64,
}

/// The parts to read, by the sensor and the name of a file: two sensors may have files of one name.
pub(super) struct Parts<'a> {
    folder: Option<&'a Path>,
    files: HashMap<Option<String>, HashMap<String, FileParts>>,
}

/// What is to be read of a file.
#[derive(Default)]
pub(super) struct FileParts {
    pub(super) parts: Vec<Part>,
    /// The records that point at it. If there are none, it may be a file of another capture.
    pub(super) records: u64,
    /// The sensors of these records.
    pub(super) sensors: BTreeSet<String>,
    /// When those began and ended that go on in later files.
    later: Option<Period>,
}

/// The same, ready to be read.
pub(super) struct Plan {
    pub(super) files: BTreeMap<PathBuf, FileParts>,
    /// The files that are not there, and how many records point at each.
    pub(super) missing: BTreeMap<PathBuf, u64>,
    /// Why folders cannot be searched for later files.
    pub(super) damaged: Vec<String>,
    pub(super) bytes_total: u64,
}

impl FileParts {
    fn goes_on(&mut self, period: Period) {
        let Period { start, last } = self.later.unwrap_or(period);
        self.later = Some(Period { start: start.min(period.start), last: last.max(period.last) });
    }
}

impl<'a> Parts<'a> {
    pub(super) fn new(folder: Option<&'a Path>) -> Self {
        Self { folder, files: HashMap::new() }
    }

    /// Adds the location of a record's packets.
    pub(super) fn add(
        &mut self,
        (sensor, file): (Option<&str>, &str),
        first: u64,
        end: Option<u64>,
        period: Period,
    ) {
        let files = self.files.entry(sensor.map(str::to_owned)).or_default();
        if !files.contains_key(file) {
            files.insert(file.to_owned(), FileParts::default());
        }
        let Some(of_file) = files.get_mut(file) else { return };
        of_file.records += 1;
        of_file.parts.push(Part { first, end, oldest: Some(period) });
        // Bounded memory for many records of one file.
        if of_file.parts.len() > 1 << 16 {
            of_file.parts = merged(std::mem::take(&mut of_file.parts));
        }
        if end.is_none() {
            of_file.goes_on(period);
        }
    }

    /// When the records began and ended that go on in later files.
    pub(super) fn later(&self) -> Option<Period> {
        let files = self.files.values().flat_map(HashMap::values);
        let periods = files.filter_map(|of_file| of_file.later);
        periods.reduce(|a, b| Period { start: a.start.min(b.start), last: a.last.max(b.last) })
    }

    /// `named_by_all` are the files in which flows of that time begin, with or without the filter.
    pub(super) fn finish(self, named_by_all: &[Named]) -> Plan {
        let mut named: BTreeMap<PathBuf, FileParts> = BTreeMap::new();
        for (sensor, files) in self.files {
            for (file, FileParts { parts, records, later, .. }) in files {
                let path = located(&file, sensor.as_deref(), self.folder);
                let of_path = named.entry(path).or_default();
                of_path.parts.extend(parts);
                of_path.records += records;
                of_path.sensors.extend(sensor.clone());
                later.into_iter().for_each(|period| of_path.goes_on(period));
            }
        }
        let mut captures = Captures::default();
        let mut later: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
        let mut damaged = BTreeSet::new();
        for (path, of_path) in &named {
            let Some(period) = of_path.later else { continue };
            match captures.later(path, period) {
                Ok(files) => {
                    for file in files {
                        later.entry(file).or_default().extend(of_path.sensors.iter().cloned());
                    }
                }
                Err(error) => _ = damaged.insert(message(&error)),
            }
        }
        let mut missing = BTreeMap::new();
        // A later file that is gone is known from other records only.
        let mut going_on: HashMap<(PathBuf, String), Vec<Period>> = HashMap::new();
        for (path, of_path) in &named {
            if let Some(period) = of_path.later {
                going_on.entry(capture_of(path)).or_default().push(period);
            }
        }
        for Named { sensor, file, start } in named_by_all {
            let path = located(file, sensor.as_deref(), self.folder);
            let periods = going_on.get(&capture_of(&path)).map_or(&[][..], Vec::as_slice);
            if periods.iter().any(|period| (period.start..=period.last).contains(start))
                && !path.is_file()
            {
                missing.insert(path, 0);
            }
        }
        named.retain(|path, of_path| {
            let there = path.is_file();
            if !there {
                missing.insert(path.clone(), of_path.records);
            }
            there
        });
        let mut files = named;
        for (path, sensors) in later {
            let of_path = files.entry(path).or_default();
            of_path.parts.push(Part { first: 0, end: None, oldest: None });
            of_path.sensors.extend(sensors);
        }
        let mut files = without_links(files);
        let mut bytes_total = 0;
        for (path, of_path) in &mut files {
            of_path.parts = merged(std::mem::take(&mut of_path.parts));
            bytes_total += path.metadata().map_or(0, |metadata| metadata.len());
        }
        Plan { files, missing, damaged: damaged.into_iter().collect(), bytes_total }
    }
}

/// The same files by one name each: packets of a file that records know by two names are found once.
fn without_links(files: BTreeMap<PathBuf, FileParts>) -> BTreeMap<PathBuf, FileParts> {
    let mut names: HashMap<(u64, u64), PathBuf> = HashMap::new();
    let mut once: BTreeMap<PathBuf, FileParts> = BTreeMap::new();
    for (path, FileParts { parts, records, sensors, later }) in files {
        let name = match place(&path) {
            Some(place) => names.entry(place).or_insert(path).clone(),
            None => path,
        };
        let of_file = once.entry(name).or_default();
        of_file.parts.extend(parts);
        of_file.records += records;
        of_file.sensors.extend(sensors);
        later.into_iter().for_each(|period| of_file.goes_on(period));
    }
    once
}

/// The same parts in order, without overlaps and small gaps.
fn merged(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_unstable();
    let mut merged: Vec<Part> = Vec::new();
    for part in parts {
        match merged.last_mut() {
            Some(before) if before.end.is_none_or(|end| part.first <= end + MAX_GAP) => {
                before.end = before.end.zip(part.end).map(|(a, b)| a.max(b));
                let both = before.oldest.into_iter().chain(part.oldest);
                before.oldest = both.min_by_key(|period| period.last);
            }
            _ => merged.push(part),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_merge_over_small_gaps_only() {
        let part = |first, end| Part { first, end, oldest: None };
        let far = 10 * MAX_GAP;
        let parts = vec![
            part(far, Some(far + 5)),
            part(0, Some(10)),
            part(5, Some(20)),
            part(30, Some(25)),
        ];
        assert_eq!(merged(parts), [part(0, Some(25)), part(far, Some(far + 5))]);
        let parts = vec![part(0, None), part(far, Some(far + 1))];
        assert_eq!(merged(parts), [part(0, None)]);
        let parts = vec![part(0, Some(1)), part(2, None)];
        assert_eq!(merged(parts), [part(0, None)]);
        let of = |first, last| Part {
            oldest: Some(Period { start: 0, last }),
            ..part(first, Some(first + 10))
        };
        assert_eq!(merged(vec![of(0, 7), of(5, 3), of(8, 9)])[0].oldest, of(0, 3).oldest);
    }
}
