//! Log lines on standard error.

use std::fmt;
use std::io::IsTerminal;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, layer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::json::Schema;

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
    let colours = std::io::stderr().is_terminal();
    // Its complaint about a line that it cannot write would be a panic where standard error leads nowhere.
    let lines = layer().with_writer(std::io::stderr).with_ansi(colours).log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(filter);
    // The journal has its own clock.
    let timed = options.daemon && std::env::var_os("JOURNAL_STREAM").is_none();
    match (options.json, timed) {
        (true, _) => {
            let lines = lines.json().flatten_event(true).map_event_format(WithSchema);
            registry.with(lines).init();
        }
        (false, true) => registry.with(lines.with_target(false)).init(),
        (false, false) => registry.with(lines.without_time()).init(),
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
        write!(to, "{{\"schema\":\"{}\",{fields}", Schema::Log.name())
    }
}
