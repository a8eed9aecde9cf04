//! Sums in the vectors of x86-64, and the only `unsafe` of this crate.
//!
//! The arithmetic is that of [`super::portable`], on several words at once. Aligned stores (aligned
//! loads, where nothing is stored) cost half of those that straddle cache lines, so the first vector
//! ends where alignment begins. Where that is an odd number of bytes away, all that follows is summed
//! with its bytes swapped; swapping the first vector too and the total back makes up for it, because a
//! rotation by a byte is a multiplication by 256 modulo 2^64 - 1, of which 65535 is a divisor.

use core::{fmt, ptr};

use super::portable;

/// Bytes of a cache line.
const LINE: usize = 64;

// Both ask the operating system as well: registers that it does not save are no use.
cpufeatures::new!(avx2_found, "avx2");
cpufeatures::new!(avx512_found, "avx2", "avx512f", "avx512bw");

/// A set of vector instructions. Whoever holds one has it from [`Simd::detect`] or [`Simd::available`],
/// so the CPU can execute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Simd(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Level {
    Avx2,
    Avx512,
}

impl Simd {
    /// The best of this CPU. The first call asks the CPU; later ones load a byte or two.
    #[inline]
    pub(super) fn detect() -> Option<Self> {
        if avx512_found::get() {
            Some(Self(Level::Avx512))
        } else if avx2_found::get() {
            Some(Self(Level::Avx2))
        } else {
            None
        }
    }

    /// All of this CPU, the best first.
    pub(super) fn available() -> impl Iterator<Item = Self> {
        let avx512 = avx512_found::get().then_some(Self(Level::Avx512));
        let avx2 = avx2_found::get().then_some(Self(Level::Avx2));
        avx512.into_iter().chain(avx2)
    }

    /// What [`portable::sum`] gives.
    #[inline]
    pub(super) fn sum(self, bytes: &[u8]) -> u64 {
        let (from, len) = (bytes.as_ptr(), bytes.len());
        if len < avx2::LEN {
            portable::sum_short(bytes)
        } else if len < avx512::LEN || self.0 == Level::Avx2 {
            // SAFETY: the CPU has AVX2, which `Simd` stands for and which `Level::Avx512` includes;
            // `from` is valid for `len` bytes, which are at least a vector; nothing is stored.
            unsafe { avx2::pass::<false, false>(from, ptr::null_mut(), ptr::null(), len) }
        } else {
            // SAFETY: as above, with AVX-512.
            unsafe { avx512::pass::<false, false>(from, ptr::null_mut(), ptr::null(), len) }
        }
    }

    /// What [`portable::copy`] gives. The slices must be of one length.
    #[inline]
    pub(super) fn copy(self, from: &[u8], to: &mut [u8]) -> u64 {
        self.copy_and::<false>(from, to, ptr::null())
    }

    /// The same, while lines of `next` are fetched.
    #[inline]
    pub(super) fn copy_prefetching(self, from: &[u8], to: &mut [u8], next: &[u8]) -> u64 {
        // A place for less than is copied now is the last one, or of another kind.
        if next.len() < from.len() {
            return self.copy(from, to);
        }
        self.copy_and::<true>(from, to, next.as_ptr())
    }

    #[inline(always)]
    fn copy_and<const AHEAD: bool>(self, from: &[u8], to: &mut [u8], next: *const u8) -> u64 {
        let len = from.len();
        assert!(len == to.len());
        if len < avx2::LEN {
            portable::copy(from, to)
        } else if len < avx512::LEN || self.0 == Level::Avx2 {
            // SAFETY: the CPU has AVX2, which `Simd` stands for and which `Level::Avx512` includes;
            // both pointers are valid for `len` bytes, which are at least a vector, and a shared and
            // an exclusive borrow do not overlap.
            unsafe { avx2::pass::<true, AHEAD>(from.as_ptr(), to.as_mut_ptr(), next, len) }
        } else {
            // SAFETY: as above, with AVX-512.
            unsafe { avx512::pass::<true, AHEAD>(from.as_ptr(), to.as_mut_ptr(), next, len) }
        }
    }
}

impl fmt::Display for Simd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Level::Avx2 => "AVX2",
            Level::Avx512 => "AVX-512",
        })
    }
}

