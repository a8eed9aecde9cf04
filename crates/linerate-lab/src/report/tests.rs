//! The page in a real browser, at a desk's and a phone's width.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::*;
use crate::facts::{Facts, installed};
use crate::model::{Axis, Chart, Claim, Line, Point, Role};
use crate::statistics::Spread;

/// A summary with every kind of thing on the page: crowded lines, bars, a point whose runs were
/// all void, text that needs escaping.
pub(crate) fn sample() -> Summary {
    let point = |x: f64, middle: f64| Point {
        x,
        spread: Spread::of([0.96, 0.99, 1.0, 1.01, 1.03].map(|part| part * middle)),
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
        line("bare AF_XDP loop", Role::Limit, 3.0),
    ];
    lines[7].points[0] = Point { x: 64.0, spread: None, void: 5, remark: Some("5 of 5".into()) };
    let bars =
        lines.iter().map(|line| Line { points: vec![line.points[1].clone()], ..line.clone() });
    let bars = Chart {
        id: "cost".into(),
        title: "What a frame costs".into(),
        caption: "Shorter is better.".into(),
        x: None,
        y: Axis::linear("cost of the stage", "ns a frame"),
        lines: bars.collect(),
    };
    let chart = Chart {
        id: "rate".into(),
        title: "Frames captured a second".into(),
        caption: "Higher is better <script>alert(1)</script> & so on.".into(),
        x: Some(Axis::logarithmic("frame size", "bytes")),
        y: Axis::linear("captured", "million frames a second"),
        lines,
    };
    Summary {
        experiment: "capture-rate".into(),
        title: "How many frames a second".into(),
        about: "A sample for the test of the page.".into(),
        started: "2026-01-02 03:04".into(),
        seconds: 61.0,
        quick: true,
        facts: Facts { driver: "veth".into(), ..Facts::gather() },
        charts: vec![chart, bars],
        claims: vec![
            Claim::at_least("xdp against tcpdump", Spread::of([2.6, 2.8, 2.9]), 2.7, 3),
            Claim::at_most("cost against tcpdump", Spread::of([0.3]), 1.0 / 4.5, 1),
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
fn a_browser_draws_the_charts_at_both_widths() {
    const NAME: &str = "a_browser_draws_the_charts_at_both_widths";
    if !installed("chromium") {
        linerate_netns::say_skipped(NAME, "chromium is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The page itself runs no script; the frame around the copy that is tested measures it.
    let inner = page(&[sample()]).replace('&', "&amp;").replace('"', "&quot;");
    for (width, class) in [(1280, "wide"), (390, "narrow")] {
        let path = folder.path().join(format!("{width}.html"));
        let frame = format!(
            "<body style=\"margin:0\"><iframe width=\"{width}\" height=\"800\" \
             style=\"border:0\" srcdoc=\"{inner}\"></iframe>{PROBE}</body>"
        );
        fs::write(&path, frame).unwrap();
        let output = browse(folder.path(), &path);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!errors.contains("CONSOLE"), "{errors}");
        let dom = String::from_utf8_lossy(&output.stdout).into_owned();
        let probed = dom.split_once("data-probe=\"").expect("the probe ran").1;
        let probed = probed.split_once('"').unwrap().0;
        let expected = format!("chart {class}:10:0:true chart {class}:10:0:true true");
        assert_eq!(probed, expected, "at a width of {width}");
    }
}

/// Writes down of each drawing that is shown: its class, how many lines and bars have a length, how
/// many texts stick out of it, and whether it is within the window; last, whether the page is.
const PROBE: &str = "<script>onload=()=>{const w=frames[0],d=w.document,out=[];\
    for(const svg of d.querySelectorAll('svg')){const box=svg.getBoundingClientRect();\
    if(box.width===0)continue;let drawn=0,outside=0;\
    for(const path of svg.querySelectorAll('path.line,path.bar'))\
    if(path.getTotalLength()>10)drawn++;\
    for(const text of svg.querySelectorAll('text')){const at=text.getBoundingClientRect();\
    if(at.left<box.left-1||at.right>box.right+1||at.top<box.top-1||at.bottom>box.bottom+1)\
    outside++;}\
    out.push([svg.getAttribute('class'),drawn,outside,box.right<=w.innerWidth].join(':'));}\
    out.push(d.documentElement.scrollWidth<=w.innerWidth);\
    document.body.dataset.probe=out.join(' ');}</script>";

fn browse(profile: &Path, page: &Path) -> Output {
    Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--log-level=0", "--virtual-time-budget=2000"])
        .arg(format!("--user-data-dir={}", profile.join("profile").display()))
        .arg("--window-size=1280,900")
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("chromium starts")
}
