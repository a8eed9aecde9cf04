//! `linerate forward top`: rates, CPUs and the reasons of the slow path, live.

mod cpu;
mod rates;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use linerate_forward::runtime::instance::Instance;
use linerate_forward::table::session::{self, Selection, Sort};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::arguments::Top;
use crate::cli::json::{self, Schema};
use crate::cli::stdio;
use rates::{Rates, Sample};

/// Columns of a view in a pipe or a file.
const WIDTH: u16 = 100;

/// Runs it.
pub(super) fn run(arguments: &Top) -> Result<ExitCode> {
    let mut source = Source::open(arguments)?;
    let interval = arguments.interval.max(cpu::SHORTEST);
    let first = source.sample()?;
    // A pipe gets one view.
    if arguments.once || !std::io::stdout().is_terminal() {
        std::thread::sleep(interval);
        let rates = source.sample()?.since(&first);
        if arguments.json {
            json::print(Schema::ForwardTop, &rates)?;
        } else {
            stdio::println(view::text(&rates, stdio::width().unwrap_or(WIDTH)))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdin().is_terminal() {
        bail!(
            "top reads keys from standard input, which is not a terminal; `linerate forward top --once` prints one view"
        );
    }
    let terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let outcome = watch(terminal, interval, first, source);
    ratatui::restore();
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Where views come from.
struct Source {
    instance: Instance,
    rates: Option<session::Rates>,
    limit: usize,
    sort: Sort,
}

impl Source {
    fn open(arguments: &Top) -> Result<Self> {
        let instance = arguments.instance.open()?;
        // Without sessions to show, the table is not read.
        let rates = (arguments.limit > 0).then(|| instance.rates());
        Ok(Self { instance, rates, limit: arguments.limit, sort: Sort::PacketRate })
    }

    fn sample(&mut self) -> Result<Sample> {
        let snapshot = self.instance.snapshot()?;
        let mut selection = Selection::new(session::Filter::default(), self.sort, self.limit);
        if let Some(rates) = &mut self.rates {
            self.instance.sessions(Some(rates), |session| selection.add(session))?;
        }
        Ok(Sample::of((snapshot, selection.into_sessions())))
    }

    /// Switches between packets and bytes.
    fn toggle_sort(&mut self) {
        self.sort = match self.sort {
            Sort::PacketRate => Sort::ByteRate,
            _ => Sort::PacketRate,
        };
    }
}

/// Draws until a key quits.
fn watch(
    mut terminal: DefaultTerminal,
    interval: Duration,
    first: Sample,
    mut source: Source,
) -> Result<()> {
    let mut paused = false;
    let mut rates = first.since(&first);
    let mut last = first;
    let mut draw = |rates: &Rates, paused| {
        let look = view::Look { paused, plain: false };
        terminal.draw(|frame| view::draw(frame, rates, look)).context("cannot draw").map(|_| ())
    };
    loop {
        draw(&rates, paused)?;
        let due = last.at + interval;
        // Paused, it waits for a key; otherwise until the next view is due at most.
        let timeout = due.saturating_duration_since(Instant::now());
        if (paused || !timeout.is_zero()) && wait(paused, timeout)? {
            match event::read().context("cannot read the keyboard")? {
                Event::Key(key) if is_quit(key) => return Ok(()),
                Event::Key(KeyEvent {
                    code: KeyCode::Char('p'),
                    kind: KeyEventKind::Press,
                    ..
                }) => paused = !paused,
                Event::Key(KeyEvent {
                    code: KeyCode::Char('s'),
                    kind: KeyEventKind::Press,
                    ..
                }) => source.toggle_sort(),
                _ => {}
            }
            continue;
        }
        let sample = source.sample()?;
        rates = sample.since(&last);
        last = sample;
    }
}

/// Whether a key came.
fn wait(paused: bool, timeout: Duration) -> Result<bool> {
    let timeout = if paused { Duration::from_secs(3600) } else { timeout };
    event::poll(timeout).context("cannot read the keyboard")
}

fn is_quit(key: KeyEvent) -> bool {
    let interrupted =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    interrupted || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}
