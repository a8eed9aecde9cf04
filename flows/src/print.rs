//! Answers: a table, CSV, or one JSON object a line.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Fields, Schema, SchemaRef};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::DataFrame;
use futures::StreamExt;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use jiff::tz::TimeZone;
use serde_json::{Map, Value};
use terminal_size::{Width, terminal_size_of};

use crate::time::zone_name;

/// How often progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Table,
    Json,
    Csv,
}

/// Runs a query and prints the first rows of its answer, at most `limit`, with times of `zone`. Returns how many rows
/// there are. A table has the first columns for which the terminal has room, if `may_drop` allows that.
pub(crate) async fn run(
    frame: DataFrame,
    form: Form,
    limit: u64,
    may_drop: bool,
    zone: &TimeZone,
) -> Result<u64> {
    let context = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    let progress = progress(&plan);
    let mut stream = execute_stream(plan, context)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let schema = with_zone(&stream.schema(), zone);
    let (mut rows, mut table) = (0, Vec::new());
    if form == Form::Csv {
        let names: Vec<_> = schema.fields().iter().map(|field| csv(field.name())).collect();
        writeln!(out, "{}", names.join(","))?;
    }
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let room = usize::try_from(limit.saturating_sub(rows)).unwrap_or(usize::MAX);
        rows += batch.num_rows() as u64;
        let batch = batch.slice(0, room.min(batch.num_rows()));
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| cast(column, field.data_type()));
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect::<Result<_, _>>()?)?;
        match form {
            Form::Table => table.push(batch),
            Form::Json | Form::Csv => lines(&mut out, &schema, &batch, form)?,
        }
    }
    progress.finish_and_clear();
    if form == Form::Table && table.iter().any(|batch| batch.num_rows() > 0) {
        let mut text = printable(&pretty_format_batches(&table)?.to_string());
        let width = terminal_size_of(io::stdout()).filter(|_| may_drop);
        let room = width.map_or(usize::MAX, |(Width(columns), _)| columns.into());
        let mut dropped = Vec::new();
        while width_of(&text) > room && table[0].num_columns() > 1 {
            let last = table[0].num_columns() - 1;
            dropped.insert(0, table[0].schema().field(last).name().clone());
            table.iter_mut().for_each(|batch| drop(batch.remove_column(last)));
            text = printable(&pretty_format_batches(&table)?.to_string());
        }
        writeln!(out, "{text}")?;
        if !dropped.is_empty() {
            eprintln(format_args!(
                "no room for {}; a wider terminal, --csv and --json have all columns",
                dropped.join(", ")
            ));
        }
    }
    out.flush()?;
    Ok(rows)
}

/// This schema with the time zone of all times that have one.
fn with_zone(schema: &SchemaRef, zone: &TimeZone) -> SchemaRef {
    let name = zone_name(zone).map(Arc::from);
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Timestamp(unit, Some(_)) => {
            let data_type = DataType::Timestamp(*unit, name.clone());
            Arc::new(field.as_ref().clone().with_data_type(data_type))
        }
        _ => Arc::clone(field),
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Fields>(), schema.metadata().clone()))
}

/// The columns that the lines of a table take.
fn width_of(table: &str) -> usize {
    table.lines().next().unwrap_or_default().chars().count()
}

/// Prints a message on standard error. Nobody may read it any more.
pub(crate) fn eprintln(text: impl Display) {
    let _ = writeln!(io::stderr(), "linerate: {text}");
}

/// Text without characters that control a terminal, as the name of an interface may have them.
fn printable(text: &str) -> String {
    let is_control = |c: char| c.is_control() && c != '\n';
    let escape = |c: char| if is_control(c) { c.escape_default().to_string() } else { c.into() };
    text.chars().map(escape).collect()
}

/// An error with its causes. What it has said already is left out.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string().replace("\ncaused by\n", ": ");
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    let mut parts: Vec<_> = text.split(": ").collect();
    parts.dedup();
    parts.join(": ")
}

/// A count with its noun, in the plural unless the count is 1.
pub(crate) fn plural(count: u64, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

/// Records read so far, on a terminal.
fn progress(plan: &Arc<dyn ExecutionPlan>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner()
        .with_style(ProgressStyle::with_template("{spinner} {msg}").expect("a template"));
    let (shown, plan) = (bar.clone(), Arc::clone(plan));
    tokio::spawn(async move {
        while !shown.is_finished() {
            shown.set_message(format!("{} records read", HumanCount(scanned(&plan))));
            shown.tick();
            tokio::time::sleep(PROGRESS_INTERVAL).await;
        }
    });
    bar
}

/// Records that the leaves of a plan gave.
pub(crate) fn scanned(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let children = plan.children();
    if children.is_empty() {
        let rows = plan.metrics().and_then(|metrics| metrics.output_rows());
        return rows.unwrap_or_default() as u64;
    }
    children.into_iter().map(scanned).sum()
}

fn lines(out: &mut impl Write, schema: &SchemaRef, batch: &RecordBatch, form: Form) -> Result<()> {
    let options = FormatOptions::default();
    let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    for row in 0..batch.num_rows() {
        let text = |column: usize| columns[column].value(row).to_string();
        let present = |column: usize| batch.column(column).is_valid(row);
        if form == Form::Csv {
            let fields: Vec<_> = (0..columns.len()).map(|column| csv(&text(column))).collect();
            writeln!(out, "{}", fields.join(","))?;
            continue;
        }
        let object: Map<_, _> = schema
            .fields()
            .iter()
            .enumerate()
            .filter(|(column, _)| present(*column))
            .map(|(column, field)| {
                let text = text(column);
                let number = matches!(field.data_type(), DataType::Boolean)
                    || field.data_type().is_numeric();
                let value = if number {
                    serde_json::from_str(&text).unwrap_or(Value::String(text))
                } else {
                    Value::String(text)
                };
                (field.name().clone(), value)
            })
            .collect();
        writeln!(out, "{}", Value::Object(object))?;
    }
    Ok(())
}

/// A field of CSV (RFC 4180).
fn csv(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
