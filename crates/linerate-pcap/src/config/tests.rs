use super::*;

const TEXT: &str = "
    [default]
    source = 'packet'
    buffer = 1024
    [interface.eth1]
    source = 'xdp'
    take-over = true
    pages = 'hugetlb'
    threads = 2
    cluster = 7
";

fn parsed(interface: &str, text: &str, variables: &[(&str, &str)]) -> (Config, Vec<String>) {
    let mut errors = Vec::new();
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let config = Config::parse(interface, Path::new("pcap.toml"), text, variable, &mut errors);
    (config, errors)
}

#[test]
fn an_interface_has_its_own_section_above_the_default() {
    let (config, errors) = parsed("eth1", TEXT, &[]);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(config.source, SourceChoice::Source(SourceKind::Xdp));
    assert!(config.take_over);
    assert_eq!((config.buffer, config.threads), (Some(1 << 20), 2));
    assert_eq!(config.cluster, Some(7));
    assert_eq!(config.pages, "hugetlb".parse().expect("pages"));
    assert_eq!(parsed("eth0", TEXT, &[]).0.source, SourceChoice::Source(SourceKind::Packet));
    assert_eq!(parsed("eth0", "", &[]).0, Config::default());
}

#[test]
fn the_environment_is_above_the_file() {
    let variables = [
        ("LINERATE_SOURCE", "libpcap"),
        ("LINERATE_TAKE_OVER", "0"),
        ("LINERATE_THREADS", "4"),
        ("LINERATE_CLUSTER", "65535"),
    ];
    let (config, errors) = parsed("eth1", TEXT, &variables);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(
        (config.source, config.take_over, config.threads, config.cluster),
        (SourceChoice::Libpcap, false, 4, Some(65_535))
    );
}

#[test]
fn only_a_clear_word_is_consent() {
    for (word, consents) in
        [("1", true), ("yes", true), ("true", true), ("0", false), ("no", false)]
    {
        let (config, errors) = parsed("eth0", "", &[("LINERATE_TAKE_OVER", word)]);
        assert_eq!((config.take_over, errors.len()), (consents, 0), "{word}");
    }
    for word in ["on", "ja", "YES", "2"] {
        let (config, errors) = parsed("eth1", TEXT, &[("LINERATE_TAKE_OVER", word)]);
        assert!(!config.take_over && errors[0].contains(word), "{errors:?}");
    }
}

#[test]
fn a_wrong_word_is_named_with_its_place_and_leaves_the_rest() {
    let (config, errors) = parsed("eth1", TEXT, &[("LINERATE_SOURCE", "fast")]);
    assert_eq!(config.source, SourceChoice::Source(SourceKind::Xdp));
    assert!(errors[0].starts_with("environment: unknown source `fast`"), "{errors:?}");
    let (config, errors) = parsed("eth1", TEXT, &[("LINERATE_CLUSTER", "65536")]);
    assert_eq!(config.cluster, Some(7));
    assert_eq!(errors, ["LINERATE_CLUSTER=65536: expected 0 to 65535"]);
    let (_, errors) = parsed("eth1", "[interface.eth1]\nsorce = 'xdp'", &[]);
    assert!(errors[0].contains("pcap.toml") && errors[0].contains("sorce"), "{errors:?}");
}
