//! What two routers sent is compared: which frames, byte for byte, and in which order.

use std::collections::HashMap;
use std::fmt::{self, Write};

use crate::common::capture::Seen;
use crate::common::host::PORTS;

/// A difference between two routers.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) what: &'static str,
    pub(crate) port: usize,
    pub(crate) plain: Vec<Vec<u8>>,
    pub(crate) other: Vec<Vec<u8>>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on port {}", self.what, PORTS[self.port])?;
        for (name, frames) in [("plain", &self.plain), ("other", &self.other)] {
            for frame in frames {
                writeln!(f, "  {name}: {}", describe(frame))?;
            }
        }
        Ok(())
    }
}

/// A frame in hexadecimal, with its parts by the independent parser.
pub(crate) fn describe(frame: &[u8]) -> String {
    let mut text = format!("{} bytes ", frame.len());
    for (index, byte) in frame.iter().take(120).enumerate() {
        let gap = if matches!(index, 6 | 12 | 14 | 34 | 54) { " " } else { "" };
        let _ = write!(text, "{gap}{byte:02x}");
    }
    text
}

/// Everything in which `other` differs from `plain`.
pub(crate) fn differences(plain: &Seen, other: &Seen) -> Vec<Difference> {
    let mut found = Vec::new();
    for port in 0..PORTS.len() {
        let [plain, other] = [&plain[port], &other[port]]
            .map(|frames| frames.iter().map(|frame| without_chance(frame)).collect::<Vec<_>>());
        let (missing, extra) = (beyond(&plain, &other), beyond(&other, &plain));
        let what = match (missing.is_empty(), extra.is_empty()) {
            (true, true) => {
                found.extend(order(port, &plain, &other));
                continue;
            }
            (false, true) => "missing",
            (true, false) => "extra",
            (false, false) => "different",
        };
        found.push(Difference { what, port, plain: missing, other: extra });
    }
    found
}

/// Frames of `these` that `those` has fewer times.
fn beyond(these: &[Vec<u8>], those: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut counts: HashMap<&[u8], usize> = HashMap::new();
    those.iter().for_each(|frame| *counts.entry(frame).or_default() += 1);
    let mut left = |frame: &&Vec<u8>| match counts.get_mut(&frame[..]) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    these.iter().filter(|frame| left(frame)).cloned().collect()
}

/// Sessions whose frames are the same ones in another order.
fn order(port: usize, plain: &[Vec<u8>], other: &[Vec<u8>]) -> Option<Difference> {
    let by_session = |frames: &[Vec<u8>]| {
        let mut sessions: HashMap<Vec<u8>, Vec<Vec<u8>>> = HashMap::new();
        for frame in frames {
            sessions.entry(session(frame)).or_default().push(frame.clone());
        }
        sessions
    };
    let other = by_session(other);
    by_session(plain).into_iter().find_map(|(key, plain)| {
        let other = other[&key].clone();
        (plain != other).then_some(Difference { what: "another order", port, plain, other })
    })
}

/// What a host sees a session by: the addresses and ports behind all tags. All else is one session.
fn session(frame: &[u8]) -> Vec<u8> {
    let at = ether_type_at(frame);
    let packet = frame.get(at + 2..).unwrap_or_default();
    match (frame.get(at..at + 2), packet.first()) {
        (Some([0x08, 0x00]), Some(0x45)) if packet.len() >= 24 && packet[6] & 0x3f == 0 => {
            [&packet[9..10], &packet[12..24]].concat()
        }
        (Some([0x86, 0xdd]), Some(_)) if packet.len() >= 44 => {
            [&packet[6..7], &packet[8..44]].concat()
        }
        _ => Vec::new(),
    }
}

/// The kernel gives what it says itself (ICMP), and what it puts together to look at and cuts again (IPv6
/// fragments, where connections are tracked), an identification by chance. That, and the checksum that
/// covers it, is cleared.
fn without_chance(frame: &[u8]) -> Vec<u8> {
    // The router's own addresses, and those that it speaks for.
    const OWN: [[u8; 4]; 6] = [
        [10, 1, 0, 1],
        [10, 2, 0, 1],
        [10, 3, 0, 1],
        [10, 3, 0, 200],
        [10, 3, 0, 201],
        [10, 2, 0, 210],
    ];
    let mut frame = frame.to_vec();
    let at = ether_type_at(&frame);
    let packet = at + 2;
    match frame.get(at..at + 2) {
        Some([0x08, 0x00]) if frame.get(packet + 9) == Some(&1) => {
            let from = frame.get(packet + 12..packet + 16);
            if from.is_some_and(|from| OWN.iter().any(|own| own == from)) {
                frame[packet + 4..packet + 6].fill(0);
                frame[packet + 10..packet + 12].fill(0);
            }
        }
        Some([0x86, 0xdd]) if frame.get(packet + 6) == Some(&44) => {
            if let Some(identification) = frame.get_mut(packet + 44..packet + 48) {
                identification.fill(0);
            }
        }
        _ => {}
    }
    frame
}

/// Where the EtherType behind all tags stands.
fn ether_type_at(frame: &[u8]) -> usize {
    let is_tag = |at| matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8]));
    (0..).map(|tags| 12 + 4 * tags).find(|at| !is_tag(*at)).unwrap_or_default()
}

#[test]
fn each_kind_of_difference_is_found() {
    let frame = |to: u8, number: u8| {
        let mut frame = vec![2; 12];
        frame.extend([
            8, 0, 0x45, 0, 0, 29, 0, number, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, to,
        ]);
        frame.extend([0, 7, 0, 7, 0, 9, 0, 0, number]);
        frame
    };
    let seen = |frames: &[(u8, u8)]| -> Seen {
        [frames.iter().map(|(to, number)| frame(*to, *number)).collect(), Vec::new(), Vec::new()]
    };
    let kinds = |plain: &[(u8, u8)], other: &[(u8, u8)]| {
        differences(&seen(plain), &seen(other)).iter().map(|found| found.what).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&[(1, 1), (1, 2), (2, 3)], &[(1, 1), (2, 3), (1, 2)]), [""; 0]);
    assert_eq!(kinds(&[(1, 1), (1, 2)], &[(1, 2), (1, 1)]), ["another order"]);
    assert_eq!(kinds(&[(1, 1), (1, 2)], &[(1, 2)]), ["missing"]);
    assert_eq!(kinds(&[(1, 1)], &[(1, 1), (1, 1)]), ["extra"]);
    assert_eq!(kinds(&[(1, 1)], &[(1, 3)]), ["different"]);
    let moved = [Vec::new(), vec![frame(1, 1)], Vec::new()];
    assert_eq!(differences(&seen(&[(1, 1)]), &moved).len(), 2);
}
