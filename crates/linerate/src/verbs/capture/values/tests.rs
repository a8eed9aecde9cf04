use super::*;

#[test]
fn sizes_are_millions_or_binary_units() {
    assert_eq!(file_size("2"), Ok(2_000_000));
    assert_eq!(file_size("2k"), Ok(2048));
    assert_eq!(file_size("3M"), Ok(3 << 20));
    assert_eq!(file_size("1G"), Ok(1 << 30));
    assert!(file_size("0").is_err() && file_size("x").is_err() && file_size("").is_err());
}

#[test]
fn limits_name_what_they_limit() {
    assert_eq!(limit("duration:1.5"), Ok(Limit::Duration(Duration::from_millis(1500))));
    assert_eq!(limit("packets:7"), Ok(Limit::Packets(7)));
    assert_eq!(limit("filesize:3"), Ok(Limit::FileSize(3000)));
    assert_eq!(limit("files:3"), Ok(Limit::Files(3)));
    assert!(limit("files").is_err() && limit("duration:-1").is_err());
    for nothing in
        ["files:0", "packets:0", "duration:0", "filesize:0", "duration:nan", "duration:inf"]
    {
        assert!(limit(nothing).is_err(), "{nothing}");
    }
}

#[test]
fn rings_and_ages_have_their_units() {
    assert_eq!(ring_limit("filesize:3"), Ok(RingLimit::FileSize(3000)));
    assert_eq!(ring_limit("files:5"), Ok(RingLimit::Files(5)));
    assert_eq!(ring_limit("signal:HUP"), ring_limit("signal:SIGHUP"));
    for wrong in [
        "files:0",
        "packets:",
        "nametimenum:3",
        "signal:TERM",
        "printname:",
        "files",
        "filesize:99999999999999999999",
    ] {
        assert!(ring_limit(wrong).is_err(), "{wrong}");
    }
    assert_eq!(age("7d"), Ok(Duration::from_secs(7 * 86_400)));
    assert_eq!(age("90s"), Ok(Duration::from_secs(90)));
    for wrong in ["", "7", "d", "-1d", "7y", "7\u{e4}"] {
        assert!(age(wrong).is_err(), "{wrong}");
    }
}
