//! `find`: from flow records to the packets themselves.
//!
//! A record says in which part of a file its packets are. Only these parts are read, and libpcap decides about each
//! packet in them, so the answer has the IP packets that tcpdump selects over all files.

mod beginning;
mod expected;
mod later;
mod output;
mod parts;
mod search;

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail};
use datafusion::arrow::array::{Array, Int64Array, StringArray};
use datafusion::common::cast::{as_int64_array, as_string_array, as_uint64_array};
use datafusion::prelude::SessionContext;
use linerate_pcapfile::refuse_terminal;
use serde_json::json;

use self::expected::Expected;
use self::later::Period;
use self::parts::{Named, Parts};
use self::search::{NoTemporaryFile, Search};
use crate::filter::{self, Filter, Meaning};
use crate::print::{message, plural};
use crate::queries;
use crate::source::TABLE;
use crate::time::Range;

/// Files of a kind that are named, at most.
const MAX_NAMED: usize = 5;

/// What a search needs.
pub(crate) struct Options<'a> {
    /// The filter as the user wrote it: libpcap reads it, too. Empty for all packets of a Community ID.
    pub(crate) filter: &'a str,
    /// The Community ID of all packets.
    pub(crate) community_id: Option<&'a str>,
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
    /// Why files were not read to their ends, or not at all.
    damaged: Vec<String>,
    /// Packets that the records count, and that are not in the files.
    missing_packets: u64,
    /// The filter may match packets that are in no flow.
    pub(crate) may_lack_others: bool,
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
        if self.missing_packets > 0 {
            lines.push(format!(
                "{} of these flow records not in the files: files were overwritten or deleted, or a capture with \
                 --cutoff has not written them",
                plural(self.missing_packets, "packet")
            ));
        }
        if self.without_files > 0 {
            let records = plural(self.without_files, "flow record");
            lines.push(format!(
                "no packet file is known for {records}: those of forward, and of a capture without -w FILE, into a pipe \
                 or beyond --cutoff have none; `linerate capture -w FILE --flows FOLDER` writes both"
            ));
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
            "missing_packets": self.missing_packets,
            "bytes_read": self.bytes_read,
            "bytes_total": self.bytes_total,
        })
        .to_string()
    }
}

/// Writes the packets of a filter and a range of time, in the order of time.
pub(crate) async fn run(context: &SessionContext, options: &Options<'_>) -> Result<Report> {
    refuse_terminal(options.out)?;
    let filter = filter(options)?;
    output::check_name(options.out)?;
    let mut report = Report {
        may_lack_others: filter.as_ref().is_some_and(|one| one.matches_other_packets().is_none()),
        ..Report::default()
    };
    let condition = queries::condition(filter.as_ref(), options.range, Meaning::MayHavePackets);
    let of_id = options.community_id.map_or("TRUE".to_owned(), queries::of_community_id);
    let condition = format!("\"natEvent\" IS NULL AND {condition} AND {of_id}");
    let (parts, expected) = select(context, options, &condition, &mut report).await?;
    let named = match parts.later() {
        Some(period) => named_files(context, period, &condition).await?,
        None => Vec::new(),
    };
    let plan = parts.finish(&named);
    report.bytes_total = plan.bytes_total;
    report.missing = plan.missing.into_iter().collect();
    output::check_inputs(options.out, plan.files.keys())?;
    output::check_records(context, options).await?;
    report.damaged = plan.damaged;
    let mut search = Search::new(options, expected)?;
    for (path, of_path) in plan.files {
        let searched = match search.file(&path, &of_path) {
            Ok(searched) => searched,
            Err(error) if error.is::<NoTemporaryFile>() => return Err(error),
            // Its capture has deleted it in the meantime.
            Err(error) if is_not_found(&error) => {
                report.missing.push((path, of_path.records));
                continue;
            }
            Err(error) => {
                report.damaged.push(message(&error));
                continue;
            }
        };
        report.files += 1;
        report.bytes_read += searched.bytes;
        report.damaged.extend(searched.damage.map(|error| error.to_string()));
        if searched.replaced {
            report.replaced.push((path, of_path.records));
        }
    }
    report.missing_packets = search.expected.missing();
    report.packets = search.finish(options.out)?;
    Ok(report)
}

/// The filter for records; `None` if there is only a Community ID.
fn filter(options: &Options<'_>) -> Result<Option<Filter>> {
    if options.filter.is_empty() {
        options.community_id.context("find needs a filter or --community-id")?;
        return Ok(None);
    }
    // libpcap says what is wrong with its filters, and what of it is no address alone.
    let filter = filter::parse_for_search(options.filter);
    search::check(options.filter)?;
    let filter = filter?.context("find needs a filter")?;
    if filter.matches_other_packets() == Some(true) && options.community_id.is_none() {
        bail!(
            "this filter also matches packets that are in no flow (ARP, say): name a host, net, port or protocol"
        );
    }
    Ok(Some(filter))
}

/// What stands for the sensor of records that are not in folders `sensor=NAME`.
const NO_SENSOR: &str = "arrow_cast(NULL, 'Utf8')";

