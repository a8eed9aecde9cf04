//! Classic filter programs out of any bytes: what validates translates, and libpcap's matcher, the
//! one in user space and the eBPF agree on every frame.
#![no_main]

#[path = "../../crates/linerate-bpf/tests/it/filter/ebpf.rs"]
mod ebpf;
#[path = "../../crates/linerate-bpf/tests/it/filter/oracle.rs"]
mod oracle;
#[path = "../../crates/linerate-bpf/tests/it/filter/shape.rs"]
mod shape;

use libfuzzer_sys::fuzz_target;
use linerate_bpf::filter::{ClassicInstruction, ClassicProgram, translate};
use pcap as _;

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, length], rest)) = data.split_first_chunk() else { return };
    let (program, frame) = rest.split_at(rest.len().min(usize::from(length) * 4));
    let classic = if kind & 1 == 0 {
        // Most bytes make a valid program this way.
        shape::program(program)
    } else {
        match ClassicProgram::new(program.chunks_exact(8).map(instruction).collect::<Vec<_>>()) {
            Ok(classic) => classic,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return;
            }
        }
    };
    assert!(oracle::validates(classic.instructions()), "libpcap calls it invalid:\n{classic}");
    let Ok(body) = translate(&classic) else { return };
    if let Err(why) = ebpf::check_shape(&body) {
        panic!("{why}\n{classic}{body:#?}");
    }
    let wire_len = frame.len() as u32 + u32::from(kind >> 1);
    let expected = oracle::accepts(classic.instructions(), frame, wire_len);
    assert_eq!(classic.accepts(frame, wire_len), expected, "in user space:\n{classic}");
    assert_eq!(ebpf::run(&body, frame, wire_len), Ok(expected), "as eBPF:\n{classic}{body:#?}");
});

fn instruction(bytes: &[u8]) -> ClassicInstruction {
    ClassicInstruction {
        code: u16::from_le_bytes([bytes[0], bytes[1]]),
        jt: bytes[2],
        jf: bytes[3],
        k: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    }
}
