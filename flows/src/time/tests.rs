use super::*;

fn nanos(text: &str) -> Result<i64, String> {
    parse(text).map(|time| time.nanos(&TimeZone::UTC).unwrap())
}

#[test]
fn a_time_without_an_offset_is_of_the_zone() {
    let at = |text: &str, name: &str| parse(text).unwrap().nanos(&zone(name).unwrap()).unwrap();
    let ten = nanos("2026-11-24T10:00:00Z").unwrap();
    for (text, name) in [
        ("2026-11-24 11:00", "Europe/Berlin"),
        ("2026-11-24 05:00", "-05:00"),
        ("2026-11-24 10:00", "UTC"),
        ("2026-11-24T10:00:00Z", "Asia/Kolkata"),
        ("1795514400", "Asia/Kolkata"),
    ] {
        assert_eq!(at(text, name), ten, "{text} {name}");
    }
    // Summer time: two hours.
    assert_eq!(at("2026-07-01 12:00", "Europe/Berlin"), nanos("2026-07-01T10:00:00Z").unwrap());
    let error = zone("Europe/Nowhere").unwrap_err();
    assert!(error.contains("Europe/Berlin"), "{error}");
}

#[test]
fn times_of_all_forms_are_the_same_instant() {
    let expected = Ok(1_795_514_400_000_000_000);
    for text in
        ["2026-11-24T10:00:00Z", "2026-11-24 10:00", "2026-11-24T11:00:00+01:00", "1795514400"]
    {
        assert_eq!(nanos(text), expected, "{text}");
    }
    assert_eq!(nanos("1795514400.5"), Ok(1_795_514_400_500_000_000));
    let ago = nanos("-2h").unwrap();
    let now = i64::try_from(Timestamp::now().as_nanosecond()).unwrap();
    assert!((7_199..7_300).contains(&((now - ago) / 1_000_000_000)));
    for (text, expected) in [
        ("yesterday", "is not a time"),
        ("-", "is not a duration"),
        ("-3", "is not a duration"),
        ("1e3", "is not a time"),
        (".5", "is not a time"),
        ("1.2.3", "is not a time"),
        ("inf", "is not a time"),
        ("99999999999", "too far away"),
        ("-400000000h", "too far away"),
        ("9999-01-01", "too far away"),
        ("2026-11-24T10:00:00[Europe/Paris]", "--time-zone"),
        ("2026-11-24T10:00:00+01:00[Europe/Paris]", "--time-zone"),
        ("2026-11-24[u-ca=hebrew]", "--time-zone"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
