use super::*;

#[test]
fn times_of_all_forms_are_the_same_instant() {
    let expected = Ok(1_795_514_400_000_000_000);
    for text in
        ["2026-11-24T10:00:00Z", "2026-11-24 10:00", "2026-11-24T11:00:00+01:00", "1795514400"]
    {
        assert_eq!(parse(text), expected, "{text}");
    }
    assert_eq!(parse("1795514400.5"), Ok(1_795_514_400_500_000_000));
    let ago = parse("-2h").unwrap();
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
        ("2026-11-24T10:00:00[Europe/Paris]", "write its offset"),
        ("2026-11-24T10:00:00+01:00[Europe/Paris]", "write its offset"),
        ("2026-11-24[u-ca=hebrew]", "write its offset"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
