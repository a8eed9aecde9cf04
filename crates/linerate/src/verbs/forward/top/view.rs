//! One view of the rates, on any terminal that ratatui draws on.

use crate::cli::stdio::plural;
use linerate_forward::snapshot::State;
use linerate_forward::table::session::Session;
use linerate_forward::tuple::FiveTuple;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Gauge, Padding, Paragraph, Row, Table};
use ratatui::{Frame, Terminal};

use super::rates::{Cpu, PortRates, Rates, Reason};
use crate::cli::progress::scaled;

/// CPUs that are drawn at most; the busiest.
const MAX_CPUS: usize = 8;
/// Rows of a panel around its content: borders, or its title and an empty line.
const FRAME: usize = 2;
/// Columns from which on numbers have three digits behind the point.
const WIDE: u16 = 100;

/// How a view is drawn.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) paused: bool,
    /// Without borders and bars, as a pipe or a file takes it.
    pub(super) plain: bool,
}

/// Rows of the content of each panel; 0 where it is left out.
#[derive(Debug, Default, PartialEq)]
struct Rows {
    ports: usize,
    port_reasons: usize,
    cpus: usize,
    sessions: usize,
    /// Of the slow path and the learn refusals, which are beside each other.
    lists: usize,
}

impl Rows {
    /// All that there is.
    fn wanted(rates: &Rates) -> Self {
        Self {
            ports: rates.ports.len(),
            port_reasons: port_reasons(&rates.ports).len(),
            cpus: rates.cpus.len().min(MAX_CPUS),
            sessions: rates.fastest.len(),
            lists: rates.reasons.len().max(rates.refusals.len()).max(1),
        }
    }

    /// Rows that these panels take with their frames and the names of their columns.
    fn total(&self) -> usize {
        let panel = |rows: usize, names: usize| if rows == 0 { 0 } else { rows + names + FRAME };
        panel(self.ports, 1)
            + self.port_reasons
            + panel(self.cpus, 0)
            + panel(self.sessions, 1)
            + panel(self.lists, 1)
    }

    /// What fits into `height` rows: all ports first, then some of everything, then the rest.
    fn fitting(wanted: &Self, height: usize) -> Self {
        let mut rows = Self::default();
        let mut grow = |field: fn(&mut Self) -> &mut usize, most: usize| {
            while *field(&mut rows) < most {
                *field(&mut rows) += 1;
                if rows.total() > height {
                    *field(&mut rows) -= 1;
                    break;
                }
            }
        };
        grow(|rows| &mut rows.ports, wanted.ports);
        grow(|rows| &mut rows.lists, wanted.lists.min(3));
        grow(|rows| &mut rows.cpus, wanted.cpus.min(2));
        grow(|rows| &mut rows.sessions, wanted.sessions.min(3));
        grow(|rows| &mut rows.port_reasons, wanted.port_reasons);
        grow(|rows| &mut rows.lists, wanted.lists);
        grow(|rows| &mut rows.sessions, wanted.sessions);
        grow(|rows| &mut rows.cpus, wanted.cpus);
        rows
    }
}

/// Draws it.
pub(super) fn draw(frame: &mut Frame<'_>, rates: &Rates, look: Look) {
    let head = header(rates, look);
    let room = usize::from(frame.area().height).saturating_sub(head.len());
    let rows = Rows::fitting(&Rows::wanted(rates), room);
    let panel = |rows: usize, names: usize| match rows {
        0 => Constraint::Length(0),
        rows => Constraint::Length((rows + names + FRAME) as u16),
    };
    let [top, ports, processors, sessions, lists] = Layout::vertical([
        Constraint::Length(head.len() as u16),
        Constraint::Length((rows.ports + rows.port_reasons + 1 + FRAME) as u16),
        panel(rows.cpus, 0),
        panel(rows.sessions, 1),
        panel(rows.lists, 1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head), top);
    let mut panels = Panels { frame, look };
    panels.ports(ports, &rates.ports, &rows);
    if rows.cpus > 0 {
        panels.cpus(processors, &rates.cpus, rows.cpus);
    }
    if rows.sessions > 0 {
        panels.sessions(sessions, &rates.fastest, rows.sessions);
    }
    if rows.lists > 0 {
        let halves = Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]);
        let [left, right] = halves.areas(lists);
        panels.reasons(left, "slow path", &rates.reasons, rows.lists);
        panels.reasons(right, "learn refusals", &rates.refusals, rows.lists);
    }
}

