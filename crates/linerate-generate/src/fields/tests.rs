use super::*;

#[test]
fn addresses_in_all_notations() {
    for (text, first, count) in [
        ("10.0.0.1", "10.0.0.1", 1),
        ("10.0.0.1-10.0.1.0", "10.0.0.1", 256),
        ("10.0.0.250-254", "10.0.0.250", 5),
        ("10.0.0.77/24", "10.0.0.0", 256),
        ("0.0.0.0/0", "0.0.0.0", 1 << 32),
        ("2001:db8::1", "2001:db8::1", 1),
        ("2001:db8::1-2001:db8::ff", "2001:db8::1", 255),
        ("2001:db8::/112", "2001:db8::", 65536),
        ("2001:db8::/96", "2001:db8::", 1 << 32),
    ] {
        let addresses: Addresses = text.parse().unwrap();
        assert_eq!(addresses.first(), first.parse::<IpAddr>().unwrap(), "{text}");
        assert_eq!(addresses.count(), count, "{text}");
        assert_eq!(addresses.to_string().parse::<Addresses>().unwrap(), addresses);
    }
}

#[test]
fn address_nonsense_is_refused() {
    for text in [
        "",
        "host",
        "10.0.0.9-10.0.0.1",
        "10.0.0.1-::1",
        "10.0.0.0/33",
        "::/64",
        "::-1::",
        "10.0.0.1-10.0.0",
        "::ffff:ffff:ffff:ffff-::1:0:0:0:0",
    ] {
        assert!(text.parse::<Addresses>().is_err(), "{text}");
    }
}

#[test]
fn ports_in_both_notations() {
    assert_eq!("9".parse::<Ports>().unwrap(), Ports::one(9));
    let range: Ports = "1024-65535".parse().unwrap();
    assert_eq!((range.first(), range.count()), (1024, 64512));
    for text in ["", "x", "70000", "9-8", "1-"] {
        assert!(text.parse::<Ports>().is_err(), "{text}");
    }
}
