//! [`Registers`]: what is known of the bits that expressions of nftables load from packets of a session.

use super::evaluate::Scope;
use super::sessions::{Field, Match, Range};

/// What a bit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bit {
    Is(bool),
    /// A bit of a number that is the same for all packets of the session; 0 is the lowest.
    Of(Source, u8),
    /// The same for all packets, but unknown.
    Unknown,
    /// It may differ from packet to packet.
    Varies,
    /// The same: the bit of the network header with this number, unchanged.
    Packet(u8),
}

/// A number of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Field(Field),
    /// The name of the interface: 16 bytes.
    Name(Field),
    /// The packets that conntrack has counted: at least [`Options::after_packets`](super::Options).
    Packets,
}

const ZERO: Bit = Bit::Is(false);
/// Bits of a register of the smaller size, and of all.
const WORD: usize = 32;
const ALL: usize = 16 * WORD;

/// The registers, bit by bit as they are in memory, the highest of each byte first.
pub(super) struct Registers([Bit; ALL]);

impl Registers {
    pub(super) fn new() -> Self {
        Self([Bit::Unknown; ALL])
    }

    /// Where the register of this number begins (`NFT_REG_1`, `NFT_REG32_00`).
    fn start(register: u32) -> Option<usize> {
        match register {
            1..=4 => Some((register as usize - 1) * 4 * WORD),
            8..=23 => Some((register as usize - 8) * WORD),
            _ => None,
        }
    }

    /// So many bytes.
    pub(super) fn get(&self, register: u32, bytes: usize) -> Option<&[Bit]> {
        let start = Self::start(register)?;
        self.0.get(start..start + 8 * bytes)
    }

    /// Stores bits, and zeros up to the next register.
    pub(super) fn set(&mut self, register: u32, bits: &[Bit]) -> Option<()> {
        let start = Self::start(register)?;
        let all = self.0.get_mut(start..start + bits.len().next_multiple_of(WORD))?;
        all.fill(ZERO);
        all[..bits.len()].copy_from_slice(bits);
        Some(())
    }
}

/// The bits of bytes.
pub(super) fn known(bytes: &[u8]) -> Vec<Bit> {
    let bits =
        |byte: &u8| (0..8).rev().map(|bit| Bit::Is(byte >> bit & 1 != 0)).collect::<Vec<_>>();
    bytes.iter().flat_map(bits).collect()
}

/// The bits of a number of so many bytes in network order.
pub(super) fn number(source: Source, bytes: u8) -> Vec<Bit> {
    (0..8 * bytes).rev().map(|bit| Bit::Of(source, bit)).collect()
}

/// The bytes in the other order.
pub(super) fn swapped(bits: &[Bit]) -> Vec<Bit> {
    bits.chunks(8).rev().flatten().copied().collect()
}

/// Whether they may differ from packet to packet.
pub(super) fn vary(bits: &[Bit]) -> bool {
    bits.iter().any(|bit| matches!(bit, Bit::Varies | Bit::Packet(_) | Bit::Of(Source::Packets, _)))
}

/// `bits & mask ^ flip`.
pub(super) fn masked(bits: &[Bit], mask: &[u8], flip: &[u8]) -> Vec<Bit> {
    let masks = known(mask).into_iter().zip(known(flip));
    let one = |(bit, (mask, flip)): (&Bit, (Bit, Bit))| match (bit, mask, flip) {
        (_, Bit::Is(false), flip) => flip,
        (Bit::Is(value), _, Bit::Is(flip)) => Bit::Is(value ^ flip),
        (bit, _, Bit::Is(false)) => *bit,
        // What the rule before wrote may have been flipped, too.
        _ => Bit::Varies,
    };
    bits.iter().zip(masks).map(one).collect()
}

/// Bits of numbers in host order move, towards the higher ones or the lower ones.
pub(super) fn shifted(bits: &[Bit], by: usize, is_left: bool) -> Vec<Bit> {
    let moved = |bit: &Bit| match bit {
        Bit::Is(_) | Bit::Of(..) => *bit,
        _ => Bit::Varies,
    };
    if bits.len() > WORD || is_left && bits.len() < WORD {
        return vec![Bit::Varies; bits.len()];
    }
    let by = by.min(bits.len());
    let zeros = std::iter::repeat_n(ZERO, by);
    let number: Vec<_> = swapped(bits).iter().map(moved).collect();
    let number: Vec<_> = if is_left {
        number[by..].iter().copied().chain(zeros).collect()
    } else {
        zeros.chain(number[..number.len() - by].iter().copied()).collect()
    };
    swapped(&number)
}

