use super::*;
use crate::finding::Severity::{Note, Ok, Unknown, Warning};

fn card() -> Link {
    Link { name: "eth9".into(), ..Link::default() }
}

fn command(answer: &Answer) -> String {
    answer.remedy.command().unwrap_or_default()
}

#[test]
fn channels_rings_and_coalescing_are_changed_by_ethtool() {
    let value = |current, max| Value { current, max: Some(max) };
    let combined = Parameter::CombinedChannels;
    let few = queues_of(&card(), combined, "channels", value(1, 8), 4);
    assert_eq!((few.severity, command(&few).as_str()), (Warning, "ethtool -L eth9 combined 4"));
    assert_eq!(queues_of(&card(), combined, "channels", value(2, 2), 4).severity, Note);
    assert_eq!(queues_of(&card(), combined, "channels", value(4, 8), 4).severity, Ok);
    let small = ring_of(&card(), value(256, 8192));
    assert_eq!((small.severity, command(&small).as_str()), (Warning, "ethtool -G eth9 rx 4096"));
    assert_eq!(ring_of(&card(), value(256, 256)).severity, Ok);
    let none = coalescing_of(&card(), 0, 0);
    assert_eq!((none.severity, command(&none).as_str()), (Note, "ethtool -C eth9 rx-usecs 50"));
    assert_eq!(coalescing_of(&card(), 0, 64).severity, Ok);
    assert_eq!(coalescing_of(&card(), 500, 0).severity, Note);
}

#[test]
fn a_key_for_a_symmetric_hash_has_the_length_of_the_driver() {
    let rss = |key: &[u8]| Rss { key: key.to_vec(), input_transformation: 0 };
    let found = hash_of(&card(), Some(&rss(&[1, 2, 3, 4])));
    assert_eq!(command(&found), "ethtool -X eth9 hkey 6d:5a:6d:5a");
    assert_eq!(hash_of(&card(), Some(&rss(&[0x6d, 0x5a, 0x6d, 0x5a]))).severity, Ok);
    assert_eq!(hash_of(&card(), None).severity, Note);
}

#[test]
fn queues_on_one_cpu_and_cards_on_another_node_are_warnings() {
    let queues = |cpus: &[usize]| {
        cpus.iter().enumerate().map(|(queue, cpu)| (queue as u32, vec![*cpu])).collect()
    };
    assert_eq!(interrupts_of(&queues(&[0, 0, 0]), 4).severity, Warning);
    assert_eq!(interrupts_of(&queues(&[0, 1, 2]), 4).severity, Ok);
    assert_eq!(interrupts_of(&queues(&[0, 1, 0, 1]), 2).severity, Ok);
    assert_eq!(interrupts_of(&queues(&[]), 2).severity, Unknown);
    assert_eq!(node_of(Some(1), &[Some(0), Some(0)]).severity, Warning);
    assert_eq!(node_of(Some(1), &[Some(0), Some(1)]).severity, Ok);
    assert_eq!(node_of(Some(0), &[None, None]).severity, Ok);
    assert_eq!(node_of(None, &[Some(0)]).severity, Ok);
}
