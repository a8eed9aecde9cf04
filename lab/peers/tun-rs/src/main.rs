//! tun-rs's splitter as the lab's peer: splits one frame (Ethernet, TCP over IPv4) again and again.
//!
//! `peer-tun-rs FRAME HEADERS MSS MILLISECONDS OUT` prints {"segments": N, "nanoseconds": N} of each batch, a
//! line each, and writes the segments of the last packet to OUT: a 32-bit length in the machine's byte
//! order before each. tun-rs splits IP packets, so that they have no Ethernet header.

use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

use tun_rs::{VIRTIO_NET_HDR_GSO_TCPV4, VirtioNetHdr, gso_split};

const LINK: usize = 14;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, frame, headers, mss, milliseconds, out] = &arguments[..] else {
        panic!("peer-tun-rs FRAME HEADERS MSS MILLISECONDS OUT")
    };
    let number = |text: &String| text.parse::<u16>().expect("a number");
    let (headers, mss) = (usize::from(number(headers)) - LINK, number(mss));
    let mut packet = fs::read(frame)?.split_off(LINK);
    let header = VirtioNetHdr {
        flags: 1,
        gso_type: VIRTIO_NET_HDR_GSO_TCPV4,
        hdr_len: headers as u16,
        gso_size: mss,
        csum_start: 20,
        csum_offset: 16,
    };
    // Buffers that follow each other, as those of a ring do.
    let chunk = (headers + usize::from(mss)).next_multiple_of(2048);
    let count = (packet.len() - headers).div_ceil(usize::from(mss));
    let mut memory = vec![1; chunk * count + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let mut ring: Vec<&mut [u8]> = memory[start..].chunks_exact_mut(chunk).take(count).collect();
    let mut sizes = vec![0; count];
    let end = Instant::now() + Duration::from_millis(number(milliseconds).into());
    while Instant::now() < end {
        let (mut segments, start) = (0, Instant::now());
        for _ in 0..50 {
            segments += gso_split(&mut packet, header, &mut ring, &mut sizes, 0, false)?;
        }
        let nanoseconds = start.elapsed().as_nanos();
        println!("{{\"segments\": {segments}, \"nanoseconds\": {nanoseconds}}}");
    }
    let mut out = File::create(out)?;
    for (segment, &size) in ring.iter().zip(&sizes) {
        out.write_all(&(size as u32).to_ne_bytes())?;
        out.write_all(&segment[..size])?;
    }
    Ok(())
}
