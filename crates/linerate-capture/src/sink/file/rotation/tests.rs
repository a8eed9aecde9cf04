use super::*;

fn by_size(count: Option<u32>, files: usize) -> Vec<String> {
    let rotation = Rotation { size: Some(1), count, ..Rotation::default() };
    let mut names = FileNames::new(Path::new("f"), rotation, Timestamp(0));
    let mut next = || {
        let name = names.current().display().to_string();
        names.advance_number(Timestamp(0));
        name
    };
    (0..files).map(|_| next()).collect()
}

#[test]
fn size_alone_numbers_from_the_second_file() {
    assert_eq!(by_size(None, 3), ["f", "f1", "f2"]);
}

#[test]
fn a_count_pads_and_goes_around() {
    assert_eq!(by_size(Some(3), 5), ["f0", "f1", "f2", "f0", "f1"]);
    assert_eq!(by_size(Some(11), 2), ["f00", "f01"]);
    // tcpdump has no digit to spare for a ring of one.
    assert_eq!(by_size(Some(1), 2), ["f", "f"]);
}

#[test]
fn seconds_format_the_start_of_the_period_and_skip_empty_ones() {
    let second = 1_000_000_000;
    let rotation = Rotation { seconds: Some(10), ..Rotation::default() };
    let mut names = FileNames::new(Path::new("f-%s"), rotation, Timestamp(100 * second));
    assert_eq!(names.current(), Path::new("f-100"));
    assert_eq!(names.period_end(), Some(Timestamp(110 * second)));
    assert!(names.advance_period(Timestamp(137 * second)));
    assert_eq!(names.current(), Path::new("f-130"));
}

#[test]
fn periods_of_one_name_are_numbered() {
    let second = 1_000_000_000;
    let rotation = Rotation { seconds: Some(1), ..Rotation::default() };
    let mut names = FileNames::new(Path::new("f"), rotation, Timestamp(0));
    assert_eq!(names.current(), Path::new("f"));
    assert!(names.advance_period(Timestamp(second)));
    assert_eq!(names.current(), Path::new("f1"));
    assert!(names.advance_period(Timestamp(5 * second)));
    assert_eq!(names.current(), Path::new("f2"));
    // Two periods fall into one minute, the third does not.
    let rotation = Rotation { seconds: Some(20), ..Rotation::default() };
    let mut names = FileNames::new(Path::new("f%M-"), rotation, Timestamp(20 * second));
    assert_eq!(names.current(), Path::new("f00-"));
    assert!(names.advance_period(Timestamp(40 * second)));
    assert_eq!(names.current(), Path::new("f00-1"));
    assert!(names.advance_period(Timestamp(60 * second)));
    assert_eq!(names.current(), Path::new("f01-"));
}

#[test]
fn a_name_that_cannot_be_filled_in_is_told_apart() {
    assert!(is_format(Path::new("f-%H%M%S.pcap")) && is_format(Path::new("plain")));
    assert!(is_format(Path::new("100%%.pcap")));
    assert!(!is_format(Path::new("f-%!.pcap")) && !is_format(Path::new("100%")));
}

/// The oracle is date(1), which asks strftime(3).
#[test]
fn conversions_are_those_of_strftime() {
    let letters = ('a'..='z').chain('A'..='Z').chain(['%']);
    // The last three are flags of `date` alone, modifiers, or unknown.
    let letters = letters.filter(|one| !"EOfiJKLNoqQvN".contains(*one));
    let mut formats: Vec<_> = letters.map(|one| format!("%{one}")).collect();
    formats.extend(["%Ec", "%EY", "%Od", "%OS", "%_d", "%-H", "100%%c"].map(str::to_owned));
    for seconds in [0, 951_826_154, 1_700_000_001] {
        for format in &formats {
            let mut date = std::process::Command::new("date");
            date.env("LC_ALL", "C").args(["-d", &format!("@{seconds}"), &format!("+{format}")]);
            let theirs = date.output().expect("date of coreutils").stdout;
            let theirs = String::from_utf8(theirs).expect("ASCII");
            let ours = filled(Path::new(format), Timestamp(seconds * 1_000_000_000));
            let ours = ours.map(|path| path.display().to_string());
            assert_eq!(ours.as_deref(), theirs.strip_suffix('\n'), "{format}");
        }
    }
}

#[test]
fn seconds_and_a_count_end_the_capture() {
    let rotation = Rotation { seconds: Some(1), count: Some(2), ..Rotation::default() };
    let mut names = FileNames::new(Path::new("f%s"), rotation, Timestamp(0));
    assert!(names.advance_period(Timestamp(1_000_000_000)));
    assert!(!names.advance_period(Timestamp(2_000_000_000)));
}

