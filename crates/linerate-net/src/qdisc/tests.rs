use super::*;
use crate::netlink::{put_attr, put_nested};

fn message(kind: &[u8], fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = tcmsg(7, INGRESS_FILTERS).to_vec();
    put_attr(&mut body, libc::TCA_KIND, kind);
    put_nested(&mut body, libc::TCA_OPTIONS, fill);
    body
}

#[test]
fn a_filter_is_read_with_its_actions_and_what_it_matches() {
    let actions = |options: &mut Vec<u8>, kind: u16| {
        put_nested(options, kind, |list| {
            for (number, kind) in [(1, b"ct\0".as_slice()), (2, b"mirred\0")] {
                put_nested(list, number, |action| put_attr(action, ACTION_KIND, kind));
            }
        });
    };
    for (kind, attribute) in [(b"flower\0".as_slice(), 3), (b"u32\0", 7), (b"matchall\0", 2)] {
        let found = Filter::read(&message(kind, |options| actions(options, attribute))).unwrap();
        assert_eq!(found.actions, ["ct", "mirred"]);
        assert!(!found.matches_connection);
    }
    for (key, matches) in [(90, false), (91, true), (98, true), (99, false)] {
        let body = message(b"flower\0", |options| put_attr(options, key, &[1, 0]));
        assert_eq!(Filter::read(&body).unwrap().matches_connection, matches, "{key}");
    }
}

#[test]
fn a_cake_reads_connections_if_it_is_told_to() {
    for (kind, nat, reads) in [("cake\0", 0, false), ("cake\0", 1, true), ("htb\0", 1, false)] {
        let fill = |options: &mut Vec<u8>| put_attr(options, CAKE_NAT, &u32::to_ne_bytes(nat));
        let found = Qdisc::read(&message(kind.as_bytes(), fill)).unwrap();
        assert_eq!(found.reads_connection, reads);
    }
}
