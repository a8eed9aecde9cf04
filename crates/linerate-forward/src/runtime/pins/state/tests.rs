use super::*;

#[test]
fn a_record_is_read_as_written() {
    let mut state = InstanceState::new(&Options::default(), Namespace::current().unwrap());
    state.windows = SavedSysctls { liberal: Some(0), resets: None };
    state.others.insert("preflight".into(), serde_json::json!({"peers": ["veth1"]}));
    state.ports.push(PortState {
        name: "eth0.100".into(),
        ifindex: 7,
        mac: [2, 0, 0, 0, 0, 1],
        port: 0,
        flags: 0,
        native: true,
        generic_reason: None,
        clsact: None,
    });
    assert_eq!(InstanceState::read(&state.write()), Ok(state.clone()));
    assert!(state.is_this_build() && state.port(7).is_some() && state.port(8).is_none());
    assert_eq!(state.check_compatible(&Options::default()), Ok(()));
}

#[test]
fn what_does_not_fit_is_said() {
    let mut state = InstanceState::new(&Options::default(), Namespace::current().unwrap());
    let options = Options { max_sessions: 5000, ..Options::default() };
    assert_eq!(
        state.check_compatible(&options),
        Err("max-sessions is 5000 now and was 1000000".into())
    );
    let options = Options { statistics: Statistics::None, ..Options::default() };
    assert_eq!(state.check_compatible(&options), Err("statistics is none now and was slot".into()));
    state.abi += 1;
    assert!(state.check_compatible(&Options::default()).unwrap_err().contains("of layout"));
    let newer = String::from_utf8(state.write()).unwrap().replace("\"format\":1", "\"format\":9");
    assert!(InstanceState::read(newer.as_bytes()).unwrap_err().contains("of format 9"));
    assert!(InstanceState::read(b"{").unwrap_err().contains("cannot be read"));
}
