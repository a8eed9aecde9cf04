//! [`ClassicProgram::with_inline_vlan_tags`]: adapts a packet socket's program to frames as they are on the wire.
//!
//! The kernel takes the outer VLAN tag out of a received frame before a packet socket's filter sees it, and
//! the filter asks for it as metadata (`SKF_AD_VLAN_TAG` and the like). XDP and user space have the frame
//! with its tag. So the program is emitted twice, after a test of the EtherType:
//!
//! ```text
//!   ldh [12]; 0x8100 or 0x88a8 ?  no  -> the program, "no tag" for the metadata
//!                                 yes -> the program, what lies behind the addresses four bytes later,
//!                                        the metadata read from the tag, the length less by four
//! ```

use super::classic::{Ancillary, ClassicInstruction, ClassicProgram, Operation};

/// Where the tag begins: after the two addresses.
pub(super) const TAG: u32 = 12;
/// Bytes of a tag.
pub(super) const TAG_LENGTH: u32 = 4;
/// The EtherTypes of the tags that the kernel takes out of a received frame.
const TAG_PROTOCOLS: [u16; 2] = [0x8100, 0x88a8];

/// Whether the kernel would take a VLAN tag out of this frame when it receives it.
#[inline]
pub fn has_outer_tag(frame: &[u8]) -> bool {
    let at = TAG as usize;
    frame.len() >= at + TAG_LENGTH as usize
        && TAG_PROTOCOLS.contains(&u16::from_be_bytes([frame[at], frame[at + 1]]))
}

const LD_IMMEDIATE: u16 = 0x00;
const LD_HALF_ABSOLUTE: u16 = 0x28;
const SUBTRACT: u16 = 0x14;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;

impl ClassicProgram {
    /// The program that gives for a frame with its outer VLAN tag in place the verdict that this one gives
    /// where the kernel keeps the tag beside the frame, and where the frame is of `packet_type`
    /// (`PACKET_HOST` and so on of `linux/if_packet.h`).
    ///
    /// `None` for a program that reads other metadata, that reads across the end of the addresses or by
    /// an index into them, that keeps the length in the index register, or that has a loop. The result
    /// may be longer than a socket's filter; eBPF has that room.
    pub fn with_inline_vlan_tags(&self, packet_type: u8) -> Option<Self> {
        let plain = self.laid_out(false, packet_type)?;
        let tagged = self.laid_out(true, packet_type)?;
        let mut program = vec![
            instruction(LD_HALF_ABSOLUTE, TAG),
            ClassicInstruction { code: JUMP_EQUAL, jt: 1, jf: 0, k: TAG_PROTOCOLS[0].into() },
            ClassicInstruction { code: JUMP_EQUAL, jt: 0, jf: 1, k: TAG_PROTOCOLS[1].into() },
            instruction(JUMP, plain.len() as u32),
        ];
        program.extend(plain);
        program.extend(tagged);
        let mut program = Self::decoded(program, self.sets().to_vec()).ok()?;
        program.as_kernel = true;
        Some(program)
    }

    /// The instructions for frames of one kind.
    fn laid_out(&self, tagged: bool, packet_type: u8) -> Option<Vec<ClassicInstruction>> {
        let shift = if tagged { TAG_LENGTH } else { 0 };
        // A program may count on an accumulator of 0 at the start.
        let mut program = vec![instruction(LD_IMMEDIATE, 0)];
        let mut starts = Vec::with_capacity(self.instructions().len());
        for (&old, &operation) in self.instructions().iter().zip(self.operations()) {
            starts.push(program.len());
            let moved = |k: u32| Some(ClassicInstruction { k: k.checked_add(shift)?, ..old });
            program.push(match operation {
                Operation::LoadAbsolute { offset, .. } if offset >= TAG => moved(offset)?,
                Operation::LoadAbsolute { offset, width } if offset + width.bytes() > TAG => {
                    return None;
                }
                Operation::LoadIndirect { offset, .. } if offset >= TAG => moved(offset)?,
                Operation::LoadIndirect { .. } | Operation::IndexLength => return None,
                Operation::IndexHeaderLength { offset } if offset >= TAG => moved(offset)?,
                Operation::LoadAncillary(what) => match (what, tagged) {
                    (Ancillary::PacketType, _) => instruction(LD_IMMEDIATE, packet_type.into()),
                    (Ancillary::VlanTagPresent, _) => instruction(LD_IMMEDIATE, tagged.into()),
                    (Ancillary::VlanTag | Ancillary::VlanProtocol, false) => {
                        instruction(LD_IMMEDIATE, 0)
                    }
                    (Ancillary::VlanTag, true) => instruction(LD_HALF_ABSOLUTE, TAG + 2),
                    (Ancillary::VlanProtocol, true) => instruction(LD_HALF_ABSOLUTE, TAG),
                    _ => return None,
                },
                _ => old,
            });
            if tagged && operation == Operation::LoadLength {
                program.push(instruction(SUBTRACT, TAG_LENGTH));
            }
        }
        for (&operation, &start) in self.operations().iter().zip(&starts) {
            let distance = |target: usize| starts[target] - start - 1;
            match operation {
                Operation::Jump(target) if starts[target] <= start => return None,
                Operation::Jump(target) => program[start].k = distance(target) as u32,
                Operation::Branch { yes, no, .. } | Operation::Member { yes, no, .. } => {
                    program[start].jt = u8::try_from(distance(yes)).ok()?;
                    program[start].jf = u8::try_from(distance(no)).ok()?;
                }
                Operation::Keep { next, .. } => {
                    program[start].jt = u8::try_from(distance(next)).ok()?;
                }
                _ => {}
            }
        }
        Some(program)
    }
}

fn instruction(code: u16, k: u32) -> ClassicInstruction {
    ClassicInstruction { code, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests;
