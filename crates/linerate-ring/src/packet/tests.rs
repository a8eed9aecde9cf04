//! The kernel as oracle for the rules.

use super::rules::{BrokenRule, Kind, RingConfig};
use super::socket::Socket;

const VALID: RingConfig = RingConfig {
    kind: Kind::Receive,
    block_size: 8192,
    blocks: 2,
    frame_size: 2048,
    frames: 8,
    retire_ms: 0,
    private_size: 0,
    features: 0,
    reserve: 0,
};

/// Asks the kernel for rings.
struct Oracle(Socket);

impl Oracle {
    fn new() -> Self {
        Self(Socket::open().unwrap())
    }

    /// What the kernel says to a request: taken, or refused as invalid.
    fn takes(&mut self, request: RingConfig) -> bool {
        let version = request.kind.version();
        let option = match request.kind {
            Kind::Receive => libc::PACKET_RX_RING,
            _ => libc::PACKET_TX_RING,
        };
        self.0.set(libc::SOL_PACKET, libc::PACKET_VERSION, &version).unwrap();
        self.0.set(libc::SOL_PACKET, libc::PACKET_RESERVE, &request.reserve).unwrap();
        match self.0.set(libc::SOL_PACKET, option, &request.to_kernel()) {
            Ok(()) => {
                // A socket has one ring of a kind at a time.
                *self = Self::new();
                true
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EINVAL) => false,
                // The rules are kept, and the machine too small.
                Some(libc::ENOMEM) => true,
                _ => panic!("{request:?}: {error}"),
            },
        }
    }
}

#[test]
fn the_kernel_and_the_rules_agree() {
    linerate_testkit::root_or_skip!();
    let mut oracle = Oracle::new();
    let mut broken = Vec::new();
    let mut taken = 0;
    for kind in [Kind::Receive, Kind::Transmit, Kind::TransmitV3] {
        for request in grid(kind) {
            let ours = request.check();
            assert_eq!(ours.is_ok(), oracle.takes(request), "{request:?}: {ours:?}");
            match ours {
                Ok(()) => taken += 1,
                Err(rule) => broken.push(std::mem::discriminant(&rule)),
            }
        }
    }
    broken.sort_by_key(|rule| format!("{rule:?}"));
    broken.dedup();
    // Every rule but the one about no blocks, at which the kernel takes a ring away.
    assert_eq!(broken.len(), 9);
    assert!(taken > 20, "{taken}");
}

fn grid(kind: Kind) -> Vec<RingConfig> {
    let valid = RingConfig { kind, ..VALID };
    let mut requests = Vec::new();
    let block_sizes = [0, 1, 100, 4095, 4096, 4097, 8192, 12288, 65536, 1 << 31, u32::MAX - 4095];
    let frame_sizes = [
        0, 16, 48, 52, 64, 67, 68, 72, 80, 96, 100, 112, 128, 2047, 2048, 4096, 8192, 16384, 65552,
    ];
    for block_size in block_sizes {
        for frame_size in frame_sizes {
            let request = RingConfig { block_size, frame_size, ..valid }.with_max_frame_nr();
            requests.push(request);
            requests.push(RingConfig { frames: request.frames.wrapping_add(1), ..request });
        }
    }
    for reserve in [0, 4, 12, 28, 60, 1980, 1984, 4000, 4012, 4028, 4096, 1 << 20, i32::MAX as u32]
    {
        for frame_size in [80, 96, 128, 2048, 4096] {
            let small = RingConfig { block_size: 4096, frame_size, reserve, ..valid };
            requests.push(small.with_max_frame_nr());
        }
    }
    for private_size in [0, 1, 8, 3976, 3977, 3980, 3984, 4000, 4048, 4096, 1 << 31, u32::MAX] {
        let request = RingConfig { block_size: 4096, frame_size: 80, private_size, ..valid };
        requests.push(request.with_max_frame_nr());
    }
    for (retire_ms, features) in [(0, 0), (1, 0), (0, 1), (10, 1)] {
        requests.push(RingConfig { retire_ms, features, ..valid });
    }
    // Frames that do not fit 32 bits; those that do are refused for their number.
    for blocks in [1, u32::MAX / 102, u32::MAX / 51, u32::MAX / 51 + 1, u32::MAX] {
        requests.push(RingConfig { block_size: 4096, frame_size: 80, blocks, frames: 7, ..valid });
    }
    requests
}

#[test]
fn the_kernel_has_no_ring_without_blocks() {
    linerate_testkit::root_or_skip!();
    let request = RingConfig { blocks: 0, frames: 0, ..VALID };
    assert_eq!(request.check(), Err(BrokenRule::NoBlocks));
    let error = Socket::open().unwrap().map(request, "any").unwrap_err().to_string();
    assert!(error.contains("map the ring"), "{error}");
    assert!(!Oracle::new().takes(RingConfig { frames: 1, ..request }));
}

#[test]
fn a_broken_rule_is_named_with_the_numbers() {
    let broken = [
        (RingConfig { block_size: 0, ..VALID }, "1 to 2147483647 bytes (tp_block_size), not 0"),
        (RingConfig { block_size: 5000, ..VALID }, "whole pages of 4096 bytes (tp_block_size)"),
        (RingConfig { private_size: 8100, ..VALID }, "at least 8220 bytes"),
        (RingConfig { frame_size: 64, ..VALID }, "at least 68 bytes (tp_frame_size)"),
        (RingConfig { frame_size: 2040, ..VALID }, "multiple of 16"),
        (RingConfig { frame_size: 16384, ..VALID }, "does not fit a block of 8192"),
        (RingConfig { blocks: 1 << 31, ..VALID }, "more than 4294967295"),
        (RingConfig { frames: 9, ..VALID }, "has 8 frames (tp_frame_nr"),
        (RingConfig { blocks: 0, ..VALID }, "at least one block"),
        (RingConfig { kind: Kind::TransmitV3, retire_ms: 1, ..VALID }, "no retire timeout"),
    ];
    if crate::region::base_page_size() != 4096 {
        return linerate_testkit::print_skipped("a_broken_rule_is_named", "pages are not 4 KiB");
    }
    for (request, words) in broken {
        let error = crate::Error::from(request.check().unwrap_err()).to_string();
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(VALID.check(), Ok(()));
}

#[test]
fn the_probe_agrees_with_what_can_be_done() {
    match super::probe() {
        Ok(()) => drop(Socket::open().unwrap()),
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("CAP_NET_RAW") || error.contains("packet sockets"), "{error}");
            assert!(Socket::open().is_err());
        }
    }
}
