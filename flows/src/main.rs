//! `linerate-flows`: queries of flow records, the packets behind them, and shipping to an object store.
//! `linerate flows` and `linerate find` start it.
#![forbid(unsafe_code)]

mod filter;
mod find;
mod functions;
mod print;
mod queries;
mod ship;
mod source;
mod time;
mod views;

use std::ffi::OsStr;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::{Arg, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::env::CompleteEnv;
use jiff::tz::TimeZone;
use tokio::signal::unix::{SignalKind, signal};

use crate::filter::Meaning;
use crate::print::Form;
use crate::queries::{By, ListSort, Sort};
use crate::source::TABLE;
use crate::time::{Range, Time};

/// Query flow records, find the packets behind them, ship them.
#[derive(Debug, Parser)]
#[command(name = "linerate", bin_name = "linerate", version, max_term_width = 100)]
#[command(after_help = "Exit status: 0 on success, 1 on failure, 2 on a wrong command line.\n\
    \n\
    Examples:\n  \
    linerate flows top -r /var/lib/linerate/flows --by port net 10.0.0.0/8\n  \
    linerate flows sum -r s3://flows/site-1 --after -1d --every 1h\n  \
    linerate flows ship /var/lib/linerate/flows s3://flows/a --follow 10s --delete\n  \
    linerate find 10.0.0.7 -r /var/lib/linerate/flows --after -2h -w host.pcapng")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Query flow records, and ship them.
    Flows {
        #[command(subcommand)]
        command: FlowsCommand,
    },
    /// Write the packets of a host or a filter, from the files that flow records point at.
    #[command(after_help = "\
The packets are the IP packets that tcpdump's filter selects over all files, in the order of time. --after and \
--before also select packets by their own time. The file is pcapng.

Exit status: 0 when all packets of the records were found, 1 when files are missing, replaced or damaged, or on \
failure, 2 on a wrong command line.

Examples:
  linerate find 10.0.0.7 -r /var/lib/linerate/flows --after -2h -w host.pcapng
  linerate find --community-id 1:wCb3OG7yAFWelaUydu0D+125CLM= -r flows -w alert.pcapng
  linerate find -r flows -w syn.pcapng 'host 10.0.0.7 and tcp[tcpflags] & tcp-syn != 0'
  linerate find -r flows -w - tcp port 443 and net 192.0.2.0/24 | tcpdump -r -")]
    Find {
        #[command(flatten)]
        records: Records,
        /// The file to write; - for standard output.
        #[arg(short = 'w', value_name = "FILE")]
        out: PathBuf,
        /// The folder of the packet files, if it is not the one that the records name. Those of a sensor may be in its
        /// folder sensor=NAME.
        #[arg(long, value_name = "DIR")]
        packets: Option<PathBuf>,
        /// Print the counts as JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
enum FlowsCommand {
    /// Top talkers.
    Top {
        #[command(flatten)]
        records: Records,
        #[command(flatten)]
        answer: Answer,
        /// What to group by.
        #[arg(long, value_parser = ByParser, default_value = "host")]
        by: (By, (u8, u8)),
        /// What to sort by.
        #[arg(long, value_enum, default_value = "octets")]
        sort: Sort,
        /// Rows at most.
        #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
        count: u64,
        /// Estimate what capture --sample left out: each count is divided by the share of flows that was metered.
        #[arg(long)]
        scale: bool,
    },
    /// List records.
    List {
        #[command(flatten)]
        records: Records,
        #[command(flatten)]
        answer: Answer,
        /// NAT events instead of flows.
        #[arg(long)]
        nat_events: bool,
        /// What to sort by.
        #[arg(long, value_enum, default_value = "time")]
        sort: ListSort,
        /// Rows at most.
        #[arg(short = 'n', long, value_name = "N", default_value_t = 1000)]
        count: u64,
    },
    /// Totals: flows, packets, octets, first and last time.
    Sum {
        #[command(flatten)]
        records: Records,
        #[command(flatten)]
        answer: Answer,
        /// A row for each interval; a flow counts where it begins.
        #[arg(long, value_name = "TIME", value_parser = time::parse_duration)]
        every: Option<i64>,
        /// Estimate what capture --sample left out: each count is divided by the share of flows that was metered.
        #[arg(long)]
        scale: bool,
    },
    /// Query in SQL. The table is `flows`; `ip(v4, v6)` makes an address of the two columns that have it. The same records
    /// with the names of others are the tables `zeek`, `ecs` and `ocsf`.
    #[command(after_help = "\
Examples:
  linerate flows query -r flows 'SELECT count(*) FROM flows WHERE \"maximumTTL\" < 5'
  linerate flows query -r flows 'SELECT \"id.orig_h\", history FROM zeek WHERE duration > 60'")]
    Query {
        #[command(flatten)]
        location: Location,
        #[command(flatten)]
        zone: TimeZoneArguments,
        #[command(flatten)]
        answer: Answer,
        /// The query.
        sql: String,
    },
    /// Copy or move whole files of records to an object store.
    #[command(after_help = "\
The folder is the spool: with --delete a file leaves it when the store has it. Keys, region and endpoint are those of \
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL and AWS_ALLOW_HTTP.

Exit status: 0 when nothing waits, 1 when files wait or a folder cannot be read.

Examples:
  linerate flows ship /var/lib/linerate/flows s3://flows/a --follow 10s --delete")]
    Ship {
        /// The folder of records.
        folder: PathBuf,
        /// s3://BUCKET/PREFIX.
        url: String,
        /// Delete a file when the store has it.
        #[arg(long)]
        delete: bool,
        /// Look for new files this often, and do not end.
        #[arg(long, value_name = "TIME", value_parser = time::parse_duration)]
        follow: Option<i64>,
        /// How long to try when the store is unreachable, without --follow.
        #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time::parse_duration)]
        retry_for: i64,
        /// Print the counts as JSON, a line for each change.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct Location {
    /// A file or folder of records, or s3://BUCKET/PREFIX; repeatable.
    #[arg(short = 'r', long = "records", value_name = "LOCATION", default_value = ".")]
    locations: Vec<String>,
}

#[derive(Debug, Args)]
struct TimeZoneArguments {
    /// The time zone of times that are printed, and of those given without an offset: local, a name such as
    /// Europe/Berlin, or an offset such as +01:00.
    #[arg(long, value_name = "ZONE", default_value = "UTC", allow_hyphen_values = true, value_parser = time::zone)]
    time_zone: TimeZone,
}

#[derive(Debug, Args)]
struct Records {
    #[command(flatten)]
    location: Location,
    /// Flows active at or after this time: 2026-11-24T10:00:00Z, '2026-11-24 10:00' of --time-zone, seconds since 1970, -2h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time::parse)]
    after: Option<Time>,
    /// Flows active before this time.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time::parse)]
    before: Option<Time>,
    #[command(flatten)]
    zone: TimeZoneArguments,
    /// Only the flow with this Community ID (version 1), such as that of an alert of Suricata or Zeek. Records need no
    /// field for it.
    #[arg(long, value_name = "ID", value_parser = community_id)]
    community_id: Option<String>,
    /// A filter in the syntax of pcap-filter(7), or an address.
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
}

#[derive(Debug, Args)]
struct Answer {
    /// One JSON object a line.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// CSV.
    #[arg(long)]
    csv: bool,
    /// Print the SQL and do not run it.
    #[arg(long)]
    print_sql: bool,
}

impl Answer {
    fn form(&self) -> Form {
        match (self.json, self.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Table,
        }
    }
}

impl Records {
    fn range(&self) -> Result<Range> {
        let nanos =
            |time: Option<Time>| time.map(|time| time.nanos(&self.zone.time_zone)).transpose();
        Ok(Range { after: nanos(self.after)?, before: nanos(self.before)? })
    }

    /// The filter; an address alone is a host.
    fn filter(&self) -> String {
        match &self.filter[..] {
            [one] if one.parse::<IpAddr>().is_ok() => format!("host {one}"),
            words => words.join(" "),
        }
    }

    fn condition(&self) -> Result<String> {
        let filter = filter::parse(&self.filter())?;
        let condition = queries::condition(filter.as_ref(), self.range()?, Meaning::Flow);
        Ok(match &self.community_id {
            Some(id) => format!("{condition} AND {}", queries::of_community_id(id)),
            None => condition,
        })
    }
}

/// Reads `--by`: a name, or `net/24/48`.
#[derive(Clone)]
struct ByParser;

impl TypedValueParser for ByParser {
    type Value = (By, (u8, u8));

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let lengths = value.to_str().and_then(|text| text.strip_prefix("net/")).and_then(|text| {
            let (v4, v6) = text.split_once('/').unwrap_or((text, "64"));
            let (v4, v6) = (v4.parse().ok()?, v6.parse().ok()?);
            (v4 <= 32 && v6 <= 128).then_some((v4, v6))
        });
        match lengths {
            Some(lengths) => Ok((By::Net, lengths)),
            None => {
                let by = EnumValueParser::<By>::new().parse_ref(command, argument, value)?;
                Ok((by, (24, 64)))
            }
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(By::value_variants().iter().filter_map(ValueEnum::to_possible_value)))
    }
}

/// A Community ID.
fn community_id(text: &str) -> Result<String, String> {
    let is_digest = |digest: &str| {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || "+/".contains(c);
        digest.len() == 28
            && digest.strip_suffix('=').is_some_and(|rest| rest.chars().all(is_letter))
    };
    match text.strip_prefix("1:").filter(|digest| is_digest(digest)) {
        Some(_) => Ok(text.to_owned()),
        None => Err("a Community ID of version 1 is `1:` and 28 characters".to_owned()),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    // `linerate` becomes this program for a shell that completes its verbs.
    CompleteEnv::with_factory(Cli::command).var("LINERATE_COMPLETE").complete();
    match run(Cli::parse().command).await {
        Ok(status) => status,
        // Who reads has enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print::eprintln(print::message(&error));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    error.downcast_ref::<std::io::Error>().is_some_and(is)
}

async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Flows { command } => flows(command).await,
        Command::Find { records, out, packets, json } => {
            if json && out.as_os_str() == "-" {
                bail!("--json and -w - both write to standard output: write the packets to a file");
            }
            let (context, filter) =
                (source::open(&records.location.locations).await?, records.filter());
            let range = records.range()?;
            let (community_id, folder) = (records.community_id.as_deref(), packets.as_deref());
            let options = find::Options { filter: &filter, community_id, range, folder, out: &out };
            let report = find::run(&context, &options).await?;
            let problems = report.problems();
            problems.iter().for_each(print::eprintln);
            if report.may_lack_others {
                print::eprintln(
                    "packets that are in no flow, such as ARP, are not searched: this filter may match them",
                );
            }
            if json {
                writeln!(std::io::stdout(), "{}", report.json())?;
            } else {
                print::eprintln(format_args!(
                    "{} of {}; read {} of {} bytes in {}",
                    print::plural(report.packets, "packet"),
                    print::plural(report.records, "flow record"),
                    report.bytes_read,
                    report.bytes_total,
                    print::plural(report.files, "file")
                ));
            }
            Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

async fn flows(command: FlowsCommand) -> Result<ExitCode> {
    let is_query = matches!(command, FlowsCommand::Query { .. });
    let needed = match &command {
        FlowsCommand::Top { by: (by, _), .. } => by.required_column(),
        _ => None,
    };
    let (locations, zone, answer, limit, sql, listed) = match command {
        FlowsCommand::Ship { folder, url, delete, follow, retry_for, json } => {
            let duration = |nanos: i64| Duration::from_nanos(nanos.unsigned_abs());
            let (follow, retry_for) = (follow.map(duration), duration(retry_for));
            let options = ship::Options { folder: &folder, url: &url, delete, follow, retry_for };
            return ship(&options, json).await;
        }
        FlowsCommand::Top { records, answer, by: (by, prefixes), sort, count, scale } => {
            let options = queries::Top { by, prefixes, sort, count, is_scaled: scale };
            let sql = queries::top(options, &records.condition()?);
            (records.location.locations, records.zone, answer, Some(count), sql, None)
        }
        FlowsCommand::List { records, answer, nat_events, sort, count } => {
            // One more, to know whether there are more.
            let rows = count.saturating_add(u64::from(!answer.print_sql));
            let (options, condition) =
                (queries::List { count: rows, sort, nat_events }, records.condition()?);
            let sql = queries::list(options, &condition, false);
            (
                records.location.locations,
                records.zone,
                answer,
                Some(count),
                sql,
                Some((options, condition)),
            )
        }
        FlowsCommand::Sum { records, answer, every, scale } => {
            let sql = queries::sum(every, &records.condition()?, scale);
            (records.location.locations, records.zone, answer, None, sql, None)
        }
        FlowsCommand::Query { location, zone, answer, sql } => {
            (location.locations, zone, answer, None, sql, None)
        }
    };
    if answer.print_sql {
        writeln!(std::io::stdout(), "{sql}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let context = source::open(&locations).await?;
    let columns = context.table(TABLE).await?;
    let has_sensor = columns.schema().has_column_with_unqualified_name("sensor");
    if let Some((column, lack)) = needed
        && !columns.schema().has_column_with_unqualified_name(column)
    {
        bail!("the records in {} {lack}", locations.join(", "));
    }
    let sql = match listed {
        Some((options, condition)) => queries::list(options, &condition, has_sensor),
        None => sql,
    };
    if is_query {
        views::register(&context).await?;
    }
    let frame = context.sql(&sql).await.context("cannot run this query")?;
    let rows =
        print::run(frame, answer.form(), limit.unwrap_or(u64::MAX), !is_query, &zone.time_zone)
            .await?;
    if rows == 0 && answer.form() == Form::Table && limit != Some(0) {
        print::eprintln(if is_query { "the answer has no rows" } else { "no record matches" });
    }
    if limit.is_some_and(|limit| rows > limit) {
        print::eprintln("there are more records: -n says how many to list");
    }
    Ok(ExitCode::SUCCESS)
}

async fn ship(options: &ship::Options<'_>, json: bool) -> Result<ExitCode> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stop = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let report = ship::run(options, stop, |report| {
        if json {
            // Shipping goes on without a reader.
            let _ = writeln!(std::io::stdout(), "{}", report.json());
        } else if let Some(error) = &report.error {
            print::eprintln(format_args!(
                "{} ({} bytes) waiting: {error}",
                print::plural(report.waiting, "file"),
                report.waiting_bytes
            ));
        }
    })
    .await?;
    if !json {
        print::eprintln(format_args!(
            "{} ({} bytes) shipped, {} there already, {} waiting",
            print::plural(report.files, "file"),
            report.bytes,
            report.known,
            report.waiting
        ));
    }
    Ok(if report.is_done() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