/// Whether bits equal the bytes.
pub(super) fn equal(bits: &[Bit], bytes: &[u8], scope: &Scope<'_>) -> Match {
    let mut found = Match::always();
    // Mask and value of each number.
    let mut numbers: Vec<(Source, u128, u128)> = Vec::new();
    for (bit, wanted) in bits.iter().zip(known(bytes)) {
        let Bit::Is(wanted) = wanted else { continue };
        match *bit {
            Bit::Is(value) if value == wanted => {}
            Bit::Is(_) => return Match::NEVER,
            Bit::Unknown => found.is_exact = false,
            Bit::Varies | Bit::Packet(_) => found.varies = true,
            Bit::Of(source, bit) => {
                let at = numbers.iter().position(|one| one.0 == source).unwrap_or_else(|| {
                    numbers.push((source, 0, 0));
                    numbers.len() - 1
                });
                numbers[at].1 |= 1 << bit;
                numbers[at].2 |= u128::from(wanted) << bit;
            }
        }
    }
    found.is_exact &= !found.varies;
    numbers.into_iter().fold(found, |found, (source, mask, value)| {
        let free = !mask & maximum(source, scope);
        // The free bits have to be the lowest.
        let one = match free & free.wrapping_add(1) {
            0 => in_range(source, value..=value | free, scope),
            _ if source == Source::Packets => Match::varying(),
            _ => Match::unknown(),
        };
        found.and(&one)
    })
}

/// Whether bits, as one number in network order, are in a range of bytes.
pub(super) fn between(bits: &[Bit], from: &[u8], to: &[u8], scope: &Scope<'_>) -> Match {
    let number_of =
        |bytes: &[u8]| bytes.iter().fold(0, |number: u128, byte| number << 8 | u128::from(*byte));
    if bits.len() > 128 || from.len() * 8 != bits.len() || to.len() * 8 != bits.len() {
        return if vary(bits) { Match::varying() } else { Match::unknown() };
    }
    let range = number_of(from)..=number_of(to);
    let value = |bits: &[Bit]| {
        bits.iter().try_fold(0u128, |number, bit| match bit {
            Bit::Is(value) => Some(number << 1 | u128::from(*value)),
            _ => None,
        })
    };
    if let Some(value) = value(bits) {
        return Match::certain(range.contains(&value));
    }
    // Known bits, and then one number from its highest bit on.
    let first = bits.iter().position(|bit| !matches!(bit, Bit::Is(_))).unwrap_or(0);
    if let (Bit::Of(source, _), Some(high)) = (bits[first], value(&bits[..first])) {
        let own = &bits[first..];
        let is_whole =
            own.iter().rev().enumerate().all(|(at, bit)| *bit == Bit::Of(source, at as u8));
        if is_whole && maximum(source, scope) == ones(own.len()) {
            // Without the known bits.
            let high = high.checked_shl(own.len() as u32).unwrap_or(0);
            let low = range.start().saturating_sub(high);
            let Some(top) = range.end().checked_sub(high) else { return Match::NEVER };
            return in_range(source, low..=top, scope);
        }
    }
    if vary(bits) { Match::varying() } else { Match::unknown() }
}

fn ones(bits: usize) -> u128 {
    u128::MAX >> (128 - bits)
}

/// The largest value of a number.
fn maximum(source: Source, scope: &Scope<'_>) -> u128 {
    match source {
        Source::Name(_) => u128::MAX,
        Source::Packets => u64::MAX.into(),
        Source::Field(Field::SourcePort | Field::DestinationPort) => u16::MAX.into(),
        Source::Field(Field::Dscp) => 63,
        Source::Field(Field::Source | Field::Destination) if scope.kind.is_ipv6 => u128::MAX,
        Source::Field(_) => u32::MAX.into(),
    }
}

