use super::*;
use linerate_net::netlink::{put_attr, put_nested};

fn link(index: u32, flags: u32, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = vec![0, 0, 1, 0];
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend([0; 4]);
    fill(&mut body);
    body
}

#[test]
fn what_ticks_is_no_change() {
    let mut all = Links::default();
    let mut new = |flags, mtu: u32, sent: u64, gc: u64, in6: u64| {
        let body = link(3, flags, |body| {
            put_attr(body, libc::IFLA_MTU, &mtu.to_ne_bytes());
            put_attr(body, libc::IFLA_STATS64, &sent.to_ne_bytes());
            put_nested(body, libc::IFLA_LINKINFO, |info| {
                put_attr(info, libc::IFLA_INFO_KIND, b"bridge\0");
                put_nested(info, libc::IFLA_INFO_DATA, |data| {
                    put_attr(data, 19, &gc.to_ne_bytes());
                });
            });
            put_nested(body, libc::IFLA_AF_SPEC, |families| {
                put_nested(families, libc::AF_INET6 as u16, |v6| {
                    put_attr(v6, 3, &in6.to_ne_bytes());
                });
            });
        });
        all.update(false, &body)
    };
    assert!(new(1, 1500, 0, 0, 0));
    assert!(!new(1, 1500, 99, 0, 0), "statistics");
    assert!(!new(1, 1500, 99, 7, 0), "a timer of the bridge");
    assert!(!new(1, 1500, 99, 7, 7), "statistics of IPv6");
    assert!(!new(1 | libc::IFF_PROMISC as u32, 1500, 99, 7, 0), "somebody captures");
    assert!(new(1, 1400, 99, 7, 0), "the MTU");
    assert!(new(0, 1400, 99, 7, 0), "down");
    assert!(all.update(true, &link(3, 0, |_| ())));
    assert!(!all.update(true, &link(3, 0, |_| ())));
    assert!(all.update(false, &[0, 1]), "what cannot be read");
}

#[test]
fn masters_are_known() {
    let mut all = Links::default();
    let enslaved = link(3, 1, |body| put_attr(body, libc::IFLA_MASTER, &7u32.to_ne_bytes()));
    assert!(all.update(false, &enslaved));
    assert_eq!(all.master(3), Some(7));
    assert!(all.update(false, &link(3, 1, |_| ())));
    assert_eq!(all.master(3), None);
}

#[test]
fn a_renewed_address_is_no_change() {
    let mut all = Links::default();
    let body = |host: u8, lifetime: u32, flags: u32| {
        let mut body = vec![libc::AF_INET as u8, 24, 0, 0];
        body.extend(3u32.to_ne_bytes());
        put_attr(&mut body, libc::IFA_LOCAL, &[10, 0, 0, host]);
        put_attr(&mut body, libc::IFA_CACHEINFO, &lifetime.to_ne_bytes());
        put_attr(&mut body, libc::IFA_FLAGS, &flags.to_ne_bytes());
        body
    };
    assert!(all.update_address(false, &body(1, 60, 0x80)));
    assert!(!all.update_address(false, &body(1, 90, 0x80)));
    assert!(!all.update_address(false, &body(1, 90, 0x80 | DEPRECATED)));
    assert!(all.update_address(false, &body(2, 90, 0x80)));
    assert!(all.update_address(true, &body(1, 0, 0x80)));
    assert!(!all.update_address(true, &body(1, 0, 0x80)));
    assert!(all.update_address(false, &[0; 7]));
}
