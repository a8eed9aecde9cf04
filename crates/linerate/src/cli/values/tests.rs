use super::*;

#[test]
fn an_endpoint_that_is_none_says_what_to_write() {
    assert_eq!(endpoint("10.0.0.2:7000"), Ok(([10, 0, 0, 2], 7000).into()));
    assert!(endpoint("[fe80::1%3]:7000").is_ok());
    assert_eq!(endpoint("[fe80::1%lo]:7000"), endpoint("[fe80::1%1]:7000"));
    for (text, words) in [
        ("10.0.0.2", "a port is missing, as in 10.0.0.2:7000"),
        ("::1", "a port is missing, as in [::1]:7000"),
        ("fe80::1:ffff:7000", "brackets"),
        ("::1:7000:x", "brackets"),
        ("nowhere:7000", "names are not looked up"),
        ("10.0.0.2:70000", "70000 is not a port"),
        ("", "write an address and a port"),
        ("[fe80::1%nowhere]:7000", "no interface named nowhere"),
    ] {
        let said = endpoint(text).unwrap_err();
        assert!(said.contains(words), "{text}: {said}");
    }
}

#[test]
fn times_have_units() {
    assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
    assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
    assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
    assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
    for wrong in ["", "s", "0s", "-1s", "1x", "1 day", "nan", "inf", "999999999h"] {
        assert!(duration(wrong).is_err() && seconds(wrong).is_err(), "{wrong}");
    }
    assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
}

#[test]
fn a_buffer_is_in_kib_or_has_its_unit() {
    for text in ["65536", "64M", "64MiB", "65536k"] {
        assert_eq!(capture_buffer(text), Ok(65_536), "{text}");
    }
    for wrong in ["", "0", "0M", "64T", "-1", "64MB", "2147483649", "2049G", "99999999999999999999"]
    {
        let said = capture_buffer(wrong).unwrap_err();
        assert!(said.contains("in KiB, as 65536") && said.contains("64M"), "{wrong}: {said}");
    }
}

#[test]
fn numbers_are_above_0_and_have_an_end() {
    assert_eq!((positive("0.5"), positive("1e6")), (Ok(0.5), Ok(1e6)));
    for wrong in ["0", "-1", "nan", "inf", "1e999", "", "x"] {
        assert!(positive(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn cpu_lists_have_ranges() {
    assert_eq!(cpus("0,2-4"), Ok(Cpus(vec![0, 2, 3, 4])));
    assert!(cpus("a").is_err() && cpus("0-99999999999").is_err());
}
