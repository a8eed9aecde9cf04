use super::*;
use crate::server::tests::ask;
use crate::{ListenAddress, Unit};

fn encode(count: &u64, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let unit = Some(&Unit::Bytes);
    let samples = [(["a\"b", "rx"], *count), (["c", "tx"], 0)];
    encoder.counters("test_port", "Bytes", unit, ["interface", "direction"], samples)?;
    encoder.counter("test_files", "Files", None, 3)?;
    encoder.gauge("test_fill", "Fill", Some(&Unit::Other("ratio".into())), 0.5)
}

#[test]
fn a_scrape_has_what_was_published_last() {
    let published = Published::default();
    let listener = ListenAddress::loopback(0).listen().unwrap().unwrap();
    let server = published.serve_metrics(listener, "test", encode).unwrap();
    let before = ask(server.address(), "/metrics");
    assert!(before.ends_with("# EOF\n") && !before.contains("test_files"), "{before}");
    published.publish(1);
    published.publish(7);
    let text = ask(server.address(), "/metrics");
    for line in [
        "# UNIT test_port_bytes bytes",
        "test_port_bytes_total{interface=\"a\\\"b\",direction=\"rx\"} 7",
        "test_port_bytes_total{interface=\"c\",direction=\"tx\"} 0",
        "test_files_total 3",
        "test_fill_ratio 0.5",
    ] {
        assert!(text.lines().any(|one| one == line), "no {line} in\n{text}");
    }
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes"] {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value: f64 = line.unwrap().parse().unwrap();
        assert!(value >= 0.0 && (value > 0.0 || name.contains("cpu")), "{text}");
    }
    assert!(text.contains("verb=\"test\"} 1"), "{text}");
    let page = ask(server.address(), "/");
    assert!(page.contains("text/html") && page.contains("href=\"/metrics\""), "{page}");
}
