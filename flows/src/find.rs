//! `find`: from flow records to the packets themselves.
//!
//! A record says in which part of a file its packets are. Only these parts are read, and libpcap decides about each
//! packet in them, so the answer has the IP packets that tcpdump selects over all files.

mod beginning;
mod later;
mod output;
mod parts;
mod search;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail};
use datafusion::arrow::array::Array;
use datafusion::common::cast::{as_int64_array, as_string_array, as_uint64_array};
use datafusion::prelude::SessionContext;
use serde_json::json;

use self::parts::{Parts, Period};
use self::search::Search;
use crate::filter::{self, Meaning};
use crate::print::plural;
use crate::queries;
use crate::source::TABLE;
use crate::time::Range;

/// Files of a kind that are named, at most.
const MAX_NAMED: usize = 5;

/// What a search needs.
pub(crate) struct Options<'a> {
    /// The filter as the user wrote it: libpcap reads it, too.
    pub(crate) filter: &'a str,
    pub(crate) range: Range,
    /// Where the packet files are now, if not where the records say.
    pub(crate) folder: Option<&'a Path>,
    pub(crate) out: &'a Path,
}

/// What a search did.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Packets written.
    pub(crate) packets: u64,
    /// Flow records that may have such packets.
    pub(crate) records: u64,
    /// Of these, records that do not say where their packets are.
    pub(crate) without_files: u64,
    /// Packet files read.
    pub(crate) files: u64,
    pub(crate) bytes_read: u64,
    /// Bytes of all packet files that records lead to.
    pub(crate) bytes_total: u64,
    /// Files that are not there, and how many records point at each.
    missing: Vec<(PathBuf, u64)>,
    /// Files that have not the packets that their records point at, and how many records point at each.
    replaced: Vec<(PathBuf, u64)>,
    /// Why files were not read to their ends.
    damaged: Vec<String>,
}

impl Report {
    /// Why packets may not have been found, in few lines.
    pub(crate) fn problems(&self) -> Vec<String> {
        let of = |files: &[(PathBuf, u64)], what: &str| -> Vec<String> {
            let line = |(path, records): &(PathBuf, u64)| {
                let records = match records {
                    0 => "flow records that begin in earlier files".to_owned(),
                    records => plural(*records, "flow record"),
                };
                format!("{} {what} ({records})", path.display())
            };
            files.iter().map(line).collect()
        };
        let replaced =
            "was replaced since records were made of it, or cut off: all of it was read instead";
        let mut lines = Vec::new();
        for (kind, mut files) in [
            ("missing", of(&self.missing, "is missing")),
            ("replaced", of(&self.replaced, replaced)),
            ("damaged", self.damaged.clone()),
        ] {
            let more = files.len().saturating_sub(MAX_NAMED);
            files.truncate(MAX_NAMED);
            lines.append(&mut files);
            if more > 0 {
                lines.push(format!("{} more {kind}", plural(more as u64, "file")));
            }
        }
        if !self.missing.is_empty() {
            lines.push(
                "packets of missing files are not in the result; if files have moved, --packets says where they are"
                    .to_owned(),
            );
        }
        if self.without_files > 0 {
            let records = plural(self.without_files, "flow record");
            lines.push(format!("no packet file is known for {records}"));
        }
        lines
    }

    /// The counts.
    pub(crate) fn json(&self) -> String {
        json!({
            "packets": self.packets,
            "records": self.records,
            "records_without_file": self.without_files,
            "files": self.files,
            "missing_files": self.missing.len(),
            "replaced_files": self.replaced.len(),
            "damaged_files": self.damaged.len(),
            "bytes_read": self.bytes_read,
            "bytes_total": self.bytes_total,
        })
        .to_string()
    }
}

