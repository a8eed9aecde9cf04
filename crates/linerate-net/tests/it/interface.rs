use linerate_net::{Error, Interface};
use linerate_testkit::root_or_skip;

use crate::support::{Cable, cable, stdout_of};

#[test]
fn an_interface_is_asked_in_its_namespace_whatever_it_is_called_by_then() {
    root_or_skip!();
    let Cable { near, veth, far: _far } = cable();
    let interface = near.run(|| Interface::open("a").unwrap()).unwrap();
    // From here on this thread asks, which is in another namespace.
    assert_eq!(interface.index(), veth.a.index());
    assert!(interface.exists() && interface.is_up().unwrap());
    assert_eq!(interface.driver().as_deref(), Some("veth"));
    assert_eq!(near.run(|| interface.rx_queues()).unwrap().unwrap(), 1);
    assert_eq!(near.run(|| interface.link().unwrap().mtu).unwrap(), 1500);
    stdout_of(&near, "ip link set dev a down");
    assert!(!interface.is_up().unwrap());
    stdout_of(&near, "ip link set dev a name other");
    stdout_of(&near, "ip link set dev other up");
    assert!(interface.is_up().unwrap(), "by its index");
    stdout_of(&near, "ip link del other");
    stdout_of(&near, "ip link add name a type veth peer name b");
    assert!(!interface.exists());
    assert!(matches!(interface.is_up(), Err(Error::InterfaceGone(name)) if name == "a"));
    assert!(matches!(Interface::open("a"), Err(Error::NoInterface(_))), "it is not here");
}
