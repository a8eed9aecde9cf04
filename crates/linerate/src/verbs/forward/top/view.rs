//! One view of the rates, on any terminal that ratatui draws on.

use linerate_forward::snapshot::State;
use linerate_forward::table::session::Session;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Gauge, Paragraph, Row, Table};
use ratatui::{Frame, Terminal};

use super::rates::{Cpu, PortRates, Rates, Reason};
use crate::cli::progress::scaled;

/// CPUs that are drawn at most; the busiest.
const MAX_CPUS: usize = 8;

/// Draws it.
pub(super) fn draw(frame: &mut Frame<'_>, rates: &Rates, paused: bool) {
    let cpus = rates.cpus.len().min(MAX_CPUS) as u16;
    let [head, ports, processors, sessions, lists] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(port_rows(rates)),
        Constraint::Length(cpus + 2),
        Constraint::Length(session_rows(rates)),
        Constraint::Min(3),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(header(rates, paused)), head);
    draw_ports(frame, ports, &rates.ports);
    draw_cpus(frame, processors, &rates.cpus);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(lists);
    draw_sessions(frame, sessions, &rates.fastest);
    draw_reasons(frame, left, "slow path", &rates.reasons);
    draw_reasons(frame, right, "learn refusals", &rates.refusals);
}

fn header(rates: &Rates, paused: bool) -> Vec<Line<'_>> {
    let (word, colour) = match rates.state {
        State::Running => ("running", Color::Green),
        State::Unattended => ("no daemon", Color::Yellow),
        State::FailOpen => ("failed open to the kernel", Color::Red),
    };
    let sessions = &rates.sessions;
    let full = 100.0 * sessions.active as f64 / sessions.capacity.max(1) as f64;
    let paused = if paused { "  PAUSED" } else { "" };
    vec![
        Line::from(vec![
            Span::from("linerate forward  ").bold(),
            Span::from(&rates.instance),
            Span::from("  "),
            Span::styled(word, Style::new().fg(colour).bold()),
            Span::from(paused).bold(),
        ]),
        Line::from(format!(
            "{} sessions, table {full:.1}% full, generation {}, {} blocked   q: quit, p: pause, s: sort",
            sessions.active, rates.generation, rates.blocked
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

fn port_rows(rates: &Rates) -> u16 {
    (rates.ports.len() + port_reasons(&rates.ports).len() + 3) as u16
}

fn draw_ports(frame: &mut Frame<'_>, area: Rect, ports: &[PortRates]) {
    let block = Block::bordered().title("ports");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [area, below] =
        Layout::vertical([Constraint::Length(ports.len() as u16 + 1), Constraint::Min(0)])
            .areas(inner);
    let reasons: Vec<_> = port_reasons(ports).into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(reasons), below);
    let rows = ports.iter().map(|port| {
        let cells = [
            (port.rx_packets, "pps"),
            (port.rx_bits, "b/s"),
            (port.tx_packets, "pps"),
            (port.tx_bits, "b/s"),
        ];
        let cells = cells.map(|(value, unit)| number(scaled(value, unit)));
        let [rx_packets, rx_bits, tx_packets, tx_bits] = cells;
        Row::new([
            Cell::from(port.interface.as_str()),
            Cell::from(port.ingress.name()),
            rx_packets,
            rx_bits,
            Cell::from(port.egress.name()),
            tx_packets,
            tx_bits,
        ])
    });
    let names = ["port", "received", "", "", "sent", "", ""].map(Cell::from);
    let [datapath, rate] = [8, 13].map(Constraint::Length);
    let widths = [Constraint::Min(15), datapath, rate, rate, datapath, rate, rate];
    frame.render_widget(Table::new(rows, widths).header(Row::new(names).bold()), area);
}

fn draw_cpus(frame: &mut Frame<'_>, area: Rect, cpus: &[Cpu]) {
    let block = Block::bordered().title("CPUs, softirq and total");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let mut busiest: Vec<&Cpu> = cpus.iter().collect();
    busiest
        .sort_by(|a, b| b.share.softirq.total_cmp(&a.share.softirq).then(a.number.cmp(&b.number)));
    busiest.truncate(MAX_CPUS);
    let lines = Layout::vertical(vec![Constraint::Length(1); busiest.len()]).split(inner);
    for (cpu, line) in busiest.into_iter().zip(lines.iter()) {
        let share = cpu.share;
        let label = format!(
            "cpu{} {:.0}% softirq, {:.0}% total",
            cpu.number,
            100.0 * share.softirq,
            100.0 * share.busy
        );
        let gauge = Gauge::default().gauge_style(Style::new().fg(Color::Blue));
        frame.render_widget(gauge.ratio(share.softirq.clamp(0.0, 1.0)).label(label), *line);
    }
}

fn session_rows(rates: &Rates) -> u16 {
    if rates.fastest.is_empty() { 0 } else { rates.fastest.len() as u16 + 3 }
}

fn draw_sessions(frame: &mut Frame<'_>, area: Rect, sessions: &[Session]) {
    let rows = sessions.iter().map(|session| {
        let rate = session.rate.unwrap_or_default();
        Row::new([
            Cell::from(session.tuple.to_string()),
            Cell::from(format!("{}>{}", session.ingress, session.egress)),
            Cell::from(session.datapath.name()),
            number(scaled(rate.packets, "pps")),
            number(scaled(rate.bytes * 8.0, "b/s")),
        ])
    });
    let names = ["session", "path", "by", "packets", "bits"].map(Cell::from);
    let widths = [
        Constraint::Min(40),
        Constraint::Length(20),
        Constraint::Length(3),
        Constraint::Length(14),
        Constraint::Length(14),
    ];
    let table = Table::new(rows, widths).header(Row::new(names).bold());
    frame.render_widget(table.block(Block::bordered().title("fastest sessions")), area);
}

fn draw_reasons(frame: &mut Frame<'_>, area: Rect, title: &str, reasons: &[Reason]) {
    let rows = reasons.iter().map(|reason| {
        let rate = scaled(reason.rate, "pps");
        Row::new([Cell::from(reason.name), number(rate), number(reason.packets.to_string())])
    });
    let widths = [Constraint::Min(16), Constraint::Length(12), Constraint::Length(12)];
    let names = ["reason", "rate", "packets"].map(Cell::from);
    let table = Table::new(rows, widths).header(Row::new(names).bold());
    frame.render_widget(table.block(Block::bordered().title(title.to_owned())), area);
}

fn number(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

/// The view as lines of text.
pub(super) fn text(rates: &Rates, width: u16) -> String {
    let lists = rates.reasons.len().max(rates.refusals.len());
    let rows = rates.cpus.len().min(MAX_CPUS) + lists + 10;
    let rows = rows + usize::from(port_rows(rates) + session_rows(rates));
    let area = Rect::new(0, 0, width, u16::try_from(rows).unwrap_or(u16::MAX));
    let mut terminal = match Terminal::new(TestBackend::new(area.width, area.height)) {
        Ok(terminal) => terminal,
        Err(impossible) => match impossible {},
    };
    match terminal.draw(|frame| draw(frame, rates, false)) {
        Ok(_) => {}
        Err(impossible) => match impossible {},
    }
    let buffer = terminal.backend().buffer();
    let line = |y| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let lines: Vec<_> = (0..area.height).map(|y| line(y).trim_end().to_owned()).collect();
    lines.join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use linerate_forward::datapath::Datapath;
    use linerate_forward::snapshot::{Sessions, Side};

    use super::super::cpu::Share;
    use super::*;

    #[test]
    fn everything_is_in_the_text() {
        let reason = |name, rate| Reason { name, rate, packets: 12 };
        let rates = Rates {
            instance: "blue".to_owned(),
            state: State::Unattended,
            seconds: 1.0,
            sessions: Sessions { active: 250, capacity: 1000, memory_bytes: 1 },
            generation: 7,
            blocked: 3,
            ports: vec![PortRates {
                interface: "eth1".to_owned(),
                ingress: Side { datapath: Some(Datapath::Xdp), reason: None },
                egress: Side { datapath: None, reason: Some("filter route".to_owned()) },
                rx_packets: 1_500_000.0,
                rx_bits: 768e6,
                tx_packets: 10.0,
                tx_bits: 5120.0,
            }],
            cpus: vec![Cpu { number: 1, share: Share { busy: 0.75, softirq: 0.5 } }],
            reasons: (0..30).map(|_| reason("fragment", 2.0)).chain([reason("syn", 1.0)]).collect(),
            refusals: vec![reason("ttl", 0.0)],
            fastest: Vec::new(),
        };
        let text = text(&rates, 100);
        for word in [
            "blue",
            "no daemon",
            "250 sessions",
            "25.0% full",
            "generation 7",
            "3 blocked",
            " xdp ",
            "kernel ",
            "eth1 out: kernel (filter route)",
            "1.500 Mpps",
            "768.000 Mb/s",
            "10.0 pps",
            "5.120 kb/s",
            "cpu1 50% softirq, 75% total",
            "fragment",
            "syn",
            "ttl",
            "12",
        ] {
            assert!(text.contains(word), "no {word} in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}
