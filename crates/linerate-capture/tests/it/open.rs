//! Opening many interfaces, of which some may go meanwhile.

use std::sync::Arc;

use linerate_capture::Error;
use linerate_capture::engine::{open_all, open_remaining};
use linerate_capture::source::{SourceKind, SourceOptions};
use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip};

#[test]
fn an_interface_that_went_is_passed_over_where_that_is_wanted() {
    root_or_skip!();
    let near = Namespace::create("copn-near").unwrap();
    let far = Namespace::create("copn-far").unwrap();
    let veth = Veth::create(&near, "near", &far, "far", VethOptions::default()).unwrap();
    veth.b.up().unwrap();
    far.interface("lo").unwrap().up().unwrap();
    let request = SourceOptions {
        source: Some(SourceKind::Packet),
        buffer: Some(1 << 20),
        promiscuous: false,
        ..SourceOptions::default()
    };
    let stop = Arc::default();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let three = names(&["far", "went", "lo"]);
    let (opened, gone) = far.run(|| open_remaining(&three, &request, &stop)).unwrap().unwrap();
    let found: Vec<_> = opened.iter().map(|one| one.interface.name.as_str()).collect();
    assert_eq!((found, gone), (vec!["far", "lo"], names(&["went"])));
    let refused = |error: Option<Error>| match error {
        Some(Error::NoInterface(missing)) => (missing.name, missing.known),
        other => panic!("{other:?}"),
    };
    let (name, there) = refused(far.run(|| open_all(&three, &request, &stop)).unwrap().err());
    assert_eq!((name.as_str(), there.contains(&"far".to_owned())), ("went", true));
    let none = names(&["went"]);
    let (name, _) = refused(far.run(|| open_remaining(&none, &request, &stop)).unwrap().err());
    assert_eq!(name, "went");
    // An interface that exists and cannot be opened is still an error.
    let filter = SourceOptions { filter: Some("no filter at all".into()), ..request };
    let error = far.run(|| open_remaining(&three, &filter, &stop)).unwrap().err();
    assert!(matches!(error, Some(Error::Filter { .. })), "{error:?}");
}