fn header(rates: &Rates, look: Look) -> Vec<Line<'_>> {
    let (word, colour) = match rates.state {
        State::Starting => ("starting", Color::Yellow),
        State::Running => ("running", Color::Green),
        State::Unattended => ("no daemon", Color::Yellow),
        State::FailOpen => ("failed open to the kernel", Color::Red),
    };
    let word = match rates.silent {
        Some(process) if rates.state == State::FailOpen => {
            format!("{word}: process {process} does not answer")
        }
        Some(process) => format!("process {process} does not answer"),
        None => word.to_owned(),
    };
    let colour = if rates.silent.is_some() { Color::Red } else { colour };
    let sessions = &rates.sessions;
    let full = 100.0 * sessions.active as f64 / sessions.capacity.max(1) as f64;
    let paused = if look.paused { "  PAUSED" } else { "" };
    let keys = if look.plain { "" } else { "   q: quit, p: pause, s: sort" };
    vec![
        Line::from(vec![
            Span::from("linerate forward  ").bold(),
            Span::from(&rates.instance),
            Span::from("  "),
            Span::styled(word, Style::new().fg(colour).bold()),
            Span::from(paused).bold(),
        ]),
        Line::from(format!(
            "{}, table {full:.1}% full, generation {}, {} blocked{keys}",
            plural(sessions.active, "session"),
            rates.generation,
            rates.blocked
        )),
    ]
}

/// Why packets of ports do not take the fastest datapath: a line for each direction.
fn port_reasons(ports: &[PortRates]) -> Vec<String> {
    let sides = ports
        .iter()
        .flat_map(|port| [("in", &port.ingress), ("out", &port.egress)].map(|side| (port, side)));
    let slower = sides.filter(|(_, (_, side))| side.reason.is_some());
    slower.map(|(port, (way, side))| format!("{} {way}: {side}", port.interface)).collect()
}

/// A title that says what the panel does not show.
fn title(name: &str, shown: usize, all: usize) -> String {
    if shown < all {
        format!("{name} ({shown} of {all}, the others have no room)")
    } else {
        name.to_owned()
    }
}

/// The longest of these texts, in columns.
fn longest<'a>(texts: impl Iterator<Item = &'a str>, least: usize) -> u16 {
    texts.map(|text| text.chars().count()).fold(least, usize::max) as u16
}

struct Panels<'a, 'b> {
    frame: &'a mut Frame<'b>,
    look: Look,
}

impl Panels<'_, '_> {
    /// Draws the frame of a panel, and returns the area inside.
    fn open(&mut self, area: Rect, title: String) -> Rect {
        let block = match self.look.plain {
            true => Block::new().title(title).padding(Padding::bottom(1)),
            false => Block::bordered().title(title),
        };
        let inner = block.inner(area);
        self.frame.render_widget(block, area);
        inner
    }

