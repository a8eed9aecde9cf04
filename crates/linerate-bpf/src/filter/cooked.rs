//! [`ClassicProgram::on_cooked_socket`]: adapts a program for Linux cooked frames to the socket that makes them.
//!
//! A packet socket of type `SOCK_DGRAM` has no link-layer header: frames start at the network layer, and so does
//! what its filter sees. The header of LINKTYPE_LINUX_SLL or LINKTYPE_LINUX_SLL2 is made from the socket address of each frame, after
//! the filter. libpcap compiles for frames with that header, so what a program reads from it is read from the
//! kernel's metadata instead.

use super::classic::{
    ANCILLARY_OFFSET, Ancillary, ClassicInstruction, ClassicProgram, Operation, Width,
};

/// The header of a Linux cooked frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CookedHeader {
    /// That of LINKTYPE_LINUX_SLL.
    V1,
    /// That of LINKTYPE_LINUX_SLL2, which also has the interface.
    V2,
}

impl CookedHeader {
    /// Its length in bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::V1 => 16,
            Self::V2 => 20,
        }
    }

    /// What is in the header and in the metadata: offset, width, name. The kernel has the metadata in host order, as
    /// a load of a classic program gives the bytes of a header.
    const fn fields(self) -> &'static [(u32, Width, Ancillary)] {
        match self {
            Self::V1 => &[
                (0, Width::Half, Ancillary::PacketType),
                (2, Width::Half, Ancillary::HardwareType),
                (14, Width::Half, Ancillary::Protocol),
            ],
            Self::V2 => &[
                (0, Width::Half, Ancillary::Protocol),
                (4, Width::Word, Ancillary::InterfaceIndex),
                (8, Width::Half, Ancillary::HardwareType),
                (10, Width::Byte, Ancillary::PacketType),
            ],
        }
    }
}

const LD_WORD_ABSOLUTE: u16 = 0x20;

impl ClassicProgram {
    /// The program that gives, on the packet socket, the verdict that this one gives on the frame with its header.
    /// As with libpcap, the length of a frame is that without the header.
    ///
    /// `None` for a program that reads the addresses in the header, or reads by an index into it.
    pub fn on_cooked_socket(&self, header: CookedHeader) -> Option<Self> {
        let (length, fields) = (header.bytes(), header.fields());
        let adapted =
            self.instructions().iter().zip(self.operations()).map(|(&old, &operation)| {
                let behind = |offset: u32| {
                    let k = offset.checked_sub(length)?;
                    Some(ClassicInstruction { k, ..old })
                };
                match operation {
                    Operation::LoadAbsolute { offset, width } if offset < length => {
                        let field =
                            fields.iter().find(|field| (field.0, field.1) == (offset, width))?;
                        let k = ANCILLARY_OFFSET + 4 * field.2 as u32;
                        Some(ClassicInstruction { code: LD_WORD_ABSOLUTE, jt: 0, jf: 0, k })
                    }
                    Operation::LoadAbsolute { offset, .. }
                    | Operation::LoadIndirect { offset, .. }
                    | Operation::IndexHeaderLength { offset } => behind(offset),
                    _ => Some(old),
                }
            });
        Self::decoded(adapted.collect::<Option<Vec<_>>>()?, self.sets().to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapted(header: CookedHeader, instructions: &[(u16, u32)]) -> Option<Vec<(u16, u32)>> {
        let instructions =
            instructions.iter().map(|&(code, k)| ClassicInstruction { code, jt: 0, jf: 0, k });
        let accept = ClassicInstruction { code: 6, jt: 0, jf: 0, k: 1 };
        let program =
            ClassicProgram::new(instructions.chain([accept]).collect::<Vec<_>>()).unwrap();
        let program = program.on_cooked_socket(header)?;
        Some(program.instructions().iter().map(|one| (one.code, one.k)).collect())
    }

    #[test]
    fn fields_of_the_header_become_metadata_and_the_rest_moves() {
        let metadata = |offset: i32| (0x20, (-0x1000 + offset) as u32);
        let program = [(0x28, 0), (0x20, 4), (0x28, 8), (0x30, 10), (0x30, 29), (0xb1, 20)];
        // SKF_AD_PROTOCOL, SKF_AD_IFINDEX, SKF_AD_HATYPE, SKF_AD_PKTTYPE of linux/filter.h.
        let expected =
            [metadata(0), metadata(8), metadata(28), metadata(4), (0x30, 9), (0xb1, 0), (6, 1)];
        assert_eq!(adapted(CookedHeader::V2, &program).unwrap(), expected);
        let program = [(0x28, 0), (0x28, 2), (0x28, 14), (0x30, 25), (0xb1, 16)];
        let expected = [metadata(4), metadata(28), metadata(0), (0x30, 9), (0xb1, 0), (6, 1)];
        assert_eq!(adapted(CookedHeader::V1, &program).unwrap(), expected);
        // An address, half of the index, an index into the header.
        for other in [(0x30, 12), (0x28, 4), (0x50, 10)] {
            assert_eq!(adapted(CookedHeader::V2, &[other]), None, "{other:?}");
        }
    }
}
