use super::*;

fn file(lines: &str) -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, lines).unwrap();
    let name = file.path().to_str().unwrap().to_owned();
    (file, name)
}

#[test]
fn look_ups_become_hosts_with_their_qualifiers() {
    let (_kept, name) = file("10.0.0.1 # one\n\n# two\n2001:db8::1\n");
    let (v4, v6) = placeholders(0, 1);
    for (text, expected) in [
        (format!("host in @{name}"), format!("(host {v4} or host {v6})")),
        (
            format!("udp and !src or dst host in @{name}) or x"),
            format!("udp and !(src or dst host {v4} or src or dst host {v6})) or x"),
        ),
        (
            format!("(ip6  dst host in @{name})||port 5 or src host in @{name}"),
            format!("((ip6  dst host {v6}))||port 5 or (src host {v4} or src host {v6})"),
        ),
    ] {
        let expression = Expression::read(&text).unwrap();
        assert_eq!(expression.sets.len(), 1);
        assert_eq!(expression.with_placeholders(1), expected);
    }
    let text = format!("udp and host in @{name} and x");
    let expression = Expression::read(&text).unwrap();
    let whole = expression.with_placeholders(0);
    for (word, expected) in [("udp", "udp"), ("x", "x"), ("or host", "host")] {
        let position = expression.position(0, whole.rfind(word).unwrap());
        assert_eq!(position, text.rfind(expected).unwrap(), "{word}");
    }
    assert!(Expression::read("udp port 5").unwrap().sets.is_empty());
}

#[test]
fn what_is_no_file_of_addresses_is_refused_with_the_line() {
    for (kind, lines, says) in [
        ("host", "10.0.0.1\n10.0.0", "line 2 of"),
        ("host", "10.0.0.0/8", "`net in` looks networks up"),
        ("net", "10.0.0.0/33", "has no such prefix length"),
        ("net", "10.0.0.1/8", "has bits after its prefix length"),
        ("port", "5", "`host in @FILE`"),
    ] {
        let (_kept, name) = file(lines);
        let text = format!("{kind} in @{name}");
        let error = Expression::read(&text).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let error = Expression::read("host in @/nowhere").map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("cannot read /nowhere"), "{error}");
}
