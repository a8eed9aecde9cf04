use linerate_net::namespace::Namespace;
use linerate_net::{Connection, link};
use linerate_testkit::root_or_skip;

use crate::support::{Cable, cable};

#[test]
fn the_namespace_that_a_link_leads_into_is_found_and_entered() {
    root_or_skip!();
    let Cable { near, far, veth } = cable();
    near.run(|| {
        let own = Namespace::current().unwrap();
        assert_eq!(own.name().as_deref(), Some(near.name()));
        let connection = Connection::open().unwrap();
        let link = connection.link_by_name("a").unwrap();
        let there = connection.namespace(link.link_netnsid.unwrap()).expect("found");
        assert_eq!(there.name().as_deref(), Some(far.name()));
        assert_ne!(there.inode(), own.inode());
        let peer = there.run(|| link::by_name("b").unwrap()).unwrap();
        assert_eq!((peer.index, Some(peer.index)), (veth.b.index(), link.link));
        assert_eq!(Namespace::by_inode(there.inode()).unwrap().path(), far.path());
        assert!(link::by_name("b").is_err(), "this thread has stayed");
    })
    .unwrap();
}
