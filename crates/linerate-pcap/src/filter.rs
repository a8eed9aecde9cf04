//! [`ProgramFilter`]: the program's filter, run in user space on frames that the kernel has not filtered.

use linerate_bpf::filter::{ClassicProgram, InvalidProgram, SocketFrame, has_outer_tag};
use linerate_ring::{Direction, Frame};

use crate::abi::Program;

/// `PACKET_HOST` and `PACKET_OUTGOING` of `linux/if_packet.h`.
const PACKET_HOST: u8 = 0;
const PACKET_OUTGOING: u8 = 4;

/// A filter with the meaning that it has on a packet socket.
pub(crate) struct ProgramFilter(pub(crate) ClassicProgram);

impl ProgramFilter {
    /// # Errors
    /// The rule of the classic machine that the program breaks.
    ///
    /// # Safety
    /// `program` must be a program that libpcap has taken: its instructions are readable.
    pub(crate) unsafe fn new(program: &Program) -> Result<Self, InvalidProgram> {
        // SAFETY: the caller's.
        let raw = unsafe { std::slice::from_raw_parts(program.instructions, program.len as usize) };
        ClassicProgram::for_user_space(raw).map(Self)
    }

    /// Whether the frame, of which `bytes` were captured, passes.
    #[inline]
    pub(crate) fn accepts(&self, frame: &Frame<'_>, bytes: &[u8]) -> bool {
        let packet_type = match frame.direction {
            Direction::Outbound => PACKET_OUTGOING,
            _ => PACKET_HOST,
        };
        let tagged = frame.tag_beside.unwrap_or_else(|| has_outer_tag(bytes));
        let frame = SocketFrame { bytes, wire_len: frame.wire_len, tagged, packet_type };
        self.0.accepts_from_socket(&frame) != 0
    }
}