#[test]
fn an_interval_ends_at_a_multiple() {
    let second = 1_000_000_000;
    let naming = Naming::Dumpcap;
    let rotation = Rotation { seconds: Some(10), aligned: true, naming, ..Rotation::default() };
    let mut names = FileNames::new(Path::new("f"), rotation, Timestamp(103 * second));
    assert_eq!(names.period_end(), Some(Timestamp(110 * second)));
    assert!(names.advance_period(Timestamp(120 * second)));
    assert_eq!(names.period_end(), Some(Timestamp(130 * second)));
}

#[test]
fn the_last_period_has_no_end() {
    let rotation = Rotation { seconds: Some(10), naming: Naming::Dumpcap, ..Rotation::default() };
    let mut names = FileNames::new(Path::new("f"), rotation, Timestamp(0));
    assert!(names.advance_period(Timestamp(u64::MAX)));
    assert_eq!(names.period_end(), None);
}

#[test]
fn seconds_and_size_number_within_the_period() {
    let rotation = Rotation { seconds: Some(1), size: Some(1), ..Rotation::default() };
    let mut names = FileNames::new(Path::new("f%s-"), rotation, Timestamp(0));
    names.advance_number(Timestamp(0));
    assert_eq!(names.current(), Path::new("f0-1"));
    assert!(names.advance_period(Timestamp(1_000_000_000)));
    assert_eq!(names.current(), Path::new("f1-"));
}

#[test]
fn dumpcaps_names_have_a_number_and_a_time_before_the_extension() {
    for (base, before, after) in [
        ("/tmp/f.pcapng", "/tmp/f_00001_", ".pcapng"),
        ("f.pcapng.zst", "f_00001_", ".pcapng.zst"),
        ("a.b/plain", "a.b/plain_00001_", ""),
    ] {
        let rotation = Rotation { naming: Naming::Dumpcap, ..Rotation::default() };
        let start = Timestamp(1_700_000_000_000_000_000);
        let name = FileNames::new(Path::new(base), rotation, start).current();
        let name = name.to_str().expect("a name");
        let time = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        let time = time.unwrap_or_else(|| panic!("{name}"));
        assert!(time.len() == 14 && time.starts_with("2023111"), "{name}");
    }
}

#[test]
fn names_of_a_capture_are_known_and_no_others() {
    let second = 1_000_000_000;
    let seconds = Rotation { seconds: Some(10), ..Rotation::default() };
    let both = Rotation { size: Some(1), ..seconds };
    let dumpcap = Rotation { size: Some(1), naming: Naming::Dumpcap, ..Rotation::default() };
    let time_first = Rotation { time_first: true, ..dumpcap };
    let size = Rotation { size: Some(1), ..Rotation::default() };
    let ring = Rotation { count: Some(12), ..size };
    for (base, rotation) in [
        ("f-%H%M.pcap", seconds),
        ("f-%Y%m%d_%H:%M:%S.pcapng.zst", both),
        ("f-%s", both),
        ("%b-%d", seconds),
        ("fixed", seconds),
        ("f.pcap", size),
        ("f.pcap", ring),
        ("f.pcapng.zst", dumpcap),
        ("f", time_first),
    ] {
        let mut names =
            FileNames::new(Path::new(base), rotation, Timestamp(1_795_514_400 * second));
        for step in 1..200 {
            let name = names.current().display().to_string();
            assert!(
                is_name_of(Path::new("folder").join(base).as_path(), rotation, &name),
                "{base}: {name}"
            );
            let now = Timestamp((1_795_514_400 + step * 977) * second);
            if step % 3 == 0 {
                names.advance_period(now)
            } else {
                names.fill(now)
            };
        }
    }
    for (base, rotation, name) in [
        ("f-%H%M.pcap", seconds, "f-notes.pcap"),
        ("f-%H%M.pcap", seconds, "f-2561.pcap"),
        ("f-%H%M.pcap", seconds, "f-1000.pcapng"),
        ("f-%H%M.pcap", seconds, "g-1000.pcap"),
        ("f-%H%M.pcap", seconds, "f-1000.pcap.1"),
        ("f-%H%M", seconds, "f-100"),
        ("f.pcap", size, "f.pcap.orig"),
        ("f.pcap", size, "f.pcap-1"),
        ("f.pcap", size, "of.pcap"),
        ("f.pcap", dumpcap, "f.pcap"),
        ("f.pcap", dumpcap, "f_00001_20261130.pcap"),
        ("f.pcap", dumpcap, "f_20261130235959_00001.pcap"),
        ("f.pcap", dumpcap, "f_0000a_20261130235959.pcap"),
        ("f.pcap", Rotation::default(), "f.pcap"),
    ] {
        assert!(!is_name_of(Path::new(base), rotation, name), "{base}: {name}");
    }
}
