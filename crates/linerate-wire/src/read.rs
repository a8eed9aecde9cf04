//! Big-endian fields. Total functions: bytes that are not there read as zero and are not written, so
//! that no accessor can panic.

use core::ops::Range;

pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

pub(crate) fn u8(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

pub(crate) fn u16(bytes: &[u8], field: Range<usize>) -> u16 {
    u16::from_be_bytes(array(bytes, field.start))
}

pub(crate) fn u32(bytes: &[u8], field: Range<usize>) -> u32 {
    u32::from_be_bytes(array(bytes, field.start))
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// `bytes[from..to]` with both ends clamped to what is there.
pub(crate) fn clamp(bytes: &[u8], from: usize, to: usize) -> &[u8] {
    let to = to.min(bytes.len());
    bytes.get(from..to).unwrap_or(&[])
}
