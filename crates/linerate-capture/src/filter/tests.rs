use super::*;

fn fault(text: &str) -> (String, Option<usize>) {
    match Filter::compile(text, ETHERNET, 65535, true) {
        Err(Error::Filter { message, position, .. }) => (message, position),
        other => panic!("`{text}` gave {other:?}"),
    }
}

/// Whether the filter takes a frame of these bytes, of which there were more on the wire.
fn matches(filter: &Filter, bytes: &[u8], wire_len: u32) -> bool {
    let mut frame = Frame::new(bytes);
    frame.wire_len = wire_len;
    filter.matches(&frame, bytes)
}

#[test]
fn an_error_has_the_words_of_libpcap_and_the_place() {
    for (text, word, position) in [
        ("host 192.0.2.1 foo", "syntax error", Some(15)),
        ("tcp and and udp", "syntax error", Some(8)),
        ("tcp port 99999", "99999", Some(9)),
        ("udp and ifname x", "ifname", Some(8)),
        ("(tcp or udp))", "syntax error", Some(12)),
        ("tcp[13 & 2 != 0", "syntax error", Some(11)),
        ("ether[0] << 33 = 1", "shift by more than 31 bits", None),
    ] {
        let (message, found) = fault(text);
        assert!(message.contains(word), "{text}: {message}");
        assert_eq!(found, position, "{text}: {message}");
    }
    let error = Filter::compile("tcp port 99999", ETHERNET, 65535, true).unwrap_err();
    assert!(error.to_string().contains("at character 10, `99999`"), "{error}");
}

#[test]
fn what_only_sockets_know_is_refused_for_files() {
    let (message, _) = fault("inbound and udp");
    assert!(message.contains("inbound") && message.contains("savefiles"), "{message}");
}

#[test]
fn judges_a_cut_frame_by_its_real_length() {
    let filter = Filter::compile("greater 1000", ETHERNET, 96, true).unwrap();
    assert!(matches(&filter, &[0; 96], 1500));
    assert!(!matches(&filter, &[0; 96], 96));
}

#[test]
fn accepts_as_many_bytes_as_the_snap_length() {
    let filter = Filter::compile("", ETHERNET, 96, true).unwrap();
    assert_eq!(filter.program().accepts(&[0; 64], 64), 96);
}

#[test]
fn link_types_of_files_are_known() {
    let mut raw = [0; 20];
    (raw[0], raw[9]) = (0x45, 17);
    let filter = Filter::compile("ip proto 17", 101, 65535, true).unwrap();
    assert!(matches(&filter, &raw, 20));
}

#[test]
fn a_loop_runs_in_user_space_and_says_why() {
    let filter = Filter::compile("ip6 protochain 17", ETHERNET, 65535, true).unwrap();
    let mut frame = [0; 14 + 40 + 8];
    (frame[12], frame[13], frame[14], frame[20]) = (0x86, 0xdd, 0x60, 17);
    assert!(matches(&filter, &frame, 62));
    frame[20] = 6;
    assert!(!matches(&filter, &frame, 62));
    let placement = filter.place_in_xdp(None).unwrap();
    assert_eq!(placement.location(), FilterLocation::User);
    assert!(placement.reason.contains("jumps backward"), "{}", placement.reason);
    assert!(filter.place_on_socket(Some(FilterLocation::Kernel)).is_err());
}

#[test]
fn placement_follows_the_option() {
    let filter = Filter::compile("udp", ETHERNET, 65535, true).unwrap();
    assert_eq!(filter.place_in_xdp(None).unwrap().location(), FilterLocation::Kernel);
    assert_eq!(
        filter.place_in_xdp(Some(FilterLocation::User)).unwrap().location(),
        FilterLocation::User
    );
    let refused = filter.place_on_socket(None).unwrap();
    assert_eq!(refused.location(), FilterLocation::User, "the tag is not in the frame there");
    assert!(refused.reason.contains("VLAN"), "{}", refused.reason);
    let raw = Filter::compile("udp", 101, 65535, true).unwrap();
    assert_eq!(raw.place_on_socket(None).unwrap().kernel.as_ref(), Some(raw.program()));
    let refused = filter.fall_back_to_user::<ClassicProgram>(None, "too complex").unwrap();
    assert_eq!((refused.user, refused.kernel), (true, None));
    assert!(refused.reason.contains("too complex"));
    assert!(
        filter
            .fall_back_to_user::<ClassicProgram>(Some(FilterLocation::Kernel), "too complex")
            .is_err()
    );
}

