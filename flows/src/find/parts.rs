//! The parts of packet files that records point at.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use linerate_pcapfile::Reader;

use super::beginning::Beginning;
use super::located;

/// Parts that are closer than this are read as one.
const MAX_GAP: u64 = 64 << 10;

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) first: u64,
    /// `None`: to the end of the file.
    pub(super) end: Option<u64>,
}

/// The parts to read, by file.
pub(super) struct Parts<'a> {
    folder: Option<&'a Path>,
    files: HashMap<String, Vec<Part>>,
    /// Records that go on in later files: the first file, the time of the last packet.
    later: HashMap<String, i64>,
}

/// The same, ready to be read.
pub(super) struct Plan {
    pub(super) files: BTreeMap<PathBuf, Vec<Part>>,
    pub(super) bytes_total: u64,
}

impl<'a> Parts<'a> {
    pub(super) fn new(folder: Option<&'a Path>) -> Self {
        Self { folder, files: HashMap::new(), later: HashMap::new() }
    }

    pub(super) fn add(
        &mut self,
        file: &str,
        first: u64,
        end: Option<u64>,
        last: i64,
    ) -> Result<()> {
        if file == "-" {
            bail!("the packets of a record went to standard output: there is no file to look in");
        }
        if !self.files.contains_key(file) {
            self.files.insert(file.to_owned(), Vec::new());
        }
        if let Some(parts) = self.files.get_mut(file) {
            parts.push(Part { first, end });
            // Bounded memory for many records of one file.
            if parts.len() > 1 << 16 {
                *parts = merged(std::mem::take(parts));
            }
        }
        if end.is_none() {
            let known = self.later.entry(file.to_owned()).or_insert(last);
            *known = last.max(*known);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Plan> {
        let mut files: BTreeMap<PathBuf, Vec<Part>> = BTreeMap::new();
        for (file, parts) in self.files {
            let path = located(&file, self.folder);
            if !path.is_file() {
                bail!(
                    "the packet file {} is not there: it was deleted, or --packets has to say where the files are now",
                    path.display()
                );
            }
            files.entry(path).or_default().extend(parts);
        }
        let mut siblings: BTreeMap<PathBuf, Option<i64>> = BTreeMap::new();
        for path in files.keys() {
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            for entry in
                folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?
            {
                let sibling = entry?.path();
                if sibling.is_file()
                    && sibling.extension() == path.extension()
                    && !siblings.contains_key(&sibling)
                {
                    let time = if self.later.is_empty() { None } else { capture_time(&sibling) };
                    siblings.insert(sibling, time);
                }
            }
        }
        for (file, last) in self.later {
            let path = located(&file, self.folder);
            let begins = first_time(&path);
            for (sibling, time) in &siblings {
                // A file may begin a little before its predecessor's last packets.
                if *sibling != path
                    && sibling.parent() == path.parent()
                    && *time >= begins
                    && time.is_some_and(|time| time <= last)
                {
                    files.entry(sibling.clone()).or_default().push(Part { first: 0, end: None });
                }
            }
        }
        let sizes =
            siblings.keys().filter_map(|path| path.metadata().ok()).map(|metadata| metadata.len());
        let bytes_total = sizes.sum();
        let files = files.into_iter().map(|(path, parts)| (path, merged(parts))).collect();
        Ok(Plan { files, bytes_total })
    }
}

/// The time of the first packet of a file that a capture can have written.
fn capture_time(path: &Path) -> Option<i64> {
    match Beginning::of(path) {
        Ok(Some(beginning)) if !beginning.of_capture => None,
        _ => first_time(path),
    }
}

/// The time of a file's first packet.
fn first_time(path: &Path) -> Option<i64> {
    if let Ok(Some(Beginning { time, .. })) = Beginning::of(path) {
        return time;
    }
    let mut reader = Reader::open(path).ok()?;
    let record = reader.next().ok()??;
    i64::try_from(record.frame.timestamp?.0).ok()
}

/// The same parts in order, without overlaps and small gaps.
fn merged(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_unstable();
    let mut merged: Vec<Part> = Vec::new();
    for part in parts {
        match merged.last_mut() {
            Some(Part { end: None, .. }) => {}
            Some(Part { end: Some(before), .. }) if part.first <= *before + MAX_GAP => {
                match part.end {
                    Some(end) => *before = end.max(*before),
                    None => merged.last_mut().expect("one").end = None,
                }
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
        let part = |first, end| Part { first, end };
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
    }
}
