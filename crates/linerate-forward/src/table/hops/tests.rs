use linerate_testkit::root_or_skip;

use super::*;
use crate::runtime::program::{Options, Programs};
use crate::table::writer::Writer;

fn hop(number: u32) -> Hop {
    Hop { out_ifindex: number, ..Hop::default() }
}

#[test]
fn a_hop_is_freed_after_a_whole_pass_without_a_session() {
    root_or_skip!();
    let programs = Programs::load(&Options { max_sessions: 1024, ..Options::default() }).unwrap();
    let (hops, writer) = (Hops::open(&programs.maps).unwrap(), Writer::open(&programs.maps));
    let insert = |number| writer.insert_hop(&hop(number));
    let (kept, lost) = (insert(1).unwrap(), insert(2).unwrap());
    let phase = |index: u16| hops.state(usize::from(index)).load(Acquire) & hop_state::MASK;
    let mut found = HopUse::new(&hops);
    found.note(kept);
    assert!(found.end_pass(&hops), "one is unused");
    assert_eq!((phase(kept), phase(lost)), (hop_state::USED, hop_state::UNUSED));
    // Wanted again before the next pass ends.
    assert_eq!(insert(2), Some(lost));
    found.note(kept);
    assert!(found.end_pass(&hops));
    assert_eq!(phase(lost), hop_state::UNUSED, "from the start");
    // Another ager does not know how long ago it was marked.
    let mut found = HopUse::new(&hops);
    found.note(kept);
    assert!(found.end_pass(&hops));
    assert_eq!(phase(lost), hop_state::UNUSED);
    // A session had it unnoticed.
    found.note(kept);
    found.note(lost);
    assert!(!found.end_pass(&hops));
    assert_eq!(phase(lost), hop_state::USED);
    for expected in [hop_state::UNUSED, hop_state::FREE] {
        found.note(kept);
        found.end_pass(&hops);
        assert_eq!((phase(kept), phase(lost)), (hop_state::USED, expected));
    }
    assert_eq!(insert(3), Some(lost), "as another");
    assert_eq!(hops.read(lost), hop(3));
}