#[test]
fn a_file_may_be_read_as_an_interface() {
    let [tagged, plain] = [&[0x81, 0, 0, 5, 8, 0][..], &[8, 0]].map(|types| {
        let mut frame = [&[2; 12][..], types, &[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]].concat();
        frame.resize(64, 0);
        frame
    });
    for (reading, text, expected) in [
        (TagReading::File, "udp", [false, true]),
        (TagReading::Live, "udp", [true, true]),
        (TagReading::File, "not ip", [true, false]),
        (TagReading::Live, "not ip", [false, false]),
        (TagReading::Live, "len = 60", [true, false]),
        (TagReading::Live, "ether[10:4] = 0x02020800", [true, true]),
    ] {
        let filter = Filter::compile_for_file(text, ETHERNET, BIG_ENDIAN, 65535, reading).unwrap();
        let verdicts = [&tagged, &plain].map(|frame| matches(&filter, frame, 64));
        assert_eq!(verdicts, expected, "`{text}` as {reading}");
    }
}

#[test]
fn sides_have_names() {
    for side in [FilterLocation::Kernel, FilterLocation::User] {
        assert_eq!(side.to_string().parse(), Ok(side));
    }
    assert!("both".parse::<FilterLocation>().unwrap_err().contains("`both`"));
}

/// A packet socket has no sets. What the rest of the expression rejects anyway stays in the kernel.
#[test]
fn look_ups_run_in_user_space_behind_the_rest_in_the_kernel() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "192.0.2.1\n").unwrap();
    let text = |rest: &str| format!("{rest}host in @{}", file.path().display());
    let live = |text: &str| {
        Filter::compile_for_file(text, ETHERNET, BIG_ENDIAN, 65535, TagReading::Live).unwrap()
    };
    let frame = |protocol: u8, address: u8| {
        let mut frame = [0; 60];
        (frame[12], frame[14], frame[23]) = (8, 0x45, protocol);
        frame[26..30].copy_from_slice(&[192, 0, 2, address]);
        frame
    };
    for (rest, by_kernel) in [
        ("udp and ", Some([true, true, false])),
        ("udp and not src ", Some([true, true, false])),
        ("udp or ", None),
    ] {
        let filter = live(&text(rest));
        let placement = filter.place_on_socket(None).unwrap();
        assert!(placement.user && placement.reason.contains("in a file"), "{}", placement.reason);
        let frames = [frame(17, 1), frame(17, 2), frame(6, 2)];
        let kernel =
            placement.kernel.map(|program| frames.map(|one| program.accepts(&one, 60) != 0));
        assert_eq!(kernel, by_kernel, "{rest}");
        let expected = match rest {
            "udp and " => [true, false, false],
            "udp or " => [true, true, false],
            _ => [false, true, false],
        };
        assert_eq!(frames.map(|frame| matches(&filter, &frame, 60)), expected, "{rest}");
    }
    // The kernel sees frames of a file's meaning without their tags.
    let filter = Filter::compile(&text("udp and "), ETHERNET, 65535, true).unwrap();
    assert_eq!(filter.place_on_socket(None).unwrap().kernel, None);
    let filter = live(&text(""));
    assert!(filter.place_on_socket(Some(FilterLocation::Kernel)).is_err());
    let (message, position) = fault(&format!("{} and and", text("udp and ")));
    assert!(message.contains("syntax error"), "{message}");
    assert_eq!(position, Some(text("udp and ").len() + 5));
}
