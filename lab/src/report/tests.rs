//! The page in a real browser, at desktop and phone width.

use linerate_testkit::browser;

use super::*;
use crate::report::distribution::Distribution;
use crate::report::environment::Environment;
use crate::report::summary::{Axis, Chart, Claim, Line, Point, Role};

/// A summary with every kind of thing on the page: crowded lines, bars, a point whose runs were
/// all void, text that needs escaping.
pub(crate) fn sample() -> Summary {
    let point = |x: f64, middle: f64| Point {
        x,
        spread: Distribution::of([0.96, 0.99, 1.0, 1.01, 1.03].map(|part| part * middle)),
        void: 0,
        remark: None,
    };
    let sizes = [64.0, 128.0, 256.0, 512.0, 1024.0, 1500.0];
    let line = |name: &str, role, start: f64| Line {
        name: name.into(),
        role,
        points: sizes.map(|x| point(x, start / (1.0 + x / 3000.0))).into(),
    };
    let mut lines = vec![
        line("xdp, huge pages", Role::Ours, 2.9),
        line("xdp, small pages", Role::Ours, 2.8),
        line("packet, huge pages", Role::Ours, 1.16),
        line("packet, small pages", Role::Ours, 1.12),
        line("tee, huge pages", Role::Ours, 1.61),
        line("tee, small pages", Role::Ours, 1.58),
        line("tcpdump", Role::Peer, 1.04),
        line("dumpcap", Role::Peer, 0.96),
        line("netsniff-ng", Role::Peer, 1.03),
        line("plain AF_XDP loop", Role::Limit, 3.0),
    ];
    lines[7].points[0] = Point { x: 64.0, spread: None, void: 5, remark: Some("5 of 5".into()) };
    let bars =
        lines.iter().map(|line| Line { points: vec![line.points[1].clone()], ..line.clone() });
    let bars = Chart::bars(
        "cost",
        "What a frame costs",
        "Shorter is better.",
        Axis::linear("cost of the stage", "ns a frame"),
        bars.collect(),
    );
    let chart = Chart::lines(
        "rate",
        "Frames captured a second",
        "Higher is better <script>alert(1)</script> & so on.",
        Axis::logarithmic("frame size", "bytes"),
        Axis::linear("captured", "million frames a second"),
        lines,
    );
    Summary {
        experiment: "capture-rate".into(),
        title: "How many frames a second".into(),
        about: "A sample for the test of the page.".into(),
        started: "2026-01-02 03:04".into(),
        seconds: 61.0,
        quick: true,
        environment: Environment { driver: "veth".into(), ..Environment::gather() },
        charts: vec![chart, bars],
        claims: vec![
            Claim::at_least("xdp against tcpdump", Distribution::of([2.6, 2.8, 2.9]), 2.7, 3),
            Claim::at_most("cost against tcpdump", Distribution::of([0.3]), 1.0 / 4.5, 1),
            Claim::at_least("a peer that is not there", None, 1.0, 5),
        ],
        notes: vec!["A note.".into()],
        void: vec!["dumpcap at 64 bytes, repeat 1: 12 frames are unaccounted for".into()],
    }
}

#[test]
fn the_page_refers_to_nothing_outside() {
    let html = page(&[sample()]);
    for forbidden in ["http://", "https://", "src=", "@import", "url(", "<script"] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    assert!(html.contains("&lt;script&gt;"));
    for name in [
        "xdp, huge pages",
        "tcpdump",
        "netsniff-ng",
        "5 void",
        "Void runs",
        "veth",
        "spread on both sides",
    ] {
        assert!(html.contains(name), "{name}");
    }
}

#[test]
fn a_missing_point_leaves_a_gap_and_bars_are_explained() {
    let mut summary = sample();
    let line = &mut summary.charts[0].lines[0];
    line.points[2].spread = None;
    let chart = &summary.charts[0];
    let drawn = lines::draw(chart, chart.x.as_ref().unwrap(), svg::WIDE);
    let group = drawn.split("<g class=\"series ours0\">").nth(1).unwrap();
    let group = group.split("</g>").next().unwrap();
    let paths: Vec<_> =
        group.lines().filter(|line| line.starts_with("<path class=\"line\"")).collect();
    let corners: Vec<_> = paths.iter().map(|path| path.matches('L').count() + 1).collect();
    assert_eq!(corners, [2, 3], "{group}");
    assert_eq!(group.matches("<circle").count(), 5);
    let html = page(&[summary]);
    assert_eq!(html.matches("Thin bars reach").count(), 2, "a line in each figure");
}

#[test]
fn a_browser_draws_the_charts_at_both_widths_light_and_dark() {
    if !browser::is_installed() {
        linerate_testkit::skip!("chromium is not installed");
    }
    let page = page(&[sample()]);
    for (width, class) in [(1280, "chart wide"), (390, "chart narrow")] {
        for dark in [false, true] {
            let shown = browser::open(&page, width, dark);
            shown.hold(dark);
            let drawn: Vec<_> =
                shown.drawings.iter().map(|d| (d.class.as_str(), d.drawn)).collect();
            assert_eq!(drawn, [(class, 10), (class, 10)], "at a width of {width}");
        }
    }
}
