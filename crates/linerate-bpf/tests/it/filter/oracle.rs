//! libpcap's own matcher, with the lengths that its Rust binding does not let one choose.

use linerate_bpf::filter::ClassicInstruction;

#[link(name = "pcap")]
unsafe extern "C" {
    fn bpf_filter(
        program: *const ClassicInstruction,
        packet: *const u8,
        wire: u32,
        captured: u32,
    ) -> u32;
    fn bpf_validate(program: *const ClassicInstruction, length: i32) -> i32;
}

/// How many bytes libpcap accepts of `frame`, whose length on the wire was `wire_len`.
///
/// The program must be valid: libpcap trusts it.
pub(crate) fn accepts(program: &[ClassicInstruction], frame: &[u8], wire_len: u32) -> u32 {
    // SAFETY: `ClassicInstruction` has the layout of `bpf_insn`; the program was checked, so it ends with a
    // return and jumps within itself; libpcap reads no more than `frame.len()` bytes.
    unsafe { bpf_filter(program.as_ptr(), frame.as_ptr(), wire_len, frame.len() as u32) }
}

/// Whether libpcap holds `program` for valid.
pub(crate) fn validates(program: &[ClassicInstruction]) -> bool {
    // SAFETY: as above; libpcap only reads the instructions.
    unsafe { bpf_validate(program.as_ptr(), program.len() as i32) != 0 }
}
