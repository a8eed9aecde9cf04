//! The loop over many bytes, chosen by what the CPU has.

use core::fmt;

use super::{Sum, portable};

/// A way to sum bytes, or to copy and sum them in one pass.
///
/// All engines give the same sums for the same bytes. [`Engine::detect`] asks the CPU once in the life
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
}

impl Engine {
    /// The engine that every CPU has.
    pub const PORTABLE: Self = Self(Path::Portable);

    /// The fastest engine that this CPU has.
    #[inline]
    pub fn detect() -> Self {
        Self::PORTABLE
    }

    /// All engines that this CPU has, the fastest first.
    pub fn offered() -> impl Iterator<Item = Self> {
        [Self::PORTABLE].into_iter()
    }

    /// The sum of `bytes`; a last odd byte counts as the high half of a word.
    #[inline]
    #[must_use]
    pub fn sum(self, bytes: &[u8]) -> Sum {
        match self.0 {
            Path::Portable => Sum::native(portable::sum(bytes)),
        }
    }

    /// Copies `from` to `to`, and gives the sum of the bytes; a last odd byte counts as the high half
    /// of a word.
    ///
    /// # Panics
    ///
    /// If `from` and `to` differ in length, as [`slice::copy_from_slice`] does.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn copy(self, from: &[u8], to: &mut [u8]) -> Sum {
        assert_eq!(from.len(), to.len(), "copying between slices of different length");
        match self.0 {
            Path::Portable => Sum::native(portable::copy(from, to)),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Path::Portable => "portable",
        })
    }
}
