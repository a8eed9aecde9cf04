use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("forward.toml")).map_err(|error| error.to_string())
}

/// The error of an invalid text, which must name the file and the line of `bad`.
fn refused(text: &str, bad: &str) -> String {
    let said = parse(text).expect_err(text);
    let line = 1 + text.lines().position(|line| line.contains(bad)).expect("a line to blame");
    assert!(said.starts_with("forward.toml: "), "{said}");
    assert!(said.contains(&format!("line {line}")), "{said}");
    said
}

#[test]
fn nothing_said_is_the_default() {
    assert_eq!(parse("").unwrap(), Config::default());
    let error = Config::default().check().unwrap_err().to_string();
    assert!(error.contains("no interface is named"), "{error}");
}

#[test]
fn everything_can_be_said() {
    let text = r#"
        instance = "edge_1"
        interfaces = ["eth1", "eth2"]
        statistics = "slot"
        max-sessions = "4M"
        udp-idle = "45s"
        tcp-idle = "1h"
        lifetime = "1d"
        revalidate = "1m30s"
        fail-open-after = "2s"
        metrics = "[::1]:9000"
        flows = ["/var/lib/flows", "ipfix+tcp://collector:4739?uniflow"]
        sensor = "edge-1"
        group = "analysts"
        active-timeout = "5m"
        flow-file-time = "10s"
        flows-keep = "90d"
        flows-keep-free = "10%"
        verify-checksums = true
        persist = true
        fix = false
        probe = false
        block = ["203.0.113.0/24", "2001:db8::1"]
    "#;
    let config = parse(text).unwrap();
    config.check().unwrap();
    assert_eq!(config.instance.as_deref(), Some("edge_1"));
    assert_eq!(config.interfaces, ["eth1", "eth2"]);
    assert_eq!(config.statistics, Statistics::Slot);
    assert_eq!(config.max_sessions, MaxSessions::Number(4_000_000));
    assert_eq!(config.udp_idle, Duration::from_secs(45));
    assert_eq!(config.tcp_idle, Duration::from_secs(3600));
    assert_eq!(config.lifetime, Lifetime::For(Duration::from_secs(86_400)));
    assert_eq!(config.revalidate, Duration::from_secs(90));
    assert_eq!(config.fail_open_after, Duration::from_secs(2));
    assert_eq!(config.metrics, "[::1]:9000".parse().unwrap());
    let flows = ["/var/lib/flows", "ipfix+tcp://collector:4739?uniflow"];
    assert_eq!(config.flows, flows.map(|one| one.parse().unwrap()));
    assert_eq!(config.sensor.as_deref(), Some("edge-1"));
    assert_eq!(config.group.as_deref(), Some("analysts"));
    let times = [config.active_timeout, config.flow_file_time];
    assert_eq!(times, [300, 10].map(Duration::from_secs));
    assert_eq!(config.flows_keep, Lifetime::For(Duration::from_secs(90 * 86_400)));
    assert_eq!(config.flows_keep_free.as_deref(), Some("10%"));
    let wrong = Config { flows_keep_free: Some("10".to_owned() + "x"), ..config.clone() };
    assert!(wrong.check().unwrap_err().to_string().contains("flows-keep-free: `10x` is neither"));
    assert!(config.verify_checksums && config.persist && !config.fix && !config.probe);
    assert_eq!(config.block.len(), 2);
    assert_eq!(parse(&config.to_toml()).unwrap(), config);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let cases = [
        ("leave = true\nidle = \"3s\"", "idle", "unknown field `idle`"),
        ("leave = true\nleave = false", "leave = false", "duplicate key"),
        ("interfaces = [\"eth1\"]\nudp-idle = 30", "udp-idle", "write \"30s\" for seconds"),
        ("\nudp-idle = \"30\"", "udp-idle", "lacks its unit: write 30s"),
        ("udp-idle = \"0s\"", "udp-idle", "0s is out of range; it can be 1s to 7d"),
        ("udp-idle = [1]", "udp-idle", "not a time"),
        ("lifetime = \"30\"", "lifetime", "lacks its unit: write 30s"),
        ("revalidate = \"2h\"", "revalidate", "1s to 1h"),
        ("fail-open-after = \"11m\"", "fail-open-after", "1s to 10m"),
        ("max-sessions = 0", "max-sessions", "1024 to 50000000"),
        ("max-sessions = -5", "max-sessions", "negative"),
        ("max-sessions = \"51M\"", "max-sessions", "1024 to 50000000"),
        ("max-sessions = \"lots\"", "max-sessions", "write it as 65536, 500k or 2M"),
        ("max-sessions = 1.5", "max-sessions", "not a number"),
        ("max-sessions = \"Auto\"", "max-sessions", "not a number"),
        ("mode = \"session\"", "mode", "unknown field `mode`"),
        ("statistics = \"all\"", "statistics", "`none`"),
        ("metrics = \"localhost\"", "metrics", "or off"),
        ("metrics = 9818", "metrics", "expected a string"),
        ("interfaces = [\"a/b\"]", "a/b", "is not a valid interface name"),
        ("interfaces = [\"eth1\",\n\"eth1\"]", "interfaces", "named twice"),
        ("interfaces = \"eth1\"", "interfaces", "expected a sequence"),
        ("accelerate = 7", "accelerate", "nor a list of such texts"),
        ("exempt = \"port x\"", "exempt", "port 5000-5999"),
        ("flows = [\"ipfix://\"]", "flows", "no host"),
        ("active-timeout = \"2d\"", "active-timeout", "1s to 1d"),
        ("instance = \"a.b\"", "instance", "letters, digits"),
        ("block = [\"203.0.113.1/24\"]", "block", "write 203.0.113.0/24 for the prefix"),
        ("leave = tru", "leave", "tru"),
        ("[forward]\nleave = true", "forward", "unknown field `forward`"),
    ];
    for (text, bad, expected) in cases {
        let said = refused(text, bad);
        assert!(said.contains(expected), "of {text:?} it says {said}");
    }
}