/// The sessions whose number is in a range.
fn in_range(source: Source, range: Range, scope: &Scope<'_>) -> Match {
    match source {
        _ if range.is_empty() => Match::NEVER,
        Source::Field(field) => Match::one_of(field, [range]),
        Source::Name(field) => interfaces(field, scope, |name| range.contains(&name_number(name))),
        Source::Packets => {
            let least = u128::from(scope.options.after_packets);
            match (
                *range.end() < least,
                *range.start() <= least && *range.end() >= maximum(source, scope),
            ) {
                (true, _) => Match::NEVER,
                (_, true) => Match::always(),
                _ => Match::varying(),
            }
        }
    }
}

/// A name as the number that its 16 bytes are.
fn name_number(name: &str) -> u128 {
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    u128::from_be_bytes(bytes)
}

/// The sessions that use interfaces with such names.
pub(super) fn interfaces(
    field: Field,
    scope: &Scope<'_>,
    is_meant: impl Fn(&str) -> bool,
) -> Match {
    let mut ranges: Vec<Range> = Vec::new();
    let mut is_next = false;
    for (index, name) in scope.interfaces {
        let index = u128::from(*index);
        let is_one = is_meant(name);
        match ranges.last_mut() {
            // There are none between them.
            Some(last) if is_one && is_next => *last = *last.start()..=index,
            _ if is_one => ranges.push(index..=index),
            _ => {}
        }
        is_next = is_one;
    }
    Match::one_of(field, ranges)
}

/// The bits of an interface's index in host order or of its name.
pub(super) fn interface(field: Field, is_name: bool, scope: &Scope<'_>) -> Vec<Bit> {
    let is_unknown = scope.interfaces.is_empty();
    match (field == Field::Output && !scope.has_output, is_name) {
        (true, true) => vec![ZERO; 128],
        (true, false) => vec![ZERO; WORD],
        (_, true) if is_unknown => vec![Bit::Unknown; 128],
        (_, false) if is_unknown => vec![Bit::Unknown; WORD],
        (_, true) => number(Source::Name(field), 16),
        (_, false) => swapped(&number(Source::Field(field), 4)),
    }
}

/// The bits of the network header and of what follows it.
pub(super) fn header(scope: &Scope<'_>) -> Vec<Bit> {
    let dscp = |bit| {
        if scope.knows_dscp { Bit::Of(Source::Field(Field::Dscp), bit) } else { Bit::Unknown }
    };
    let varies = |bytes: usize| vec![Bit::Varies; 8 * bytes];
    let mut bits;
    if scope.kind.is_ipv6 {
        bits = known(&[0x60])[..4].to_vec();
        bits.extend((0..6).rev().map(dscp));
        // ECN and flow label.
        bits.extend((10..16).map(Bit::Packet));
        bits.extend(varies(2 + 2));
        bits.extend(known(&[scope.kind.protocol()]));
        bits.extend(varies(1));
    } else {
        bits = known(&[0x45]);
        bits.extend((0..6).rev().map(dscp));
        bits.extend((14..16).map(Bit::Packet));
        bits.extend(varies(2 + 2));
        // No fragment: the reserved bit and DF are free.
        bits.extend([Bit::Varies; 2]);
        bits.extend([ZERO; 14]);
        bits.extend(varies(1));
        bits.extend(known(&[scope.kind.protocol()]));
        bits.extend(varies(2));
    }
    let bytes = if scope.kind.is_ipv6 { 16 } else { 4 };
    bits.extend(translated(Field::Source, bytes, scope));
    bits.extend(translated(Field::Destination, bytes, scope));
    bits.extend(transport(scope));
    bits
}

/// The bits of the transport header.
pub(super) fn transport(scope: &Scope<'_>) -> Vec<Bit> {
    let mut bits = translated(Field::SourcePort, 2, scope);
    bits.extend(translated(Field::DestinationPort, 2, scope));
    if scope.kind.is_tcp {
        bits.extend([Bit::Varies; 9 * 8]);
        // CWR, ECE, URG, ACK, PSH, RST, SYN, FIN.
        bits.extend([Bit::Varies; 3]);
        bits.extend([Bit::Is(true), Bit::Varies, ZERO, ZERO, ZERO]);
    }
    bits
}

/// The bits of an address or port, which NAT may change.
pub(super) fn translated(field: Field, bytes: u8, scope: &Scope<'_>) -> Vec<Bit> {
    let is_source = matches!(field, Field::Source | Field::SourcePort);
    if if is_source { scope.knows_source } else { scope.knows_destination } {
        number(Source::Field(field), bytes)
    } else {
        vec![Bit::Unknown; 8 * usize::from(bytes)]
    }
}
