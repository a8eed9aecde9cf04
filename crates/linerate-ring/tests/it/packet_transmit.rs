//! The transmit ring on real veth pairs.

use std::time::Duration;

use crate::packet_support::{Cable, finish, number, numbered};
use linerate_ring::Error;
use linerate_ring::packet::TxRing;
use linerate_testkit::root_or_skip;

#[test]
fn frames_arrive_in_order_more_than_once_around_the_ring() {
    root_or_skip!();
    let cable = Cable::new();
    let mut receiver = cable.ring();
    let mut ring = cable.sender.run(|| TxRing::open("tx", 64)).unwrap().unwrap();
    let mut sent = 0;
    while sent < 1000 {
        match ring.frame(60 + sent as usize % 500).unwrap() {
            Some(mut frame) => {
                let len = frame.len();
                frame.copy_from_slice(&numbered(sent, len));
                frame.send();
                sent += 1;
            }
            None => ring.flush().unwrap(),
        }
    }
    assert!(ring.finish(Duration::from_secs(5)).unwrap());
    let statistics = ring.statistics();
    assert_eq!((statistics.sent, statistics.rejected), (1000, 0));
    let bytes: u64 = (0..1000).map(|n| 60 + n % 500).sum();
    assert_eq!(statistics.bytes, bytes);
    cable.settle(1000);
    let numbers: Vec<_> = finish(&mut receiver).iter().map(|kept| number(&kept.bytes)).collect();
    assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
}

#[test]
fn a_frame_that_is_dropped_is_not_sent() {
    root_or_skip!();
    let cable = Cable::new();
    let mut receiver = cable.ring();
    let mut ring = cable.transmit();
    for send in [1, 0, 2, 0, 3] {
        let mut frame = ring.frame(60).unwrap().unwrap();
        frame.copy_from_slice(&numbered(send, 60));
        if send > 0 {
            frame.send();
        }
    }
    ring.flush().unwrap();
    cable.settle(3);
    let numbers: Vec<_> = finish(&mut receiver).iter().map(|kept| number(&kept.bytes)).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

#[test]
fn the_ring_is_full_when_every_slot_waits() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring = cable.transmit();
    let mut queued = 0;
    while let Some(mut frame) = ring.frame(60).unwrap() {
        frame.copy_from_slice(&numbered(queued, 60));
        frame.send();
        queued += 1;
    }
    assert!(queued >= 256, "{queued}");
    assert_eq!(ring.statistics().sent, 0);
    ring.flush().unwrap();
    assert_eq!(ring.statistics().sent, u64::from(queued));
}

#[test]
fn a_frame_too_long_for_a_shrunken_mtu_is_taken_out() {
    root_or_skip!();
    let cable = Cable::new();
    let mut receiver = cable.ring();
    let mut ring = cable.transmit();
    cable.veth.a.set_mtu(600).unwrap();
    let long = [2, 3, 7, 9];
    for number in 0..10 {
        let len = if long.contains(&number) { 1000 } else { 100 };
        let mut frame = ring.frame(len).unwrap().unwrap();
        frame.copy_from_slice(&numbered(number, len));
        frame.send();
    }
    assert!({
        ring.flush().unwrap();
        ring.finish(Duration::from_secs(5)).unwrap()
    });
    let statistics = ring.statistics();
    assert_eq!((statistics.sent, statistics.rejected), (6, 4));
    // The slots behind go on to work.
    for number in 10..400 {
        loop {
            if let Some(mut frame) = ring.frame(100).unwrap() {
                frame.copy_from_slice(&numbered(number, 100));
                break frame.send();
            }
            ring.flush().unwrap();
        }
    }
    assert!(ring.finish(Duration::from_secs(5)).unwrap());
    cable.settle(396);
    let numbers: Vec<_> = finish(&mut receiver).iter().map(|kept| number(&kept.bytes)).collect();
    assert_eq!(numbers, (0..400).filter(|n| !long.contains(n)).collect::<Vec<_>>());
}

#[test]
fn lengths_that_the_interface_cannot_send_are_named() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring = cable.transmit();
    assert_eq!(ring.frame_len(), (14, 1518));
    for len in [0, 13, 1519, usize::MAX] {
        let error = ring.frame(len).unwrap_err();
        assert!(error.to_string().contains("interface tx: 14 to 1518 can"), "{error}");
    }
    // The longest is for a frame with a tag.
    let mut frame = ring.frame(1518).unwrap().unwrap();
    frame.copy_from_slice(&numbered(1, 1518));
    frame[12..16].copy_from_slice(&[0x81, 0, 0, 5]);
    frame.send();
    ring.flush().unwrap();
    assert_eq!((ring.statistics().sent, ring.statistics().rejected), (1, 0));
    let refused = |frames| {
        let build = || TxRing::open("tx", frames);
        cable.sender.run(build).unwrap().unwrap_err().to_string()
    };
    assert!(refused(u32::MAX).contains("more than 4294967295"), "{}", refused(u32::MAX));
    assert!(refused(1 << 31).contains("memory available"), "{}", refused(1 << 31));
    assert!(refused(0).contains("at least one block"), "{}", refused(0));
}

#[test]
fn frames_wait_while_the_interface_is_down_and_gone_is_gone() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring = cable.transmit();
    cable.veth.a.down().unwrap();
    let mut frame = ring.frame(60).unwrap().unwrap();
    frame.copy_from_slice(&numbered(1, 60));
    frame.send();
    let error = ring.flush().unwrap_err();
    assert!(matches!(error, Error::InterfaceDown(_)), "{error}");
    assert_eq!(ring.statistics().sent, 0);
    cable.veth.a.up().unwrap();
    ring.flush().unwrap();
    assert_eq!(ring.statistics().sent, 1);
    let Cable { veth, sender: _sender, receiver: _receiver, .. } = cable;
    veth.delete().unwrap();
    let mut frame = ring.frame(60).unwrap().unwrap();
    frame.copy_from_slice(&numbered(1, 60));
    frame.send();
    let error = ring.flush().unwrap_err();
    assert!(matches!(error, Error::InterfaceGone(_)), "{error}");
}