#[test]
fn one_selector_needs_no_list() {
    let config = parse("accelerate = \"offloaded\"\nexempt = [\"port 53\", \"eth1\"]").unwrap();
    assert_eq!(config.accelerate, [Selector::Offloaded]);
    assert_eq!(config.exempt, [Selector::Port(53..=53), Selector::Interface("eth1".into())]);
    assert_eq!(parse(&config.to_toml()).unwrap(), config);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::read(Path::new("/nonexistent/forward.toml")).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/forward.toml"), "{error}");
}

#[test]
fn what_the_command_line_filled_is_checked_too() {
    let sound = Config { interfaces: vec!["eth1".into()], ..Config::default() };
    sound.check().unwrap();
    let bad = [
        (Config { udp_idle: Duration::ZERO, ..sound.clone() }, "udp-idle"),
        (Config { lifetime: Lifetime::For(Duration::ZERO), ..sound.clone() }, "lifetime"),
        (Config { revalidate: Duration::from_secs(7200), ..sound.clone() }, "revalidate"),
        (Config { max_sessions: MaxSessions::Number(1), ..sound.clone() }, "max-sessions"),
        (Config { instance: Some(String::new()), ..sound.clone() }, "instance"),
        (Config { after_packets: 128, ..sound.clone() }, "after-packets"),
        (
            Config {
                flows: vec!["/a".parse().unwrap()],
                statistics: Statistics::None,
                ..sound.clone()
            },
            "no packet of a session is counted",
        ),
        (Config { interfaces: vec!["a".into(), "a".into()], ..sound.clone() }, "twice"),
        (
            Config {
                interfaces: (0..=MAX_INTERFACES).map(|n| format!("e{n}")).collect(),
                ..sound.clone()
            },
            "an instance takes",
        ),
    ];
    for (config, expected) in bad {
        let said = config.check().unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn words_are_those_of_the_file() {
    for &statistics in Statistics::ALL {
        assert_eq!(statistics.name().parse(), Ok(statistics));
        assert_eq!(
            parse(&format!("statistics = \"{statistics}\"")).unwrap().statistics,
            statistics
        );
    }
    for word in ["shared", "per-cpu", "split"] {
        assert!(word.parse::<Statistics>().unwrap_err().contains("slot, none"), "{word}");
    }
    assert!(parse("mode = \"fib\"").unwrap_err().to_string().contains("unknown field `mode`"));
}

proptest! {
    #[test]
    fn a_configuration_is_read_as_written(
        max_sessions in prop::option::of(1024u64..=50_000_000),
        udp_idle in 1000u64..=604_800_000,
        revalidate in 1000u64..=3_600_000,
        interfaces in proptest::collection::btree_set("[a-z][a-z0-9.@-]{0,14}", 0..8),
        statistics in proptest::sample::select(Statistics::ALL),
        verify_checksums: bool,
        persist: bool,
        address: u32,
    ) {
        let config = Config {
            max_sessions: max_sessions.map_or(MaxSessions::Auto, MaxSessions::Number),
            udp_idle: Duration::from_millis(udp_idle),
            revalidate: Duration::from_millis(revalidate),
            interfaces: interfaces.into_iter().collect(),
            statistics,
            verify_checksums,
            persist,
            lifetime: if persist { Lifetime::Off } else { Lifetime::For(Duration::from_millis(revalidate)) },
            block: vec![std::net::IpAddr::from(address.to_be_bytes()).into()],
            metrics: if persist { ListenAddress::Off } else { DEFAULT_METRICS },
            ..Config::default()
        };
        prop_assert_eq!(parse(&config.to_toml()).unwrap(), config);
    }

    #[test]
    fn any_text_is_answered(text in "\\PC*") {
        let _ = parse(&text);
    }
}
