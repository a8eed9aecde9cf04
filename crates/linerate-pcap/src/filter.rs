//! [`ProgramFilter`]: the program's filter, run in user space on frames that the kernel has not filtered.

use std::ffi::c_uint;

use linerate_bpf::filter::{Classic, Statement};
use linerate_ring::{Direction, Frame};

use crate::abi::Program;
use crate::forward::real;

/// `PACKET_HOST` and `PACKET_OUTGOING` of `linux/if_packet.h`.
const PACKET_HOST: u8 = 0;
const PACKET_OUTGOING: u8 = 4;

/// A filter in all forms that are needed.
pub(crate) struct ProgramFilter {
    /// For the kernel; `None` for programs that it refuses (loops).
    pub(crate) socket: Option<Classic>,
    /// For frames with their tags in place, incoming and outgoing.
    in_place: Option<[Classic; 2]>,
    /// As the program gave it.
    raw: Vec<Statement>,
}

impl ProgramFilter {
    /// # Safety
    ///
    /// `program` must be a program that libpcap has taken: its statements are readable.
    pub(crate) unsafe fn new(program: &Program) -> Self {
        // SAFETY: the caller's.
        let raw = unsafe { std::slice::from_raw_parts(program.statements, program.len as usize) };
        let socket = Classic::new(raw).ok();
        let in_place = socket.as_ref().and_then(|program| {
            let [incoming, outgoing] = [PACKET_HOST, PACKET_OUTGOING]
                .map(|packet_type| program.with_tags_in_place(packet_type));
            Some([incoming?, outgoing?])
        });
        Self { socket, in_place, raw: raw.to_vec() }
    }

    /// Whether this gives frames with tags in place the same verdict as a packet socket.
    pub(crate) fn is_exact(&self) -> bool {
        self.in_place.is_some()
    }

    /// Whether the frame, of which `bytes` were captured, passes.
    #[inline]
    pub(crate) fn accepts(&self, frame: &Frame<'_>, bytes: &[u8]) -> bool {
        if let Some([incoming, outgoing]) = &self.in_place {
            let program = match frame.direction {
                Direction::Outbound => outgoing,
                _ => incoming,
            };
            return program.accepts(bytes, frame.wire_len) != 0;
        }
        // SAFETY: libpcap has taken the program, and the bytes are readable for their length.
        let accepted = unsafe {
            real::bpf_filter(
                self.raw.as_ptr(),
                bytes.as_ptr(),
                frame.wire_len,
                bytes.len() as c_uint,
            )
        };
        accepted != 0
    }
}
