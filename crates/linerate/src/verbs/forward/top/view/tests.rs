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
        silent: None,
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
    // A pipe gets no borders and no keys.
    assert!(!text.contains(['│', '─', '█']) && !text.contains("quit"), "{text}");
}

/// Many ports, CPUs, reasons and sessions.
fn busy(ports: usize) -> Rates {
    let port = |number: usize| PortRates {
        interface: format!("enp{number}s0f0np0"),
        ingress: Side { datapath: Some(Datapath::Xdp), reason: None },
        egress: Side { datapath: Some(Datapath::Tc), reason: Some("qdisc htb".to_owned()) },
        rx_packets: 14_880_952.0,
        rx_bits: 9_999e6,
        tx_packets: 14_880_952.0,
        tx_bits: 9_999e6,
    };
    let names = ["fragment", "not_ip", "unknown", "interface", "options", "denied"];
    let reasons = || names.map(|name| Reason { name, rate: 123_456.0, packets: 9_876_543_210 });
    let cpu = |number| Cpu { number, share: Share { busy: 0.75, softirq: 0.5 } };
    Rates {
        instance: "default".to_owned(),
        state: State::Running,
        silent: None,
        seconds: 1.0,
        sessions: Sessions { active: 250, capacity: 1000, memory_bytes: 1 },
        generation: 7,
        blocked: 3,
        ports: (0..ports).map(port).collect(),
        cpus: (0..16).map(cpu).collect(),
        reasons: reasons().into(),
        refusals: reasons().into(),
        fastest: Vec::new(),
    }
}

fn drawn(rates: &Rates, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let look = Look { paused: false, plain: false };
    terminal.draw(|frame| draw(frame, rates, look)).unwrap();
    lines(&terminal)
}

#[test]
fn a_small_terminal_has_all_ports_and_says_what_is_hidden() {
    let text = drawn(&busy(6), 80, 24);
    for number in 0..6 {
        let line = text.lines().find(|line| line.contains(&format!("enp{number}s0f0np0 ")));
        let line = line.unwrap_or_else(|| panic!("no port {number} in\n{text}"));
        assert_eq!(line.matches("14.9 Mpps").count(), 2, "{text}");
        assert_eq!(line.matches("10.0 Gb/s").count(), 2, "{text}");
    }
    assert!(text.contains("CPUs, softirq and total (2 of 16"), "{text}");
    assert!(
        text.contains("slow path (3 of 6") && text.contains("learn refusals (3 of 6"),
        "{text}"
    );
    assert!(text.contains("123.5 kpps") && text.contains("9.9 G"), "{text}");
    // Also where they alone are too many.
    let text = drawn(&busy(30), 80, 24);
    assert!(text.contains("ports (19 of 30"), "{text}");
}

#[test]
fn a_large_terminal_has_everything_once() {
    let text = drawn(&busy(6), 200, 60);
    assert_eq!(text.matches("out: tc (qdisc htb)").count(), 6, "{text}");
    assert!(text.contains("CPUs, softirq and total (8 of 16"), "{text}");
    assert!(text.contains("─slow path─") || text.contains("slow path──"), "{text}");
    assert_eq!(text.matches("9876543210").count(), 12, "{text}");
    // A table is as wide as it has to be.
    let port = text.lines().find(|line| line.contains("enp0s0f0np0 ")).unwrap();
    assert!(port.trim_end_matches(['│', ' ']).chars().count() < 100, "{text}");
}
