use libc::{NUD_DELAY, NUD_FAILED, NUD_INCOMPLETE, NUD_NONE, NUD_PROBE, NUD_REACHABLE, NUD_STALE};

use super::*;
use linerate_net::netlink::put_attr;

const HERE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THERE: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn body(state: u16, flags: u8, host: u8, address: Option<[u8; 6]>) -> Vec<u8> {
    let mut bytes = vec![libc::AF_INET as u8, 0, 0, 0];
    bytes.extend(3u32.to_ne_bytes());
    bytes.extend(state.to_ne_bytes());
    bytes.extend([flags, 1]);
    put_attr(&mut bytes, libc::NDA_DST, &[10, 0, 0, host]);
    if let Some(address) = address {
        put_attr(&mut bytes, libc::NDA_LLADDR, &address);
    }
    bytes
}

#[test]
fn only_another_way_is_a_change() {
    let mut all = Neighbours::default();
    let mut new = |state, address| all.update(false, &body(state, 0, 1, address));
    assert!(!new(NUD_INCOMPLETE, None));
    assert!(!new(NUD_REACHABLE, Some(HERE)));
    for state in [NUD_STALE, NUD_DELAY, NUD_PROBE, NUD_REACHABLE, NUD_STALE] {
        assert!(!new(state, Some(HERE)), "{state:#x}");
    }
    assert!(new(NUD_STALE, Some(THERE)));
    assert!(!new(NUD_REACHABLE, Some(THERE)));
    assert!(new(NUD_FAILED, None));
    assert!(!new(NUD_FAILED, None));
    assert!(!new(NUD_INCOMPLETE, None));
    assert!(new(NUD_REACHABLE, Some(THERE)), "it came back");
    assert!(new(NUD_NONE, None));
}

#[test]
fn what_never_answered_is_no_change() {
    let mut all = Neighbours::default();
    for host in 0..=255 {
        assert!(!all.update(false, &body(NUD_INCOMPLETE, 0, host, None)));
        assert!(!all.update(false, &body(NUD_FAILED, 0, host, None)));
        assert!(!all.update(true, &body(NUD_FAILED, 0, host, None)));
    }
    assert!(all.known.is_empty());
}

#[test]
fn an_entry_cleared_away_is_remembered() {
    let mut all = Neighbours::default();
    assert!(!all.update(false, &body(NUD_REACHABLE, 0, 1, Some(HERE))));
    assert!(!all.update(true, &body(NUD_STALE, 0, 1, Some(HERE))));
    assert!(!all.update(false, &body(NUD_INCOMPLETE, 0, 1, None)));
    assert!(!all.update(false, &body(NUD_REACHABLE, 0, 1, Some(HERE))));
    assert!(!all.update(true, &body(NUD_STALE, 0, 1, Some(HERE))));
    assert!(all.update(false, &body(NUD_REACHABLE, 0, 1, Some(THERE))), "it moved meanwhile");
    assert!(!all.update(true, &body(NUD_STALE, 0, 1, Some(THERE))));
    assert!(all.update(false, &body(NUD_FAILED, 0, 1, None)), "it is gone");
    assert!(!all.update(true, &body(NUD_FAILED, 0, 1, None)));
    assert!(all.update(false, &body(NUD_REACHABLE, 0, 1, Some(THERE))));
}

#[test]
fn a_router_that_appears_and_whom_we_answer_for_are_changes() {
    let mut all = Neighbours::default();
    assert!(all.update(false, &body(NUD_REACHABLE, libc::NTF_ROUTER, 1, Some(HERE))));
    assert!(!all.update(false, &body(NUD_STALE, libc::NTF_ROUTER, 1, Some(HERE))));
    assert!(all.update(false, &body(NUD_STALE, 0, 1, Some(HERE))), "no router any more");
    assert!(all.update(false, &body(NUD_NONE, libc::NTF_PROXY, 2, None)));
    assert!(all.update(false, &[1, 2, 3]), "what cannot be read");
}

#[test]
fn the_memory_of_the_past_is_bounded() {
    let mut all = Neighbours::default();
    let mut changes = 0;
    for number in 0..=REMEMBERED as u32 {
        let [_, a, b, c] = number.to_be_bytes();
        let mut bytes = body(NUD_REACHABLE, 0, c, Some(HERE));
        bytes[HEADER + 5..HEADER + 7].copy_from_slice(&[a, b]);
        changes += u32::from(all.update(false, &bytes));
        changes += u32::from(all.update(true, &bytes));
    }
    assert_eq!(changes, 1);
    assert!(all.known.is_empty());
}
