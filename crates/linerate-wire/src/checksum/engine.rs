//! The loop over many bytes, chosen by what the CPU has.

use core::fmt;

#[cfg(target_arch = "x86_64")]
use super::simd::Simd;
use super::{Sum, portable};

/// A way to sum bytes, or to copy and sum them in one pass.
///
/// All engines give the same sums for the same bytes, up to 16 GiB of them. [`Engine::detect`] asks the CPU once in the life
/// of the process; keep its result where many pieces follow each other, such as the segments of one
/// packet.
///
/// ```
/// use linerate_wire::checksum::{self, Engine};
///
/// let engine = Engine::detect();
/// let mut segment = [0; 1448];
/// let sum = engine.copy(&[0x5a; 1448], &mut segment);
/// assert_eq!(sum.checksum(), checksum::of(&segment));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Engine(Path);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Path {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Simd(Simd),
}

impl Engine {
    /// The engine that every CPU has.
    pub const PORTABLE: Self = Self(Path::Portable);

    /// The fastest engine that this CPU has.
    #[inline]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = Simd::detect() {
            return Self(Path::Simd(simd));
        }
        Self::PORTABLE
    }

    /// All engines that this CPU has, the fastest first.
    pub fn available() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let simd = Simd::available().map(|simd| Self(Path::Simd(simd)));
        #[cfg(not(target_arch = "x86_64"))]
        let simd = core::iter::empty();
        simd.chain([Self::PORTABLE])
    }

    /// The sum of `bytes`; a last odd byte counts as the high half of a word.
    #[inline]
    #[must_use]
    pub fn sum(self, bytes: &[u8]) -> Sum {
        Sum::native(match self.0 {
            Path::Portable => portable::sum(bytes),
            #[cfg(target_arch = "x86_64")]
            Path::Simd(simd) => simd.sum(bytes),
        })
    }

    /// Copies `from` to `to`, and gives the sum of the bytes; a last odd byte counts as the high half
    /// of a word.
    ///
    /// # Panics
    /// If `from` and `to` differ in length, as [`slice::copy_from_slice`] does.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn copy(self, from: &[u8], to: &mut [u8]) -> Sum {
        assert_eq!(from.len(), to.len(), "copying between slices of different length");
        Sum::native(match self.0 {
            Path::Portable => portable::copy(from, to),
            #[cfg(target_arch = "x86_64")]
            Path::Simd(simd) => simd.copy(from, to),
        })
    }

    /// As [`copy`](Self::copy), and meanwhile has the CPU fetch the start of `next`, where the next copy
    /// of as many bytes will go, into its first-level cache. That gains where pieces go to places that
    /// lie in a farther cache, as the frames of a transmit ring do, and costs a little where they do not.
    /// `next` is only a hint, of any length; the portable engine does not take it.
    ///
    /// # Panics
    /// If `from` and `to` differ in length, as [`slice::copy_from_slice`] does.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn copy_prefetching(self, from: &[u8], to: &mut [u8], next: &[u8]) -> Sum {
        assert_eq!(from.len(), to.len(), "copying between slices of different length");
        #[cfg(target_arch = "x86_64")]
        if let Path::Simd(simd) = self.0 {
            return Sum::native(simd.copy_prefetching(from, to, next));
        }
        let _ = next;
        Sum::native(portable::copy(from, to))
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Path::Portable => f.write_str("portable"),
            #[cfg(target_arch = "x86_64")]
            Path::Simd(simd) => simd.fmt(f),
        }
    }
}
