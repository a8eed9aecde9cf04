//! [`ClassicProgram::accepts`] and [`ClassicProgram::accepts_from_socket`]: a classic program run in user space.

use super::classic::{
    Ancillary, Arithmetic, ClassicProgram, Condition, Operand, Operation, SCRATCH_WORDS, Width,
};
use super::sets::{Version, WORDS};
use super::tags::{TAG, TAG_LENGTH};

/// A frame, with what a socket filter needs to see it as the kernel would: without its outer VLAN tag, which is metadata.
#[derive(Clone, Copy, Debug)]
pub struct SocketFrame<'a> {
    /// The bytes, with the tag in its place.
    pub bytes: &'a [u8],
    /// Length on the wire in bytes, the tag included.
    pub wire_len: u32,
    /// Whether there is a tag behind the addresses that the kernel keeps beside the frame.
    pub tagged: bool,
    /// `PACKET_HOST` and so on of `linux/if_packet.h`.
    pub packet_type: u8,
}

impl ClassicProgram {
    /// Runs the program over `frame`, whose length on the wire was `wire_len` bytes.
    ///
    /// Returns how many bytes it accepts, 0 for a frame to reject. The meaning is that of libpcap's
    /// matcher, `len` being `wire_len`: a frame that was cut at capture is judged by its real
    /// length. A program that reads packet metadata rejects at that point.
    pub fn accepts(&self, frame: &[u8], wire_len: u32) -> u32 {
        self.run(&InFrame { bytes: frame, wire_len }).unwrap_or(0)
    }

    /// The same for a program that libpcap compiled for a live interface: the verdict that the kernel gives
    /// on a packet socket. Metadata that `frame` does not have rejects.
    pub fn accepts_from_socket(&self, frame: &SocketFrame<'_>) -> u32 {
        self.run(frame).unwrap_or(0)
    }

    /// `None` where the program ends early: a load outside of the frame, a division by 0.
    fn run<P: Packet>(&self, frame: &P) -> Option<u32> {
        let (mut a, mut x) = (0_u32, 0_u32);
        let mut scratch = [0_u32; SCRATCH_WORDS as usize];
        let mut address = [0_u32; WORDS];
        let operations = self.operations();
        let mut at = 0;
        loop {
            let operation = operations[at];
            at += 1;
            match operation {
                Operation::LoadAbsolute { width, offset } => a = frame.load(offset, width)?,
                Operation::LoadIndirect { width, offset } => {
                    a = frame.load(x.checked_add(offset)?, width)?;
                }
                Operation::LoadAncillary(what) => a = frame.ancillary(what)?,
                Operation::LoadLength => a = frame.len(),
                Operation::LoadConstant(k) => a = k,
                Operation::LoadScratch(word) => a = scratch[word as usize],
                Operation::IndexHeaderLength { offset } => {
                    x = (frame.load(offset, Width::Byte)? & 0x0f) << 2;
                }
                Operation::IndexLength => x = frame.len(),
                Operation::IndexConstant(k) => x = k,
                Operation::IndexScratch(word) => x = scratch[word as usize],
                Operation::Store(word) => scratch[word as usize] = a,
                Operation::StoreIndex(word) => scratch[word as usize] = x,
                Operation::Compute(arithmetic, operand) => {
                    let mut operand = value(operand, x);
                    if P::MASKS_SHIFTS
                        && matches!(arithmetic, Arithmetic::ShiftLeft | Arithmetic::ShiftRight)
                    {
                        operand &= 31;
                    }
                    a = compute(arithmetic, a, operand)?;
                }
                Operation::Negate => a = a.wrapping_neg(),
                Operation::IndexFromAccumulator => x = a,
                Operation::AccumulatorFromIndex => a = x,
                Operation::Jump(target) => at = target,
                Operation::Branch { condition, operand, yes, no } => {
                    at = if holds(condition, a, value(operand, x)) { yes } else { no };
                }
                Operation::Keep { word, next } => {
                    address[word] = a;
                    at = next;
                }
                Operation::Member { set, version, yes, no } => {
                    let set = &self.sets()[set];
                    let is_member = match version {
                        Version::V4 => set.contains_v4(a),
                        Version::V6 => {
                            address[WORDS - 1] = a;
                            set.contains_v6(address)
                        }
                    };
                    at = if is_member { yes } else { no };
                }
                Operation::Return(bytes) => return Some(bytes),
                Operation::ReturnAccumulator => return Some(a),
            }
        }
    }
}

