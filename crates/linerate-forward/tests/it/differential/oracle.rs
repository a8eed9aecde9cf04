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

/// How often the kernel sent each address an ICMP error because routing refused its packet.
///
/// It sends five such messages at once and one a second after them (`ip_error` in net/ipv4/route.c). No setting of a
/// namespace changes that. From then on two routers that get a frame in different ticks may differ by a message.
#[derive(Debug, Default)]
pub(crate) struct Refusals(HashMap<[u8; 4], usize>);

impl Refusals {
    /// `ip_rt_error_burst` over `ip_rt_error_cost`.
    const BURST: usize = 5;

    /// Counts those among what a router sent.
    pub(crate) fn count(&mut self, seen: &Seen) {
        for address in seen.iter().flatten().filter_map(|frame| refused(frame)) {
            *self.0.entry(address).or_default() += 1;
        }
    }

    /// Whether the limit of the kernel alone explains a difference.
    pub(crate) fn explain(&self, difference: &Difference) -> bool {
        let limited = |frame: &Vec<u8>| {
            refused(frame)
                .is_some_and(|to| self.0.get(&to).is_some_and(|count| *count >= Self::BURST))
        };
        difference.plain.iter().chain(&difference.other).all(limited)
    }
}

/// The receiver of an ICMP error about a packet that routing refused: destination unreachable with the codes network,
/// host, and communication prohibited.
fn refused(frame: &[u8]) -> Option<[u8; 4]> {
    let at = ether_type_at(frame);
    let packet = frame.get(at + 2..)?;
    let is_refusal = frame.get(at..at + 2)? == [8, 0]
        && *packet.first()? == 0x45
        && *packet.get(9)? == 1
        && *packet.get(20)? == 3
        && matches!(packet.get(21)?, 0 | 1 | 13);
    is_refusal.then(|| packet[16..20].try_into().expect("four bytes"))
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

/// What a host sees a session by: the addresses and ports behind all tags; for ARP the source MAC address, since a macvlan device
/// gets a broadcast later than the interface below, from a work queue. All else is one session.
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
        (Some([0x08, 0x06]), _) => frame[6..12].to_vec(),
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
fn only_refusals_above_the_limit_are_explained() {
    let message = |code: u8| {
        let mut frame = vec![2; 12];
        frame.extend([
            8, 0, 0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0, 10, 1, 0, 1, 10, 1, 0, 11, 3, code,
        ]);
        frame
    };
    let seen = |code| -> Seen { [vec![message(code)], Vec::new(), Vec::new()] };
    let found = |code| differences(&seen(code), &Seen::default()).remove(0);
    let mut refusals = Refusals::default();
    for _ in 0..Refusals::BURST {
        assert!(!refusals.explain(&found(1)));
        refusals.count(&seen(1));
    }
    assert!(refusals.explain(&found(1)) && refusals.explain(&found(13)));
    // Fragmentation needed, and port unreachable, have no such limit.
    assert!(!refusals.explain(&found(4)) && !refusals.explain(&found(3)));
    let mut with_more = found(1);
    with_more.plain.push(message(3));
    assert!(!refusals.explain(&with_more));
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
