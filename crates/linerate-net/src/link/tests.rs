use super::*;

#[test]
fn the_loopback_interface_is_there() {
    let links = all().unwrap();
    let loopback = links.iter().find(|link| link.name == "lo").expect("lo");
    assert!(loopback.is_loopback() && !loopback.is_ethernet(), "{loopback:?}");
    assert_eq!(loopback.address, Some(ethernet::Address([0; 6])));
    assert_eq!(by_index(loopback.index).unwrap().unwrap().name, "lo");
    assert_eq!(by_name("lo").unwrap().index, loopback.index);
    assert_eq!(numa_node("lo"), None);
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    for name in ["", "none", "a-name-that-is-too-long", "nul\0"] {
        assert!(matches!(by_name(name), Err(Error::NoInterface(said)) if said.name == name));
    }
    assert_eq!(by_index(i32::MAX as u32).unwrap(), None);
}

#[test]
fn a_veth_lies_on_nothing_and_its_peer_names_it() {
    let link = |index, kind: &str, link| Link {
        index,
        kind: kind.to_owned(),
        link: Some(link),
        ..Link::default()
    };
    let links = [link(1, "veth", 2), link(2, "veth", 1), link(3, "vlan", 1), link(4, "veth", 1)];
    assert_eq!(links[0].veth_peer(&links), Some(&links[1]));
    assert_eq!(links[3].veth_peer(&links), None, "1 is the end of another pair");
    assert_eq!(links.each_ref().map(Link::lower), [None, None, Some(1), None]);
    let elsewhere = Link { link_netnsid: Some(0), ..links[0].clone() };
    assert_eq!(elsewhere.veth_peer(&links), None);
}
