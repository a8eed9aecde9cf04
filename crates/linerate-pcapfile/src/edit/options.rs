//! The pcapng options of packets that are split or joined.

use std::ops::Range;

const END: u16 = 0;
const COMMENT: u16 = 1;
const HASH: u16 = 3;
const DROP_COUNT: u16 = 4;
/// Custom options that the format forbids to copy to a changed file.
const DO_NOT_COPY: [u16; 2] = [19372, 19373];

/// The one `epb_hash` algorithm that hashes the flow and not the bytes.
const TOEPLITZ: u8 = 5;

/// The options in `bytes`, up to the first that is cut off: code, value, and the range of all its bytes.
fn each(bytes: &[u8], big_endian: bool) -> impl Iterator<Item = (u16, &[u8], Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let code = word(bytes, at, big_endian)?;
        let len = usize::from(word(bytes, at + 2, big_endian)?);
        let (start, end) = (at, at + 4 + len.next_multiple_of(4));
        let value = bytes.get(at + 4..at + 4 + len)?;
        at = end;
        (code != END && end <= bytes.len()).then_some((code, value, start..end))
    })
}

fn word(bytes: &[u8], at: usize, big_endian: bool) -> Option<u16> {
    let pair = [*bytes.get(at)?, *bytes.get(at + 1)?];
    Some(if big_endian { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) })
}

/// Appends the options of one segment of a packet that had `options`. All segments get its direction,
/// queue and the like; only the first gets its comments and its drop count. None gets a hash of its
/// bytes.
pub fn append_segment_options(out: &mut Vec<u8>, options: &[u8], big_endian: bool, first: bool) {
    let start = out.len();
    for (code, value, range) in each(options, big_endian) {
        let keep = match code {
            COMMENT | DROP_COUNT => first,
            _ => is_of_flow(code, value),
        };
        if keep {
            out.extend_from_slice(&options[range]);
        }
    }
    close(out, start);
}

/// Appends the options of a packet that was joined from those with `options`: the options of the first,
/// the comments of all, and the sum of their drop counts.
pub fn append_joined_options<'o>(
    out: &mut Vec<u8>,
    options: impl Iterator<Item = &'o [u8]> + Clone,
    big_endian: bool,
) {
    let start = out.len();
    let mut lost = 0_u64;
    for (number, options) in options.enumerate() {
        for (code, value, range) in each(options, big_endian) {
            let keep = match code {
                COMMENT => true,
                DROP_COUNT => {
                    let number = value.try_into().unwrap_or_default();
                    let number = if big_endian {
                        u64::from_be_bytes(number)
                    } else {
                        u64::from_le_bytes(number)
                    };
                    lost = lost.saturating_add(number);
                    false
                }
                _ => number == 0 && is_of_flow(code, value),
            };
            if keep {
                out.extend_from_slice(&options[range]);
            }
        }
    }
    if lost > 0 {
        let pair = |value: u16| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        out.extend_from_slice(&pair(DROP_COUNT));
        out.extend_from_slice(&pair(8));
        out.extend(if big_endian { lost.to_be_bytes() } else { lost.to_le_bytes() });
    }
    close(out, start);
}

/// Whether an option holds for every packet of the flow.
fn is_of_flow(code: u16, value: &[u8]) -> bool {
    match code {
        HASH => value.first() == Some(&TOEPLITZ),
        _ => !DO_NOT_COPY.contains(&code),
    }
}

fn close(out: &mut Vec<u8>, start: usize) {
    if out.len() > start {
        out.extend_from_slice(&[0; 4]);
    }
}

/// The value of `epb_flags`, 0 where there is none.
pub fn flags(options: &[u8]) -> [u8; 4] {
    // In either byte order: only equality matters, within one section.
    let of = |big_endian| {
        let found =
            each(options, big_endian).find(|(code, value, _)| *code == 2 && value.len() == 4);
        found.and_then(|(_, value, _)| value.try_into().ok())
    };
    of(false).or_else(|| of(true)).unwrap_or_default()
}
