mod random;

use super::*;

fn sql(text: &str) -> String {
    parse(text).unwrap().unwrap().sql(Meaning::Flow)
}

#[test]
fn words_of_pcap_filter_are_read_as_libpcap_reads_them() {
    // Each pair is one filter.
    let same = [
        ("host 10.0.0.1 or 10.0.0.2", "host 10.0.0.1 or host 10.0.0.2"),
        ("tcp port 80 or 443", "(tcp port 80) or (tcp port 443)"),
        ("src or dst port 80", "port 80"),
        ("port 80", "portrange 80-80"),
        ("net 10", "net 10.0.0.0/8"),
        ("net 192.168", "net 192.168.0.0 mask 255.255.0.0"),
        ("tcp and udp or icmp", "(tcp and udp) or icmp"),
        ("udp or port 80 and tcp", "(udp or port 80) and tcp"),
        ("!tcp && !(udp||icmp)", "not tcp and not (udp or icmp)"),
        ("tcp port domain", "tcp port 53"),
        ("ip proto \\tcp", "ip proto 6"),
        ("portrange 20-10", "portrange 10-20"),
        ("portrange domain-http", "portrange 53-80"),
        ("port 0x35", "port 53"),
        ("port 065", "port 53"),
        ("ip proto 0x11", "ip proto 17"),
        ("vlan 0x10", "vlan 16"),
        ("port (domain or http)", "port 53 or port 80"),
        ("tcp src port (not domain and http)", "not tcp src port 53 and tcp src port 80"),
        ("port (domain or (http and https)) or 22", "port 53 or (port 80 and port 443) or port 22"),
        ("src (10.0.0.1 or 10.0.0.2)", "src host 10.0.0.1 or src host 10.0.0.2"),
        ("port 53 or (tcp port 80) or 443", "port 53 or tcp port 80 or port 443"),
        (
            "tcp port 53 or not (udp port 80) or 443",
            "tcp port 53 or not udp port 80 or tcp port 443",
        ),
        ("host 10.0.0.1 or 53", "host 10.0.0.1 or host 0.0.0.53"),
        ("net 2561", "net 10.1.0.0/16"),
        ("sctp port domain", "sctp port 53"),
        ("port 53 or (80 or 443) or 22", "port 53 or (port 80 or port 443) or port 22"),
    ];
    for (one, other) in same {
        assert_eq!(sql(one), sql(other), "{one} and {other}");
        // libpcap reads both.
        for text in [one, other] {
            let dead = pcap::Capture::dead(pcap::Linktype::ETHERNET).unwrap();
            dead.compile(text, true).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }
    assert_eq!(parse("  ").unwrap(), None);
}

#[test]
fn what_records_do_not_have_is_refused_by_name() {
    let refused = [
        ("ether host 00:11:22:33:44:55", "ether"),
        ("arp", "arp"),
        ("tcp[tcpflags] & tcp-syn != 0", "tcp[...]"),
        ("less 100", "less"),
        ("host example.org", "names"),
        ("vlan 5 and vlan 6", "dot1qCustomerVlanId"),
        ("tcp host 10.0.0.1", "host"),
        ("ip6 host 10.0.0.1", "version"),
        ("net 10.0.0.1/8", "host bits"),
        ("net 2001:db8::1/32", "host bits"),
        ("net 10.0.0.0 mask 255.0.255.0", "non-contiguous netmask"),
        ("tcp prt 80", "`prt` is not a known word"),
        ("prt 80", "`prt` is not a known word"),
        ("tcp (80 or 443)", "port"),
        ("port (53 or", "incomplete"),
        ("port (53 80)", "`or`"),
        ("port (53 or tcp)", "tcp"),
        ("port 0x", "0x"),
        ("port 08", "08"),
        ("portrange domain-nothing", "nothing"),
        ("src 10.0.0.0/8", "`net`"),
        ("tcp and 80", "80"),
        ("port 70000", "70000"),
        ("port 0x1ffff", "0x1ffff"),
        ("proto 300", "300"),
        ("port", "incomplete"),
        ("(tcp", "closed"),
        ("tcp)", ")"),
        ("tcp udp", "host"),
        ("flags Q", "letters of FSRPAUEC"),
        ("octets 5", "after `octets`"),
        ("octets > x", "an amount"),
        ("octets > 1e30", "an amount"),
        ("duration > 5", "a duration"),
        ("src duration > 5s", "both directions"),
        ("reason never", "idle, active"),
        ("host 10.0.0.1 > 5", "\">\""),
        ("port = 80", "="),
        ("len > 5", "len"),
    ];
    for (text, named) in refused {
        let error = parse(text).map(|filter| format!("{filter:?}")).unwrap_err().to_string();
        assert!(error.contains(named), "{text}: {error}");
    }
}

#[test]
fn a_filter_that_matches_what_is_no_flow_is_known() {
    for (text, expected) in [
        ("host 10.0.0.1", false),
        ("not host 10.0.0.1", true),
        ("tcp and not port 80", false),
        ("tcp or not port 80", true),
        ("vlan 5", true),
        ("vlan 5 and ip", false),
    ] {
        let filter = parse(text).unwrap().unwrap();
        assert_eq!(filter.matches_other_packets(), Some(expected), "{text}");
    }
}

#[test]
fn a_search_for_packets_never_excludes_a_flow_by_one_direction() {
    let may = |text: &str| parse(text).unwrap().unwrap().sql(Meaning::MayHavePackets);
    assert_eq!(may("src host 10.0.0.1"), sql("host 10.0.0.1"));
    assert_eq!(may("not src host 10.0.0.1"), "TRUE");
    assert_eq!(may("not port 80"), "TRUE");
    assert_eq!(may("not (tcp and port 80)"), format!("({} OR TRUE)", may("not tcp")));
}

#[test]
fn a_search_is_bounded_by_what_records_know() {
    let bound = |text: &str| parse_for_search(text).unwrap().unwrap();
    let known = |text: &str| parse(text).unwrap().unwrap();
    let both = |a: Filter, b: Filter| Filter::And(Box::new(a), Box::new(b));
    let host = "host 10.0.0.1";
    for unknown in [
        "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
        "icmp[0] == 8",
        "greater 1000",
        "100 < len",
        "(ip[0] & 0xf) + 1 > 5",
        "ether host 02:00:00:00:00:01",
        "ip multicast",
        "arp",
        "host example.org",
    ] {
        assert_eq!(bound(unknown), Filter::Unknown, "{unknown}");
        let text = format!("{host} and {unknown}");
        assert_eq!(bound(&text), both(known(host), Filter::Unknown), "{text}");
        let text = format!("(not {unknown}) && {host}");
        let not = Filter::Not(Box::new(Filter::Unknown));
        assert_eq!(bound(&text), both(not, known(host)), "{text}");
        // A value takes over what is before it, and that is not known.
        let text = format!("{unknown} and 10.0.0.2");
        assert_eq!(bound(&text), both(Filter::Unknown, Filter::Unknown), "{text}");
        let text = format!("{unknown} and (10.0.0.2)");
        assert_eq!(bound(&text), both(Filter::Unknown, Filter::Unknown), "{text}");
    }
    // What follows may look at another header.
    assert_eq!(bound("geneve and host 10.0.0.1"), Filter::Unknown);
    assert_eq!(bound(host), known(host));
    for wrong in ["host 10.0.0.1 and", "(greater 5", "greater 5)", "and"] {
        assert!(parse_for_search(wrong).is_err(), "{wrong}");
    }
    assert_eq!(bound("greater 5").matches_other_packets(), None);
    assert_eq!(bound("greater 5 and tcp").matches_other_packets(), Some(false));
    assert_eq!(bound("not tcp or greater 5").matches_other_packets(), Some(true));
}