/// The pass over the bytes, for the `Vector` of `LEN` bytes and its operations that are in scope.
/// A macro and not a generic function: features of the CPU cannot be a parameter of one.
macro_rules! pass {
    ($features:literal) => {
        /// Sums `len` bytes at `from` and, with `COPY`, stores them at `to`. With `AHEAD`, fetches the
        /// lines of as many bytes at `next`: spread over the pass, as the CPU has few places for lines
        /// that are under way.
        ///
        /// # Safety
        /// `len` is at least `LEN`. `from` is valid for reads of `len` bytes and, with `COPY`, `to`
        /// for writes of as many that do not overlap them.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn pass<const COPY: bool, const AHEAD: bool>(
            from: *const u8,
            to: *mut u8,
            next: *const u8,
            len: usize,
        ) -> u64 {
            /// Vectors of one turn of the loop.
            const TURN: usize = 4;

            // SAFETY: the caller's; every `at` is at most `len - LEN`, and no alignment is asked for.
            let take = |at: usize| unsafe {
                let vector = load(from.add(at).cast());
                if COPY {
                    store(to.add(at).cast(), vector);
                }
                vector
            };
            let fetch = |at: usize| {
                if AHEAD {
                    // Not every compiler that this has to build with calls it unsafe.
                    #[allow(unused_unsafe)]
                    // SAFETY: fetching is no access, and any address will do.
                    unsafe {
                        _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(at).cast());
                    }
                }
            };
            let aligned = if COPY { to.addr() } else { from.addr() };
            let first = LEN - aligned % LEN;
            let odd = first % 2;

            let head = swap_if(odd, keep_first(first, take(0)));
            // Two pairs, so that no addition waits for the one before it.
            let mut whole = [head, zero()];
            let mut high = [shift_right::<32>(head), zero()];
            let mut at = first;
            while len - at >= TURN * LEN {
                for line in (0..TURN * LEN).step_by(super::LINE) {
                    fetch(at + line);
                }
                let vectors: [Vector; TURN] = core::array::from_fn(|i| take(at + i * LEN));
                for (i, vector) in vectors.into_iter().enumerate() {
                    whole[i % 2] = add(whole[i % 2], vector);
                    high[i % 2] = add(high[i % 2], shift_right::<32>(vector));
                }
                at += TURN * LEN;
            }
            while len - at >= LEN {
                fetch(at);
                let vector = take(at);
                whole[0] = add(whole[0], vector);
                high[0] = add(high[0], shift_right::<32>(vector));
                at += LEN;
            }
            let left = len - at;
            if left > 0 {
                // Goes back over bytes that have been met; they are stored again, as they are.
                let tail = swap_if(left % 2, keep_last(left, take(len - LEN)));
                whole[1] = add(whole[1], tail);
                high[1] = add(high[1], shift_right::<32>(tail));
            }
            let total = total(add(whole[0], whole[1]), add(high[0], high[1]));
            total.rotate_left(8 * odd as u32)
        }
    };
}

mod avx2 {
    use core::arch::x86_64::*;
    use core::arch::x86_64::{
        _mm256_add_epi64 as add, _mm256_loadu_si256 as load, _mm256_setzero_si256 as zero,
        _mm256_srli_epi64 as shift_right, _mm256_storeu_si256 as store,
    };

    pub(super) const LEN: usize = size_of::<Vector>();
    type Vector = __m256i;

    pass!("avx2");

    /// `vector` with each 64 bits rotated by a byte, if `odd` is 1 and not 0.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn swap_if(odd: usize, vector: Vector) -> Vector {
        // A shift by 64 gives 0.
        let left = _mm256_sll_epi64(vector, _mm_cvtsi64_si128(8 * odd as i64));
        let right = _mm256_srl_epi64(vector, _mm_cvtsi64_si128(64 - 8 * odd as i64));
        _mm256_or_si256(left, right)
    }

    /// Ones between zeroes: a vector of it, read at the right place, is any mask of a run at either end.
    static MASKS: [u8; 3 * LEN] = {
        let mut masks = [0; 3 * LEN];
        let mut i = LEN;
        while i < 2 * LEN {
            masks[i] = 0xff;
            i += 1;
        }
        masks
    };

    /// The first `count` bytes of `vector`, and 0 for the others.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn keep_first(count: usize, vector: Vector) -> Vector {
        mask(2 * LEN - count, vector)
    }

    /// The last `count` bytes of `vector`, and 0 for the others.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn keep_last(count: usize, vector: Vector) -> Vector {
        mask(count, vector)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn mask(at: usize, vector: Vector) -> Vector {
        debug_assert!(at <= 2 * LEN);
        // SAFETY: the remainder keeps the place within `MASKS`, so that a vector is left after it.
        let mask = unsafe { load(MASKS.as_ptr().add(at % (2 * LEN + 1)).cast()) };
        _mm256_and_si256(vector, mask)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn total(whole: Vector, high: Vector) -> u64 {
        let low = _mm256_sub_epi64(whole, _mm256_slli_epi64::<32>(high));
        let sums = _mm256_add_epi64(low, high);
        let sums = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        let [one, other] = [_mm_cvtsi128_si64(sums), _mm_extract_epi64::<1>(sums)];
        one.wrapping_add(other) as u64
    }
}

mod avx512 {
    use core::arch::x86_64::*;
    use core::arch::x86_64::{
        _mm512_add_epi64 as add, _mm512_loadu_si512 as load, _mm512_setzero_si512 as zero,
        _mm512_srli_epi64 as shift_right, _mm512_storeu_si512 as store,
    };

    pub(super) const LEN: usize = size_of::<Vector>();
    type Vector = __m512i;

    pass!("avx512f,avx512bw");

    /// `vector` with each 64 bits rotated by a byte, if `odd` is 1 and not 0.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn swap_if(odd: usize, vector: Vector) -> Vector {
        _mm512_rolv_epi64(vector, _mm512_set1_epi64(8 * odd as i64))
    }

    /// The first `count` bytes of `vector`, which must not be 0, and 0 for the others.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn keep_first(count: usize, vector: Vector) -> Vector {
        _mm512_maskz_mov_epi8(u64::MAX >> (LEN - count), vector)
    }

    /// The last `count` bytes of `vector`, which must not be 0, and 0 for the others.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn keep_last(count: usize, vector: Vector) -> Vector {
        _mm512_maskz_mov_epi8(u64::MAX << (LEN - count), vector)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn total(whole: Vector, high: Vector) -> u64 {
        let low = _mm512_sub_epi64(whole, _mm512_slli_epi64::<32>(high));
        _mm512_reduce_add_epi64(_mm512_add_epi64(low, high)) as u64
    }
}