/// Writes the packets of a filter and a range of time, in the order of time.
pub(crate) async fn run(context: &SessionContext, options: &Options<'_>) -> Result<Report> {
    let filter = filter::parse(options.filter)?.context("find needs a filter")?;
    if filter.matches_other_packets() {
        bail!(
            "this filter also matches packets that are in no flow (ARP, say): name a host, net, port or protocol"
        );
    }
    output::check_name(options.out)?;
    let mut report = Report::default();
    let mut parts = Parts::new(options.folder);
    let condition = queries::condition(Some(&filter), options.range, Meaning::MayHavePackets);
    let condition = format!("\"natEvent\" IS NULL AND {condition}");
    let sql = format!(
        "SELECT arrow_cast(\"packetFile\", 'Utf8') AS file, \"packetOffset\" AS first, \"packetEnd\" AS \"end\", \
         arrow_cast(\"flowStartNanoseconds\", 'Int64') AS start, \
         arrow_cast(\"flowEndNanoseconds\", 'Int64') AS last FROM {TABLE} WHERE {condition}"
    );
    let frame = context.sql(&sql).await?;
    for batch in frame.collect().await? {
        let files = as_string_array(batch.column(0))?;
        let (starts, lasts) = (as_int64_array(batch.column(3))?, as_int64_array(batch.column(4))?);
        let (firsts, ends) = (as_uint64_array(batch.column(1))?, as_uint64_array(batch.column(2))?);
        for row in 0..batch.num_rows() {
            report.records += 1;
            // What went to standard output cannot be read again.
            if !files.is_valid(row) || !firsts.is_valid(row) || files.value(row) == "-" {
                report.without_files += 1;
                continue;
            }
            let end = ends.is_valid(row).then(|| ends.value(row));
            let period = Period { start: starts.value(row), last: lasts.value(row) };
            parts.add(files.value(row), firsts.value(row), end, period);
        }
    }
    let named = match parts.later() {
        Some(period) => named_files(context, period, &condition).await?,
        None => Vec::new(),
    };
    let plan = parts.finish(&named)?;
    report.bytes_total = plan.bytes_total;
    report.missing = plan.missing.into_iter().collect();
    output::check_inputs(options.out, plan.files.keys())?;
    output::check_records(context, options).await?;
    let mut search = Search::new(options)?;
    for (path, of_path) in plan.files {
        let searched = match search.file(&path, &of_path.parts) {
            // Its capture has deleted it in the meantime.
            Err(error) if is_not_found(&error) => {
                report.missing.push((path, of_path.records));
                continue;
            }
            searched => searched?,
        };
        report.files += 1;
        report.bytes_read += searched.bytes;
        report.damaged.extend(searched.damage.map(|error| error.to_string()));
        if searched.replaced {
            report.replaced.push((path, of_path.records));
        }
    }
    report.packets = search.finish(options.out)?;
    Ok(report)
}

/// The packet files in which flows of a period begin, and when the first one does in each. They are those of sensors that
/// have records with this condition: another host may have files of the same names.
async fn named_files(
    context: &SessionContext,
    period: Period,
    of_records: &str,
) -> Result<Vec<(String, i64)>> {
    let table = context.table(TABLE).await?;
    let of_sensors = match table.schema().has_column_with_unqualified_name("sensor") {
        true => format!("AND sensor IN (SELECT sensor FROM {TABLE} WHERE {of_records})"),
        false => String::new(),
    };
    let sql = format!(
        "SELECT arrow_cast(\"packetFile\", 'Utf8') AS file, \
         arrow_cast(min(\"flowStartNanoseconds\"), 'Int64') AS start FROM {TABLE} \
         WHERE \"packetFile\" IS NOT NULL AND {} {of_sensors} GROUP BY \"packetFile\"",
        queries::condition(
            None,
            Range { after: Some(period.start), before: Some(period.last) },
            Meaning::Flow
        )
    );
    let mut named = Vec::new();
    for batch in context.sql(&sql).await?.collect().await? {
        let (files, starts) = (as_string_array(batch.column(0))?, as_int64_array(batch.column(1))?);
        let rows = files.iter().flatten().zip(starts.values());
        named.extend(rows.map(|(file, start)| (file.to_owned(), *start)));
    }
    Ok(named)
}

fn is_not_found(error: &Error) -> bool {
    let is = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    error.downcast_ref::<io::Error>().is_some_and(is)
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| format!("cannot open {}", path.display()))
}

/// The path of a packet file that a record names.
fn located(file: &str, folder: Option<&Path>) -> PathBuf {
    let path = Path::new(file);
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}
