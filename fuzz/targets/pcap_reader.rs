//! Classic capture files, also compressed ones: any bytes end in records or in an error.
#![no_main]

mod reading;

use libfuzzer_sys::fuzz_target;

/// The magic number decides the format. With it given, the fuzzer need not guess it.
const MAGIC: [[u8; 4]; 4] = [
    0xa1b2_c3d4_u32.to_le_bytes(),
    0xa1b2_c3d4_u32.to_be_bytes(),
    0xa1b2_3c4d_u32.to_le_bytes(),
    0xa1b2_3c4d_u32.to_be_bytes(),
];

fuzz_target!(|data: &[u8]| {
    reading::drain(data);
    let Some((choice, rest)) = data.split_first() else { return };
    reading::drain(&[&MAGIC[usize::from(*choice) % MAGIC.len()], rest].concat());
});
