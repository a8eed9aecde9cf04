//! The folder of a run: raw CSV, one row a measurement, and the summary.

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::report::ownership;
use crate::report::summary::Summary;

/// The name of the summary in a run's folder.
pub(crate) const SUMMARY: &str = "summary.json";

/// A folder `DATE-HOST-EXPERIMENT` that a run fills.
#[derive(Debug)]
pub(crate) struct RunFolder {
    folder: PathBuf,
}

impl RunFolder {
    /// Makes the folder under `out`; a number is added where today's run has one already.
    pub(crate) fn create(out: &Path, date: &str, host: &str, experiment: &str) -> Result<Self> {
        if !out.is_dir() {
            fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
            ownership::chown_to_caller(out);
        }
        let plain: String = host
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' })
            .collect();
        for number in 1.. {
            let suffix = if number == 1 { String::new() } else { format!("-{number}") };
            let folder = out.join(format!("{date}-{plain}-{experiment}{suffix}"));
            match fs::create_dir(&folder) {
                Ok(()) => {
                    ownership::chown_to_caller(&folder);
                    return Ok(Self { folder });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot make {}", folder.display()));
                }
            }
        }
        unreachable!("the numbers do not end")
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a CSV file `NAME.csv`.
    pub(crate) fn csv_file(&self, name: &str) -> Result<CsvFile> {
        let path = self.folder.join(format!("{name}.csv"));
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        ownership::chown_to_caller(&path);
        Ok(CsvFile { out: BufWriter::new(file), columns: Vec::new(), path })
    }

    pub(crate) fn write_summary(&self, summary: &Summary) -> Result<()> {
        let path = self.folder.join(SUMMARY);
        let text = serde_json::to_string_pretty(summary)?;
        fs::write(&path, text + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
        ownership::chown_recursive(&self.folder);
        Ok(())
    }
}

/// A CSV file (RFC 4180 quoting) whose rows reach the disk one by one, so that an interrupted run
/// keeps what it had measured.
#[derive(Debug)]
pub(crate) struct CsvFile {
    out: BufWriter<File>,
    columns: Vec<&'static str>,
    path: PathBuf,
}

impl CsvFile {
    /// Appends a row: the line, the place and the repeat that were measured, and cells, each with the name of its column.
    /// The first row says the columns.
    pub(crate) fn row(
        &mut self,
        (line, x, repeat): (&str, f64, usize),
        cells: &[(&'static str, String)],
    ) -> Result<()> {
        let of = [("line", line.into()), ("x", x.to_string()), ("repeat", repeat.to_string())];
        let (columns, cells): (Vec<_>, Vec<_>) =
            of.iter().chain(cells).map(|(column, cell)| (*column, quoted(cell))).unzip();
        let mut lines = cells.join(",");
        if self.columns.is_empty() {
            lines = format!("{}\n{lines}", columns.join(","));
            self.columns = columns;
        } else if columns != self.columns {
            bail!("{}: {columns:?} where the columns are {:?}", self.path.display(), self.columns);
        }
        writeln!(self.out, "{lines}")
            .and_then(|()| self.out.flush())
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The summaries of all runs in `folder` (or of the one run that it is), the latest of each
/// experiment first come first.
pub(crate) fn summaries(folder: &Path) -> Result<Vec<Summary>> {
    let mut paths = Vec::new();
    if folder.join(SUMMARY).is_file() {
        paths.push(folder.join(SUMMARY));
    } else {
        let entries = fs::read_dir(folder)
            .with_context(|| format!("cannot read the folder {}", folder.display()))?;
        let inner = entries.filter_map(|entry| Some(entry.ok()?.path().join(SUMMARY)));
        paths.extend(inner.filter(|path| path.is_file()));
    }
    if paths.is_empty() {
        bail!(
            "{}: no run in it (no {SUMMARY}); `linerate lab run EXPERIMENT --out {}` makes one",
            folder.display(),
            folder.display()
        );
    }
    let mut found = paths.iter().map(|path| load(path)).collect::<Result<Vec<_>>>()?;
    found.sort_by(|a, b| a.started.cmp(&b.started));
    Ok(found)
}

fn load(path: &Path) -> Result<Summary> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not a summary of a run", path.display()))
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::environment::Environment;

    fn summary(experiment: &str, started: &str) -> Summary {
        Summary {
            experiment: experiment.into(),
            title: "Title".into(),
            about: String::new(),
            started: started.into(),
            seconds: 1.0,
            quick: true,
            environment: Environment::default(),
            charts: Vec::new(),
            claims: Vec::new(),
            notes: Vec::new(),
            void: Vec::new(),
        }
    }

    #[test]
    fn a_second_run_of_the_day_gets_a_number() {
        let out = tempfile::tempdir().unwrap();
        let names: Vec<_> = (0..3)
            .map(|_| RunFolder::create(out.path(), "2026-01-02", "a.b", "x").unwrap().folder)
            .map(|folder| folder.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["2026-01-02-a-b-x", "2026-01-02-a-b-x-2", "2026-01-02-a-b-x-3"]);
    }

    #[test]
    fn rows_are_quoted_and_counted() {
        let out = tempfile::tempdir().unwrap();
        let store = RunFolder::create(out.path(), "d", "h", "x").unwrap();
        let mut sheet = store.csv_file("raw").unwrap();
        sheet.row(("a", 1.0, 2), &[("b", "say \"hi\", twice".into())]).unwrap();
        assert!(sheet.row(("a", 1.0, 2), &[]).is_err());
        let text = fs::read_to_string(store.folder().join("raw.csv")).unwrap();
        assert_eq!(text, "line,x,repeat,b\na,1,2,\"say \"\"hi\"\", twice\"\n");
    }

    #[test]
    fn summaries_are_found_in_order() {
        let out = tempfile::tempdir().unwrap();
        assert!(summaries(out.path()).unwrap_err().to_string().contains("no run"));
        for (name, started) in [("later", "2026-01-02 10:00"), ("sooner", "2026-01-02 09:00")] {
            let store = RunFolder::create(out.path(), "d", "h", name).unwrap();
            store.write_summary(&summary(name, started)).unwrap();
        }
        let names: Vec<_> =
            summaries(out.path()).unwrap().into_iter().map(|found| found.experiment).collect();
        assert_eq!(names, ["sooner", "later"]);
        assert_eq!(summaries(&out.path().join("d-h-later")).unwrap().len(), 1);
    }
}
