//! Log lines on standard error.

use std::fmt;

use tracing::field::Field;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer, debug_fn};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, layer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::json::Schema;
use super::stdio;

/// How a verb logs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// It runs for months: it logs what it does, and when, without -v.
    pub daemon: bool,
    /// One JSON object a line.
    pub json: bool,
}

/// Starts logging at the level that `verbose` (the number of -v) asks for. RUST_LOG overrides it.
pub fn start(verbose: u8, options: Options) {
    let default = match verbose.saturating_add(options.daemon.into()) {
        0 => Level::WARN,
        1 => Level::INFO,
        _ => Level::DEBUG,
    };
    let wanted = std::env::var("RUST_LOG").ok();
    let filter = wanted.and_then(|wanted| wanted.parse::<Targets>().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(default));
    // Its complaint about a line that it cannot write would be a panic where standard error leads nowhere.
    let lines = layer().with_writer(std::io::stderr).with_ansi(false).log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(filter);
    if options.json {
        let lines = lines.json().flatten_event(true).map_event_format(WithSchema);
        registry.with(lines).init();
    } else {
        // The journal has its own clock.
        let clock = options.daemon && !*stdio::TO_JOURNAL;
        registry.with(lines.fmt_fields(debug_fn(write_field)).event_format(Text { clock })).init();
    }
}

/// Writes a field: the reason after the message as everywhere, others with their names.
fn write_field(to: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    match field.name() {
        "message" => write!(to, "{value:?}"),
        "error" => write!(to, ": {value:?}"),
        name => write!(to, " {name}={value:?}"),
    }
}

/// A format of lines as verbs print their own.
struct Text {
    /// With the time before it.
    clock: bool,
}

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        let mut line = String::new();
        if self.clock {
            SystemTime.format_time(&mut Writer::new(&mut line))?;
            line.push(' ');
        }
        line += "linerate: ";
        line += match level {
            Level::WARN => "warning: ",
            Level::DEBUG | Level::TRACE => "debug: ",
            _ => "",
        };
        context.format_fields(Writer::new(&mut line), event)?;
        to.write_str(&stdio::lines(level, *stdio::TO_JOURNAL, line))
    }
}

/// A format of JSON objects, each of which names its schema.
struct WithSchema<F>(F);

impl<S, N, F> FormatEvent<S, N> for WithSchema<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut object = String::new();
        self.0.format_event(context, Writer::new(&mut object), event)?;
        let fields = object.strip_prefix('{').ok_or(fmt::Error)?;
        let object = format!("{{\"schema\":\"{}\",{}", Schema::Log.name(), fields.trim_end());
        to.write_str(&stdio::lines(*event.metadata().level(), *stdio::TO_JOURNAL, object))
    }
}
