//! Every engine that this CPU has, against the sum as RFC 1071 defines it: word by word, with the carry
//! added back at once.

use std::panic::catch_unwind;

use linerate_wire::checksum::{self, Engine, Sum};
use proptest::prelude::*;

/// Around what is copied to, so that a byte too many shows.
const GUARD: usize = 128;
const UNTOUCHED: u8 = 0xa5;

fn reference(bytes: &[u8]) -> u16 {
    let mut sum = 0_u16;
    for pair in bytes.chunks(2) {
        let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        let (added, carry) = sum.overflowing_add(word);
        sum = added + u16::from(carry);
    }
    sum
}

/// Bytes without a pattern; the same every time.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(step).take(len).collect()
}

/// A buffer of which the place in a cache line can be chosen.
struct Placed {
    bytes: Vec<u8>,
    base: usize,
}

impl Placed {
    /// Room for `len` bytes at any of 64 places, with guards.
    fn new(len: usize) -> Self {
        let bytes = vec![UNTOUCHED; len + 2 * GUARD + 2 * 64];
        let base = GUARD + bytes[GUARD..].as_ptr().align_offset(64);
        Self { bytes, base }
    }

    fn at(&mut self, place: usize, len: usize) -> &mut [u8] {
        assert!(place < 64);
        &mut self.bytes[self.base + place..][..len]
    }

    /// Asserts that nothing but the `len` bytes at `place` was written, and forgets those.
    fn check_and_clear(&mut self, place: usize, len: usize) {
        let start = self.base + place;
        let around = (&self.bytes[start - GUARD..start], &self.bytes[start + len..][..GUARD]);
        assert!(around.0.iter().chain(around.1).all(|byte| *byte == UNTOUCHED), "guards");
        self.bytes[start..start + len].fill(UNTOUCHED);
    }
}

/// Asserts what `engine` must do with `from` and a destination at `place` of a cache line.
fn check(engine: Engine, from: &[u8], sum: u16, to: &mut Placed, place: usize) {
    let len = from.len();
    let case = || format!("{engine}: {len} bytes to place {place}");
    assert_eq!(engine.sum(from).folded(), sum, "sum, {}", case());
    let destination = to.at(place, len);
    assert_eq!(engine.copy(from, destination).folded(), sum, "sum of the copy, {}", case());
    assert!(destination == from, "bytes of the copy, {}", case());
    to.check_and_clear(place, len);
    // A hint: places that are long enough, too short, and none.
    for next in [from, &from[..len / 2], &[]] {
        let destination = to.at(place, len);
        let copied = engine.copy_prefetching(from, destination, next);
        assert_eq!(copied.folded(), sum, "sum of the copy before another, {}", case());
        assert!(destination == from, "bytes of the copy before another, {}", case());
        to.check_and_clear(place, len);
    }
}

#[test]
fn every_length() {
    let bytes = noise(4096 + 64);
    let mut source = Placed::new(bytes.len());
    source.at(0, bytes.len()).copy_from_slice(&bytes);
    let mut to = Placed::new(4096);
    for len in (0..=700).chain((701..4096).step_by(13)).chain([1448, 1460, 4095, 4096]) {
        for (from_place, to_place) in [(0, 0), (1, 0), (0, 1), (2, 54), (33, 7), (63, 63)] {
            let from = &*source.at(from_place, len);
            let sum = reference(from);
            for engine in Engine::available() {
                check(engine, from, sum, &mut to, to_place);
            }
        }
    }
}

#[test]
fn every_alignment() {
    const LENS: [usize; 16] = [1, 2, 20, 31, 32, 33, 63, 64, 65, 95, 128, 191, 256, 319, 577, 1448];
    let bytes = noise(2048);
    let mut source = Placed::new(bytes.len());
    source.at(0, bytes.len()).copy_from_slice(&bytes);
    let mut to = Placed::new(2048);
    for len in LENS {
        for from_place in 0..64 {
            let from = &*source.at(from_place, len);
            let sum = reference(from);
            for to_place in 0..64 {
                for engine in Engine::available() {
                    check(engine, from, sum, &mut to, to_place);
                }
            }
        }
    }
}

