//! pcapng files: any blocks end in records or in an error.
#![no_main]

mod reading;

use libfuzzer_sys::fuzz_target;

/// A section header and an Ethernet interface, so that what follows is read as blocks.
const HEAD: [u8; 48] = {
    let mut head = [0; 48];
    (head[0], head[1], head[2], head[3]) = (0x0a, 0x0d, 0x0d, 0x0a);
    (head[4], head[24]) = (28, 28);
    (head[8], head[9], head[10], head[11]) = (0x4d, 0x3c, 0x2b, 0x1a);
    head[12] = 1;
    let mut at = 16;
    while at < 24 {
        head[at] = 0xff;
        at += 1;
    }
    (head[28], head[32], head[36], head[44]) = (1, 20, 1, 20);
    head
};

fuzz_target!(|data: &[u8]| {
    reading::drain(data);
    reading::drain(&[&HEAD, data].concat());
});
