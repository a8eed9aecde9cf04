use super::*;

#[test]
fn names_that_may_be_meant_as_addresses_are_no_folders() {
    let refused = [
        ("", "it is empty"),
        ("-", "standard output"),
        ("s3://bucket/x", "linerate flows ship"),
        ("S3://bucket/x", "linerate flows ship"),
        ("ipfx://127.0.0.1", "the schemes are"),
        (" ipfix://127.0.0.1", "the schemes are"),
        ("://a", "the schemes are"),
        ("udp://127.0.0.1:4739", "ipfix://127.0.0.1:4739"),
        ("tcp://a", "ipfix+tcp://a"),
        ("file:///var/lib/flows", "without the scheme: /var/lib/flows"),
        ("ipfix:127.0.0.1", "ipfix://127.0.0.1 for a collector, or ./ipfix:127.0.0.1 for a folder"),
        ("ipfix:/127.0.0.1", "ipfix://127.0.0.1"),
        ("ipfix+tcp:a:1", "ipfix+tcp://a:1"),
        ("IPFIX:a", "IPFIX://a"),
        ("127.0.0.1:4739", "ipfix://127.0.0.1:4739 for a collector, or ./127.0.0.1:4739"),
        ("[::1]:4739", "ipfix://[::1]:4739"),
        ("collector:4739", "ipfix://collector:4739"),
        ("ipfix://", "it has no host"),
        ("IPFIX+SCTP://a", "the transports are"),
    ];
    for (text, expected) in refused {
        let error = text.parse::<Destination>().expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(error.starts_with(&format!("`{text}` is ")), "{text}: {error}");
    }
}

#[test]
fn other_names_are_folders_or_collectors() {
    let folders = [
        "flows",
        "/var/lib/flows",
        "./127.0.0.1:4739",
        "./ipfix:a",
        "./s3://a",
        "a/b:1",
        "a//b:1",
        "2026-11-25T10:00:00",
        "ipfix",
        "ipfix+tcp",
        "10.0.0.1",
        "a:b",
    ];
    for text in folders {
        assert_eq!(text.parse::<Destination>().unwrap(), Destination::Folder(text.into()));
    }
    for (text, written) in [
        ("IPFIX://Collector", "ipfix://Collector:4739"),
        ("Ipfix+TCP://10.0.0.1:1", "ipfix+tcp://10.0.0.1:1"),
    ] {
        assert_eq!(text.parse::<Destination>().unwrap().to_string(), written);
    }
}
