//! Programs that look addresses up.
//!
//! No classic program can look anything up, and libpcap has no words for it. So an expression is compiled with addresses
//! that stand for the members of a set ([`placeholders`]): libpcap finds the address in a packet, behind whatever
//! headers, and [`ClassicProgram::with_sets`] replaces its comparison.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::classic::{ClassicInstruction, ClassicProgram, InvalidProgram, KEEP, MEMBER};
use super::sets::{AddressSet, WORDS};
use crate::Result;

/// The addresses that stand for the members of set number `set`. The two variants differ in every word, so that
/// [`ClassicProgram::with_sets`] recognizes what became of them.
pub fn placeholders(set: usize, variant: usize) -> (Ipv4Addr, Ipv6Addr) {
    let words: Vec<u32> = (1..=WORDS).map(|word| marker(set, variant, word)).collect();
    let v6 = words.iter().fold(0, |all, &word| all << 32 | u128::from(word));
    (marker(set, variant, 0).into(), v6.into())
}

/// The IPv4 address (0), or a word of the IPv6 address. Products with an odd number are distinct.
fn marker(set: usize, variant: usize, word: usize) -> u32 {
    const FACTORS: [u32; 2] = [0x9e37_79b1, 0x85eb_ca77];
    ((set * (WORDS + 1) + word + 1) as u32).wrapping_mul(FACTORS[variant])
}

impl ClassicProgram {
    /// A program that looks addresses up in `sets`, from both variants of an expression with their [`placeholders`].
    /// libpcap has compiled them without its optimizer, which may conclude that an address is not in a second set.
    ///
    /// # Errors
    /// As [`ClassicProgram::for_user_space`]; [`InvalidProgram::Placeholder`] where the variants do not correspond.
    pub fn with_sets(
        variants: [&[ClassicInstruction]; 2],
        sets: Vec<Arc<AddressSet>>,
    ) -> std::result::Result<Self, InvalidProgram> {
        let [first, second] = variants;
        let shorter = first.len().min(second.len());
        if first.len() != second.len() {
            return Err(InvalidProgram::Placeholder { at: shorter });
        }
        let markers = (0..sets.len()).flat_map(|set| (0..=WORDS).map(move |word| (set, word)));
        let markers: Vec<_> = markers
            .map(|(set, word)| ([0, 1].map(|variant| marker(set, variant, word)), set, word))
            .collect();
        let pairs = first.iter().zip(second).enumerate();
        let instructions = pairs.map(|(at, (&one, &other))| {
            if one == other {
                return Ok(one);
            }
            let found = markers.iter().find(|(values, ..)| *values == [one.k, other.k]);
            let is_comparison =
                one.is_equality() && one == (ClassicInstruction { k: one.k, ..other });
            let &(_, set, word) =
                found.filter(|_| is_comparison).ok_or(InvalidProgram::Placeholder { at })?;
            Ok(match word {
                0 => ClassicInstruction { code: MEMBER, k: (set * 2) as u32, ..one },
                WORDS => ClassicInstruction { code: MEMBER, k: (set * 2 + 1) as u32, ..one },
                _ => ClassicInstruction { code: KEEP, k: word as u32 - 1, ..one },
            })
        });
        Self::decoded(instructions.collect::<std::result::Result<Vec<_>, _>>()?, sets)
    }

    /// Whether it looks addresses up.
    pub fn looks_up(&self) -> bool {
        !self.sets().is_empty()
    }

    /// Puts the sets of the program into maps of the kernel, for the translation to eBPF.
    ///
    /// # Errors
    /// [`Error::Privilege`](crate::Error::Privilege), [`Error::System`](crate::Error::System).
    pub fn load_sets(&self) -> Result<()> {
        self.sets().iter().try_for_each(|set| set.load())
    }
}
