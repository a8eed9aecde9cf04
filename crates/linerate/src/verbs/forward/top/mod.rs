//! `linerate forward top`: rates, CPUs and the reasons of the slow path, live.

mod cpu;
mod rates;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use linerate_forward::instance::Instance;
use linerate_forward::session::{self, Selection, Sort};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::arguments::Top;
use crate::cli::stdio;
use rates::{Rates, Sample};

/// Columns of a view that is printed.
const WIDTH: u16 = 100;

/// Runs it.
pub(super) fn run(arguments: &Top) -> Result<ExitCode> {
    let mut source = Source::open(arguments)?;
    let interval = arguments.interval.max(cpu::SHORTEST);
    let first = source.sample()?;
    if arguments.once {
        std::thread::sleep(interval);
        let rates = source.sample()?.since(&first);
        if arguments.json {
            stdio::println(serde_json::to_string(&rates).context("cannot write the JSON")?)?;
        } else {
            stdio::println(view::text(&rates, WIDTH))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!(
            "top draws on a terminal, and standard input or output is none; `linerate forward top --once` \
             prints one view, and --once --json one for programs"
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
            self.instance.sessions(Some(rates), |session| selection.offer(session))?;
        }
        Ok(Sample::of((snapshot, selection.into_sessions())))
    }

    /// By packets or by bytes.
    fn sort_otherwise(&mut self) {
        self.sort = match self.sort {
            Sort::PacketRate => Sort::ByteRate,
            _ => Sort::PacketRate,
        };
    }
}

/// Draws until a key ends it.
fn watch(
    mut terminal: DefaultTerminal,
    interval: Duration,
    first: Sample,
    mut source: Source,
) -> Result<()> {
    let mut held = false;
    let mut rates = first.since(&first);
    let mut last = first;
    let mut draw = |rates: &Rates, held| {
        terminal.draw(|frame| view::draw(frame, rates, held)).context("cannot draw").map(|_| ())
    };
    loop {
        draw(&rates, held)?;
        let due = last.at + interval;
        // Held, it waits for a key for ever; else no longer than until the next view.
        let patience = due.saturating_duration_since(Instant::now());
        if (held || !patience.is_zero()) && wait(held, patience)? {
            match event::read().context("cannot read the keyboard")? {
                Event::Key(key) if is_end(key) => return Ok(()),
                Event::Key(KeyEvent {
                    code: KeyCode::Char('p'),
                    kind: KeyEventKind::Press,
                    ..
                }) => held = !held,
                Event::Key(KeyEvent {
                    code: KeyCode::Char('s'),
                    kind: KeyEventKind::Press,
                    ..
                }) => source.sort_otherwise(),
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
fn wait(held: bool, patience: Duration) -> Result<bool> {
    let patience = if held { Duration::from_secs(3600) } else { patience };
    event::poll(patience).context("cannot read the keyboard")
}

fn is_end(key: KeyEvent) -> bool {
    let interrupted =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    interrupted || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}