    /// A rate in as many columns as there is room for, and their number.
    fn rate(&self, value: f64, unit: &str) -> Cell<'static> {
        let text = match self.frame.area().width < WIDE {
            true => short(value, unit),
            false => scaled(value, unit),
        };
        number(text)
    }

    fn rate_width(&self) -> u16 {
        if self.frame.area().width < WIDE { 10 } else { 13 }
    }

    fn ports(&mut self, area: Rect, ports: &[PortRates], shown: &Rows) {
        let inner = self.open(area, title("ports", shown.ports, ports.len()));
        let table = Constraint::Length(shown.ports as u16 + 1);
        let [area, below] = Layout::vertical([table, Constraint::Min(0)]).areas(inner);
        let mut reasons = port_reasons(ports);
        let all = reasons.len();
        reasons.truncate(shown.port_reasons);
        if let Some(last) = reasons.last_mut().filter(|_| shown.port_reasons < all) {
            *last += &format!("  (and {} more)", all - shown.port_reasons);
        }
        let reasons: Vec<_> = reasons.into_iter().map(Line::from).collect();
        self.frame.render_widget(Paragraph::new(reasons), below);
        let rows = ports.iter().take(shown.ports).map(|port| {
            Row::new([
                Cell::from(port.interface.as_str()),
                Cell::from(port.ingress.name()),
                self.rate(port.rx_packets, "pps"),
                self.rate(port.rx_bits, "b/s"),
                Cell::from(port.egress.name()),
                self.rate(port.tx_packets, "pps"),
                self.rate(port.tx_bits, "b/s"),
            ])
        });
        let rows: Vec<_> = rows.collect();
        let names = ["port", "received", "", "", "sent", "", ""].map(Cell::from);
        let name = longest(ports.iter().map(|port| port.interface.as_str()), 4);
        let [name, datapath, rate] = [name, 8, self.rate_width()].map(Constraint::Length);
        let widths = [name, datapath, rate, rate, datapath, rate, rate];
        self.frame.render_widget(Table::new(rows, widths).header(Row::new(names).bold()), area);
    }

    fn cpus(&mut self, area: Rect, cpus: &[Cpu], shown: usize) {
        let inner = self.open(area, title("CPUs, softirq and total", shown, cpus.len()));
        let mut busiest: Vec<&Cpu> = cpus.iter().collect();
        busiest.sort_by(|a, b| {
            b.share.softirq.total_cmp(&a.share.softirq).then(a.number.cmp(&b.number))
        });
        busiest.truncate(shown);
        let lines = Layout::vertical(vec![Constraint::Length(1); busiest.len()]).split(inner);
        for (cpu, line) in busiest.into_iter().zip(lines.iter()) {
            let share = cpu.share;
            let (softirq, busy) = (100.0 * share.softirq, 100.0 * share.busy);
            let label = format!("cpu{} {softirq:.0}% softirq, {busy:.0}% total", cpu.number);
            if self.look.plain {
                self.frame.render_widget(Paragraph::new(label), *line);
                continue;
            }
            let gauge = Gauge::default().gauge_style(Style::new().fg(Color::Blue));
            let gauge = gauge.ratio(share.softirq.clamp(0.0, 1.0)).label(label);
            self.frame.render_widget(gauge, *line);
        }
    }

    fn sessions(&mut self, area: Rect, sessions: &[Session], shown: usize) {
        let inner = self.open(area, title("fastest sessions", shown, sessions.len()));
        // Addresses and ports as ss(8) prints them.
        let named = |session: &Session| {
            let FiveTuple { protocol, source, destination } = session.tuple;
            let tuple = format!("{protocol} {source} {destination}");
            (tuple, format!("{}>{}", session.ingress, session.egress))
        };
        let texts: Vec<_> = sessions.iter().take(shown).map(named).collect();
        let path = longest(texts.iter().map(|(_, path)| path.as_str()), 4);
        let tuple = longest(texts.iter().map(|(tuple, _)| tuple.as_str()), 7);
        let rate = self.rate_width();
        // Those that have no room are left out, the last of these first.
        let least_needed = [("packets", rate), ("bits", rate), ("by", 3), ("path", path)];
        let mut room = inner.width.saturating_sub(tuple);
        let fits = |&(_, width): &(&str, u16)| {
            let left = room.checked_sub(width + 1);
            room = left.unwrap_or(0);
            left.is_some()
        };
        let shown: Vec<_> = least_needed.into_iter().take_while(fits).collect();
        let rows = sessions.iter().zip(&texts).map(|(session, (tuple, path))| {
            let rate = session.rate.unwrap_or_default();
            let cell = |&(name, _): &(&str, u16)| match name {
                "packets" => self.rate(rate.packets, "pps"),
                "bits" => self.rate(rate.bytes * 8.0, "b/s"),
                "by" => Cell::from(session.datapath.name()),
                _ => Cell::from(path.as_str()),
            };
            Row::new([Cell::from(tuple.as_str())].into_iter().chain(shown.iter().map(cell)))
        });
        let rows: Vec<_> = rows.collect();
        let names = ["session"].into_iter().chain(shown.iter().map(|(name, _)| *name));
        let names = Row::new(names.map(Cell::from)).bold();
        let widths = [tuple].into_iter().chain(shown.iter().map(|(_, width)| *width));
        let widths = widths.map(Constraint::Length);
        self.frame.render_widget(Table::new(rows, widths).header(names), inner);
    }

    fn reasons(&mut self, area: Rect, name: &str, reasons: &[Reason], shown: usize) {
        let shown = shown.min(reasons.len());
        let inner = self.open(area, title(name, shown, reasons.len()));
        let rows = reasons.iter().take(shown).map(|reason| {
            let packets = match self.frame.area().width < WIDE {
                true => short(reason.packets as f64, ""),
                false => reason.packets.to_string(),
            };
            Row::new([Cell::from(reason.name), self.rate(reason.rate, "pps"), number(packets)])
        });
        let rows: Vec<_> = rows.collect();
        let rate = self.rate_width();
        let room = inner.width.saturating_sub(2 * rate + 2);
        let reason = longest(reasons.iter().map(|reason| reason.name), 6).min(room);
        let widths = [reason, rate, rate].map(Constraint::Length);
        let names = ["reason", "rate", "packets"].map(Cell::from);
        self.frame.render_widget(Table::new(rows, widths).header(Row::new(names).bold()), inner);
    }
}

/// As [`scaled`], with one digit behind the point.
fn short(value: f64, unit: &str) -> String {
    match value {
        value if value >= 1e9 => format!("{:.1} G{unit}", value / 1e9),
        value if value >= 1e6 => format!("{:.1} M{unit}", value / 1e6),
        value if value >= 1e3 => format!("{:.1} k{unit}", value / 1e3),
        value => format!("{value:.0} {unit}"),
    }
}

fn number(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

/// The view as lines of text.
pub(super) fn text(rates: &Rates, width: u16) -> String {
    let look = Look { paused: false, plain: true };
    let rows = header(rates, look).len() + Rows::wanted(rates).total();
    let area = Rect::new(0, 0, width, u16::try_from(rows).unwrap_or(u16::MAX));
    let mut terminal = match Terminal::new(TestBackend::new(area.width, area.height)) {
        Ok(terminal) => terminal,
        Err(impossible) => match impossible {},
    };
    match terminal.draw(|frame| draw(frame, rates, look)) {
        Ok(_) => {}
        Err(impossible) => match impossible {},
    }
    lines(&terminal)
}

/// What is drawn, without empty ends.
fn lines(terminal: &Terminal<TestBackend>) -> String {
    let buffer = terminal.backend().buffer();
    let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let lines: Vec<_> = (0..buffer.area.height).map(|y| line(y).trim_end().to_owned()).collect();
    lines.join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests;
