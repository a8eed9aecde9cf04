use super::*;

fn interface() -> Link {
    Link { name: "eth9".into(), hardware_type: 1, ..Link::default() }
}

#[test]
fn without_xdp_consent_changes_nothing() {
    for take_over in [false, true] {
        let options = SourceOptions { take_over, ..SourceOptions::default() };
        let selection = select(&interface(), &options).expect("a choice");
        assert_eq!((selection.kind, selection.awaits_consent), (SourceKind::Packet, false));
    }
}

#[test]
fn the_name_of_a_source_is_consent() {
    let options = SourceOptions { source: Some(SourceKind::Xdp), ..SourceOptions::default() };
    let selection = select(&interface(), &options).expect("a choice");
    assert_eq!(selection, Selection::new(SourceKind::Xdp, "requested"));
}

#[test]
fn splitting_takes_packet_sockets() {
    let idle = interface();
    let options = SourceOptions {
        split: true,
        traffic: Some(DirectionFilter::In),
        ..SourceOptions::default()
    };
    let selection = select(&idle, &options).expect("a choice");
    assert_eq!(selection.kind, SourceKind::Packet);
    assert!(selection.reason.contains("splitting"), "{}", selection.reason);
    for source in [SourceKind::Xdp, SourceKind::Tee] {
        let refusal = select(&idle, &SourceOptions { source: Some(source), ..options.clone() })
            .expect_err("refused");
        let text = refusal.to_string();
        assert!(text.contains("splitting") && text.contains("source packet"), "{text}");
    }
}

#[test]
fn outgoing_frames_come_from_packet_sockets_only() {
    let idle = interface();
    let options = SourceOptions { traffic: Some(DirectionFilter::Out), ..SourceOptions::default() };
    assert_eq!(select(&idle, &options).expect("a choice").kind, SourceKind::Packet);
    assert!(select(&idle, &SourceOptions { source: Some(SourceKind::Tee), ..options }).is_err());
}
