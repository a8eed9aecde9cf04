use proptest::prelude::*;

use super::*;

#[test]
fn times_have_units() {
    assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
    assert_eq!(duration(" 10m "), Ok(Duration::from_secs(600)));
    assert_eq!(duration("1d2h"), Ok(Duration::from_secs(26 * 3600)));
    assert_eq!(duration("0s"), Ok(Duration::ZERO));
    let said = duration("30").unwrap_err();
    assert!(said.contains("write 30s for seconds"), "{said}");
    for bad in [
        "",
        " ",
        "s",
        "-1s",
        "1.5s",
        "1 s",
        "1x",
        "1é",
        "é",
        "99999999999999999999s",
        "999999999999999d",
    ] {
        let said = duration(bad).unwrap_err();
        assert!(said.contains("is not a time"), "{bad:?}: {said}");
    }
}

#[test]
fn numbers_have_factors() {
    assert_eq!(count("65536"), Ok(65536));
    assert_eq!(count("500k"), Ok(500_000));
    assert_eq!(count("1_000_000"), Ok(1_000_000));
    assert_eq!(count("3G"), Ok(3_000_000_000));
    for bad in [
        "",
        "M",
        "-1",
        "+1",
        "1.5M",
        "1m",
        "_",
        "é",
        "1é",
        "99999999999999999999",
        "99999999999999999M",
    ] {
        let said = count(bad).unwrap_err();
        assert!(said.contains("is not a number"), "{bad:?}: {said}");
    }
}

proptest! {
    #[test]
    fn a_time_is_read_as_written(milliseconds in 0..u64::MAX / 2) {
        let time = Duration::from_millis(milliseconds);
        prop_assert_eq!(duration(&write_duration(time)), Ok(time));
    }

    #[test]
    fn any_text_is_answered(text in "\\PC*") {
        let _ = (duration(&text), count(&text));
    }
}