/// What a program reads.
trait Packet {
    /// Shifting by an index of 32 or more: the kernel takes its low five bits, libpcap gives 0.
    const MASKS_SHIFTS: bool;

    fn load(&self, offset: u32, width: Width) -> Option<u32>;
    fn ancillary(&self, what: Ancillary) -> Option<u32>;
    fn len(&self) -> u32;
}

/// A frame with its tags in place, and without metadata.
struct InFrame<'a> {
    bytes: &'a [u8],
    wire_len: u32,
}

impl Packet for InFrame<'_> {
    const MASKS_SHIFTS: bool = false;

    #[inline]
    fn load(&self, offset: u32, width: Width) -> Option<u32> {
        load(self.bytes, offset, width)
    }

    fn ancillary(&self, _: Ancillary) -> Option<u32> {
        None
    }

    fn len(&self) -> u32 {
        self.wire_len
    }
}

impl Packet for SocketFrame<'_> {
    const MASKS_SHIFTS: bool = true;

    #[inline]
    fn load(&self, offset: u32, width: Width) -> Option<u32> {
        if !self.tagged || offset.checked_add(width.bytes())? <= TAG {
            return load(self.bytes, offset, width);
        }
        if offset >= TAG {
            return load(self.bytes, offset.checked_add(TAG_LENGTH)?, width);
        }
        // The load begins in front of the tag and ends behind it.
        let mut value = 0;
        for at in offset..offset + width.bytes() {
            let at = if at < TAG { at } else { at + TAG_LENGTH };
            value = value << 8 | load(self.bytes, at, Width::Byte)?;
        }
        Some(value)
    }

    fn ancillary(&self, what: Ancillary) -> Option<u32> {
        let of_tag = |offset| match self.tagged {
            true => load(self.bytes, offset, Width::Half),
            false => Some(0),
        };
        match what {
            Ancillary::PacketType => Some(self.packet_type.into()),
            Ancillary::VlanTagPresent => Some(self.tagged.into()),
            Ancillary::VlanProtocol => of_tag(TAG),
            Ancillary::VlanTag => of_tag(TAG + 2),
            _ => None,
        }
    }

    fn len(&self) -> u32 {
        self.wire_len.saturating_sub(if self.tagged { TAG_LENGTH } else { 0 })
    }
}

fn value(operand: Operand, x: u32) -> u32 {
    match operand {
        Operand::Constant(k) => k,
        Operand::Index => x,
    }
}

fn load(frame: &[u8], offset: u32, width: Width) -> Option<u32> {
    let rest = frame.get(offset as usize..)?;
    Some(match width {
        Width::Byte => u32::from(*rest.first()?),
        Width::Half => u32::from(u16::from_be_bytes(*rest.first_chunk()?)),
        Width::Word => u32::from_be_bytes(*rest.first_chunk()?),
    })
}

fn compute(arithmetic: Arithmetic, a: u32, operand: u32) -> Option<u32> {
    Some(match arithmetic {
        Arithmetic::Add => a.wrapping_add(operand),
        Arithmetic::Subtract => a.wrapping_sub(operand),
        Arithmetic::Multiply => a.wrapping_mul(operand),
        Arithmetic::Divide => a.checked_div(operand)?,
        Arithmetic::Modulo => a.checked_rem(operand)?,
        Arithmetic::Or => a | operand,
        Arithmetic::And => a & operand,
        Arithmetic::Xor => a ^ operand,
        Arithmetic::ShiftLeft => a.checked_shl(operand).unwrap_or(0),
        Arithmetic::ShiftRight => a.checked_shr(operand).unwrap_or(0),
    })
}

fn holds(condition: Condition, a: u32, operand: u32) -> bool {
    match condition {
        Condition::Equal => a == operand,
        Condition::Greater => a > operand,
        Condition::GreaterOrEqual => a >= operand,
        Condition::AnyBit => a & operand != 0,
    }
}
