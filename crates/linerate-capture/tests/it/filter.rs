//! Filters on the packets of a real interface.

use std::time::{Duration, Instant};

use linerate_capture::filter::{ETHERNET, Filter, FilterLocation};
use linerate_ring::packet::{Options, Ring};
use linerate_ring::{Batch as _, Direction, Frame, Ring as _};
use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip};

const SNAPLEN: u32 = 2000;

/// A UDP datagram to `port` behind `tags`, with its own number in the last byte.
fn datagram(number: u8, tags: &[u16], port: u16) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1]);
    for tag in tags {
        frame.extend([0x81, 0]);
        frame.extend(tag.to_be_bytes());
    }
    frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    frame.extend([0x30, 0x39]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 20, 0, 0]);
    frame.extend([number; 12]);
    frame
}

/// What is sent: the number of each frame is its place here.
fn sent() -> Vec<Vec<u8>> {
    let kinds: [(&[u16], u16); 7] =
        [(&[], 53), (&[], 80), (&[5], 53), (&[5], 80), (&[6], 53), (&[5, 6], 53), (&[0xe005], 53)];
    let numbered = kinds.iter().enumerate();
    numbered.map(|(number, (tags, port))| datagram(number as u8, tags, *port)).collect()
}

/// Sends all frames, and a last one that every filter of the test takes. Returns the numbers of
/// those that came through the filter of the ring, and of those that user space would have taken.
fn through(expression: &str) -> (Vec<u8>, Vec<u8>) {
    const LAST: u8 = 0xee;
    let (left, right) = (Namespace::create("fl").unwrap(), Namespace::create("fr").unwrap());
    let _cable = Veth::create(&left, "a", &right, "b", VethOptions::default()).unwrap();
    // `vlan` shifts what stands behind it, so the way out for the last frame comes first.
    let text = format!("udp dst port 9999 or ({expression})");
    let (mut ring, filter) = right
        .run(|| {
            let filter = Filter::compile_live("b", &text, ETHERNET, SNAPLEN).unwrap();
            let placement = filter.place_on_socket(None).unwrap();
            assert_eq!(placement.location(), FilterLocation::Kernel, "{}", placement.reason);
            let options = Options {
                snaplen: SNAPLEN,
                filter: placement.kernel,
                retire_timeout: Duration::from_millis(10),
                ..Options::new("b")
            };
            (Ring::open(options).unwrap(), filter)
        })
        .unwrap();
    let mut frames = sent();
    let by_user = (0..frames.len() as u8)
        .filter(|&number| {
            let frame = &frames[usize::from(number)];
            filter.matches(&Frame::new(frame), frame)
        })
        .collect();
    frames.push(datagram(LAST, &[], 9999));
    left.run(|| {
        let mut out = pcap::Capture::from_device("a").unwrap().open().unwrap();
        frames.iter().for_each(|frame| out.sendpacket(&frame[..]).unwrap());
    })
    .unwrap();
    let mut numbers = Vec::new();
    let start = Instant::now();
    while numbers.last() != Some(&LAST) {
        assert!(start.elapsed() < Duration::from_secs(10), "only {numbers:?} came in time");
        ring.wait(Duration::from_millis(100)).unwrap();
        while let Some(mut batch) = ring.next_batch() {
            while let Some(frame) = batch.next() {
                let bytes = frame.head();
                if bytes[6..12] != [2, 0, 0, 0, 0, 1] {
                    continue;
                }
                let number = *bytes.last().unwrap();
                if let Some(original) = sent().get(usize::from(number)) {
                    assert_eq!(bytes, original, "the tag is back in its place");
                }
                numbers.push(number);
            }
        }
    }
    numbers.pop();
    (numbers, by_user)
}

#[test]
fn vlan_expressions_see_the_tags_that_the_kernel_took_out() {
    root_or_skip!();
    for (expression, expected) in [
        ("vlan 5 and udp port 53", &[2, 6][..]),
        ("vlan 5", &[2, 3, 5, 6]),
        ("vlan 5 and vlan 6 and udp port 53", &[5]),
        ("udp port 80 or (vlan and udp port 80)", &[1, 3]),
    ] {
        let (by_kernel, by_user) = through(expression);
        assert_eq!(by_user, expected, "`{expression}` in user space");
        assert_eq!(by_kernel, expected, "`{expression}` in the kernel");
    }
    // A socket sees the frame without its (outer) tag, so its filter looks through it, as tcpdump's does. User
    // space does the same, although the tag is back in the frame.
    assert_eq!(through("udp port 53"), (vec![0, 2, 4, 6], vec![0, 2, 4, 6]));
}

#[test]
fn directions_are_known_everywhere() {
    root_or_skip!();
    let (left, right) = (Namespace::create("dl").unwrap(), Namespace::create("dr").unwrap());
    let _cable = Veth::create(&left, "a", &right, "b", VethOptions::default()).unwrap();
    let filter = right.run(|| Filter::compile_live("b", "inbound and udp", ETHERNET, SNAPLEN));
    let filter = filter.unwrap().unwrap();
    assert_eq!(filter.place_on_socket(None).unwrap().location(), FilterLocation::Kernel);
    assert_eq!(filter.place_in_xdp(None).unwrap().location(), FilterLocation::Kernel);
    let bytes = datagram(0, &[], 53);
    for (direction, expected) in [(Direction::Inbound, true), (Direction::Outbound, false)] {
        let mut frame = Frame::new(&bytes);
        frame.direction = direction;
        assert_eq!(filter.matches(&frame, &bytes), expected, "{direction:?}");
    }
}

#[test]
fn an_unknown_interface_is_named() {
    let error = Filter::compile_live("nosuch0", "udp", ETHERNET, SNAPLEN).unwrap_err().to_string();
    assert!(error.contains("nosuch0"), "{error}");
}
