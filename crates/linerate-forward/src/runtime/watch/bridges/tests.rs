use super::*;
use linerate_net::netlink::put_attr;

fn body(interface: u32, master: Option<u32>, vlan: u16) -> Vec<u8> {
    let mut bytes = vec![libc::AF_BRIDGE as u8, 0, 0, 0];
    bytes.extend(interface.to_ne_bytes());
    bytes.extend([2, 0, 0, 0]);
    put_attr(&mut bytes, libc::NDA_LLADDR, &[2, 0, 0, 0, 0, 9]);
    put_attr(&mut bytes, libc::NDA_VLAN, &vlan.to_ne_bytes());
    if let Some(master) = master {
        put_attr(&mut bytes, libc::NDA_MASTER, &master.to_ne_bytes());
    }
    bytes
}

#[test]
fn what_is_new_moves_or_goes_is_a_change() {
    let mut all = Bridges::default();
    let mut update = |deleted, interface, master, vlan| {
        all.update(deleted, &body(interface, master, vlan), |bridge| bridge == 7)
    };
    assert!(update(false, 3, Some(7), 0));
    assert!(!update(false, 3, Some(7), 0));
    assert!(update(false, 3, Some(7), 10));
    assert!(update(false, 4, Some(7), 0), "it moved");
    assert!(update(true, 4, Some(7), 0));
    assert!(!update(true, 4, Some(7), 0));
    assert!(update(true, 3, Some(7), 10));
    assert!(!update(false, 5, Some(8), 0), "a bridge of others");
    assert!(!update(false, 5, None, 0), "a filter of the interface itself");
}