/// The sensor of a record, in SQL.
async fn sensor(context: &SessionContext) -> Result<&'static str> {
    let table = context.table(TABLE).await?;
    let has_sensors = table.schema().has_column_with_unqualified_name("sensor");
    Ok(if has_sensors { "arrow_cast(sensor, 'Utf8')" } else { NO_SENSOR })
}

/// The parts of files that records point at, and the packets that the records count.
async fn select<'a>(
    context: &SessionContext,
    options: &Options<'a>,
    condition: &str,
    report: &mut Report,
) -> Result<(Parts<'a>, Expected)> {
    let (mut parts, mut expected) = (Parts::new(options.folder), Expected::default());
    let sql = format!(
        "SELECT arrow_cast(\"packetFile\", 'Utf8') AS file, {} AS sensor, \
         ip(\"sourceIPv4Address\", \"sourceIPv6Address\") AS source, \
         ip(\"destinationIPv4Address\", \"destinationIPv6Address\") AS destination, \
         \"packetOffset\" AS first, \"packetEnd\" AS \"end\", \
         arrow_cast(\"flowStartNanoseconds\", 'Int64') AS start, \
         arrow_cast(\"flowEndNanoseconds\", 'Int64') AS last, \
         arrow_cast(\"protocolIdentifier\", 'Int64') AS protocol, \
         arrow_cast(\"sourceTransportPort\", 'Int64') AS source_port, \
         arrow_cast(\"destinationTransportPort\", 'Int64') AS destination_port, \
         arrow_cast(\"packetDeltaCount\" + \"reversePacketDeltaCount\", 'Int64') AS packets \
         FROM {TABLE} WHERE {condition}",
        sensor(context).await?
    );
    for batch in context.sql(&sql).await?.collect().await? {
        let text = |column: usize| as_string_array(batch.column(column));
        let ([files, sensors], [sources, destinations]) =
            ([text(0)?, text(1)?], [text(2)?, text(3)?]);
        let (firsts, ends) = (as_uint64_array(batch.column(4))?, as_uint64_array(batch.column(5))?);
        let number = |column: usize| as_int64_array(batch.column(column));
        let (starts, lasts, protocols) = (number(6)?, number(7)?, number(8)?);
        let (source_ports, destination_ports, packets) = (number(9)?, number(10)?, number(11)?);
        for row in 0..batch.num_rows() {
            report.records += 1;
            // What went to standard output cannot be read again.
            if !files.is_valid(row) || !firsts.is_valid(row) || files.value(row) == "-" {
                report.without_files += 1;
                continue;
            }
            let end = ends.is_valid(row).then(|| ends.value(row));
            let period = Period { start: starts.value(row), last: lasts.value(row) };
            let sensor = sensors.is_valid(row).then(|| sensors.value(row));
            parts.add((sensor, files.value(row)), firsts.value(row), end, period);
            let address = |addresses: &StringArray| addresses.value(row).parse::<IpAddr>();
            if let (Ok(source), Ok(destination)) = (address(sources), address(destinations)) {
                let port =
                    |ports: &Int64Array| ports.is_valid(row).then(|| ports.value(row) as u16);
                let ports = port(source_ports).zip(port(destination_ports));
                let packets = packets.value(row).unsigned_abs();
                let ends = (source, destination);
                expected.add(
                    ends,
                    protocols.value(row) as u8,
                    ports,
                    period,
                    packets,
                    end.is_some(),
                );
            }
        }
    }
    expected.sort();
    Ok((parts, expected))
}

/// The packet files in which flows of a period begin. They are those of sensors that have records with this condition:
/// another host may have files of the same names.
async fn named_files(
    context: &SessionContext,
    period: Period,
    of_records: &str,
) -> Result<Vec<Named>> {
    let sensor = sensor(context).await?;
    let of_sensors = match sensor {
        NO_SENSOR => String::new(),
        _ => format!("AND sensor IN (SELECT sensor FROM {TABLE} WHERE {of_records})"),
    };
    let sql = format!(
        "SELECT arrow_cast(\"packetFile\", 'Utf8') AS file, {sensor} AS sensor, \
         arrow_cast(min(\"flowStartNanoseconds\"), 'Int64') AS start FROM {TABLE} \
         WHERE \"packetFile\" IS NOT NULL AND {} {of_sensors} GROUP BY 1, 2",
        queries::condition(
            None,
            Range { after: Some(period.start), before: Some(period.last) },
            Meaning::Flow
        )
    );
    let mut named = Vec::new();
    for batch in context.sql(&sql).await?.collect().await? {
        let text = |column: usize| as_string_array(batch.column(column));
        let (files, sensors, starts) = (text(0)?, text(1)?, as_int64_array(batch.column(2))?);
        for ((file, sensor), start) in files.iter().zip(sensors).zip(starts.values()) {
            let (file, sensor) = (file.unwrap_or_default().to_owned(), sensor.map(str::to_owned));
            named.push(Named { sensor, file, start: *start });
        }
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

/// The path of a packet file that a record names. Below the folder, each sensor may have one of its own.
fn located(file: &str, sensor: Option<&str>, folder: Option<&Path>) -> PathBuf {
    let path = Path::new(file);
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => {
            let own = sensor.map(|sensor| folder.join(format!("sensor={sensor}")));
            own.filter(|own| own.is_dir()).as_deref().unwrap_or(folder).join(name)
        }
        _ => path.to_owned(),
    }
}
