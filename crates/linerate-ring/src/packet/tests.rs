//! The kernel as oracle for the rules.

use super::rules::{Kind, RingConfig};
use super::socket::Socket;

const VALID: RingConfig = RingConfig {
    kind: Kind::Receive,
    block_size: 8192,
    blocks: 2,
    frame_size: 2048,
    frames: 8,
    retire_ms: 0,
    reserve: 0,
};

/// What a kernel says to a request: taken, or refused as invalid.
fn takes(request: RingConfig) -> bool {
    let socket = Socket::open().unwrap();
    let (version, option) = request.kind.options();
    socket.set(libc::SOL_PACKET, libc::PACKET_VERSION, &version).unwrap();
    socket.set(libc::SOL_PACKET, libc::PACKET_RESERVE, &request.reserve).unwrap();
    match socket.set(libc::SOL_PACKET, option, &request.to_kernel()) {
        Ok(()) => true,
        Err(error) => match error.raw_os_error() {
            Some(libc::EINVAL) => false,
            // The rules are kept, and the machine too small.
            Some(libc::ENOMEM) => true,
            _ => panic!("{request:?}: {error}"),
        },
    }
}

/// What options and MTUs can make of a request: blocks of any size that are one frame, or frames of one length.
fn grid() -> impl Iterator<Item = RingConfig> {
    let sizes = [0, 1, 100, 4095, 4096, 4097, 8192, 12288, 65536, 1 << 31, u32::MAX - 4095];
    let receive =
        sizes.map(|size| RingConfig { block_size: size, frame_size: size, reserve: 4, ..VALID });
    let transmit = [64, 128, 2048, 9040].map(|frame_size: u32| RingConfig {
        kind: Kind::Transmit,
        block_size: frame_size.max(128 << 10).next_multiple_of(4096),
        frame_size,
        ..VALID
    });
    // Too many blocks are refused for their frames, and take no memory.
    let too_many = transmit.map(|one| RingConfig { blocks: u32::MAX, ..one });
    receive.into_iter().chain(transmit).chain(too_many)
}

#[test]
fn the_kernel_and_the_rules_agree() {
    linerate_testkit::root_or_skip!();
    let (mut taken, mut refused) = (0, 0);
    for request in grid() {
        let ours = request.with_frames();
        let per_block = request.block_size.checked_div(request.frame_size).unwrap_or(0);
        let frames = per_block.wrapping_mul(request.blocks);
        let kernel = takes(RingConfig { frames, ..request });
        assert_eq!(ours.is_ok(), kernel, "{request:?}: {ours:?}");
        if kernel { taken += 1 } else { refused += 1 }
    }
    assert!(taken > 4 && refused > 4, "{taken} {refused}");
}

#[test]
fn the_kernel_has_no_ring_without_blocks() {
    linerate_testkit::root_or_skip!();
    let request = RingConfig { blocks: 0, frames: 0, ..VALID };
    let error = Socket::open().unwrap().map(request, "any").unwrap_err().to_string();
    assert!(error.contains("map the ring"), "{error}");
    assert!(!takes(RingConfig { frames: 1, ..request }));
}

#[test]
fn a_broken_rule_is_named_with_the_numbers() {
    for (request, words) in [
        (RingConfig { block_size: 0, ..VALID }, "1 to 2147483647 bytes (tp_block_size), not 0"),
        (RingConfig { block_size: 5000, ..VALID }, "bytes (tp_block_size), not 5000"),
        (RingConfig { blocks: u32::MAX, frame_size: 16, ..VALID }, "more than 4294967295"),
        (RingConfig { blocks: 0, ..VALID }, "at least one block"),
    ] {
        let error = request.with_frames().unwrap_err().to_string();
        assert!(error.starts_with("the kernel would refuse this ring: "), "{error}");
        assert!(error.contains(words), "{error}");
    }
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