#[test]
fn zeroes_and_ones() {
    // All ones carry at every addition; only zeroes may sum to zero.
    let mut to = Placed::new(9000);
    for len in (0..=300).chain([1448, 1449, 8960, 9000]) {
        for engine in Engine::available() {
            for place in [0, 1, 31] {
                check(engine, &vec![0; len], 0, &mut to, place);
                let ones = vec![0xff; len];
                check(engine, &ones, reference(&ones), &mut to, place);
            }
        }
    }
}

#[test]
fn one_bit_anywhere_is_seen() {
    let mut to = Placed::new(400);
    for len in [33, 64, 100, 259, 400] {
        for bit in 0..8 * len {
            let mut bytes = vec![0; len];
            bytes[bit / 8] = 1 << (bit % 8);
            let sum = reference(&bytes);
            for engine in Engine::available() {
                check(engine, &bytes, sum, &mut to, bit % 64);
            }
        }
    }
}

#[test]
fn megabytes() {
    for bytes in [noise((4 << 20) + 3), vec![0xff; (4 << 20) + 3]] {
        let sum = reference(&bytes);
        let mut to = Placed::new(bytes.len());
        for engine in Engine::available() {
            check(engine, &bytes, sum, &mut to, 5);
        }
    }
}

#[test]
fn slices_of_different_length_are_refused() {
    for engine in Engine::available() {
        for (from, to) in [(0, 1), (10, 9), (64, 65), (1448, 1447), (100, 0)] {
            let copy = || engine.copy(&vec![1; from], &mut vec![0; to]);
            assert!(catch_unwind(copy).is_err(), "{engine}: {from} bytes into {to}");
            let copy = || engine.copy_prefetching(&vec![1; from], &mut vec![0; to], &[0; 2000]);
            assert!(catch_unwind(copy).is_err(), "{engine}: {from} bytes into {to}");
        }
    }
}

#[test]
fn what_the_cpu_has_is_offered() {
    let offered: Vec<String> = Engine::available().map(|engine| engine.to_string()).collect();
    let mut expected = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2");
        if avx2 && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            expected.push("AVX-512");
        }
        if avx2 {
            expected.push("AVX2");
        }
    }
    expected.push("portable");
    assert_eq!(offered, expected);
    assert_eq!(Some(Engine::detect()), Engine::available().next());
    assert_eq!(Some(Engine::PORTABLE), Engine::available().last());
}

#[test]
fn constants_are_summed_at_compile_time() {
    const SUM: Sum = Sum::ZERO.word(0x1234).word32(0x5678_9abc).plus(Sum::ZERO.word32(0xffff_0001));
    const FOLDED: u16 = SUM.folded();
    assert_eq!(FOLDED, reference(&[0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xff, 0xff, 0x00, 0x01]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_anywhere(
        bytes in proptest::collection::vec(any::<u8>(), 0..3000),
        skip in 0_usize..64,
        place in 0_usize..64,
    ) {
        let from = &bytes[skip.min(bytes.len())..];
        let sum = reference(from);
        let mut to = Placed::new(from.len());
        for engine in Engine::available() {
            check(engine, from, sum, &mut to, place);
        }
    }

    #[test]
    fn pieces_add_up(
        bytes in proptest::collection::vec(any::<u8>(), 0..3000),
        cut in 0_usize..1500,
    ) {
        let (head, tail) = bytes.split_at((2 * cut).min(bytes.len() & !1));
        let whole = checksum::of(&bytes);
        prop_assert_eq!(Sum::ZERO.bytes(head).bytes(tail).checksum(), whole);
        for engine in Engine::available() {
            prop_assert_eq!(engine.sum(head).plus(engine.sum(tail)).checksum(), whole);
        }
    }
}
