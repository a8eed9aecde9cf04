//! Splits a super-packet into the buffers of a transmit ring, and joins the segments again.
//!
//! `cargo run -p linerate-segment --example split`

use std::error::Error;

use etherparse::PacketBuilder;
use linerate_segment::coalesce::{self, Coalescer, Flow, Output};
use linerate_segment::segment::{LinkType, Options, Segments, Split};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let payload: Vec<u8> = (0..20_000_u32).map(|at| at as u8).collect();
    let headers = PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64).tcp(49152, 443, 1, 65535);
    let mut packet = Vec::new();
    headers.ack(1).psh().write(&mut packet, &payload)?;

    let options = Options { link: LinkType::Ip, ..Options::new(Split::Mtu(1500)) };
    let mut ring = vec![[0; 2048]; 64];
    let mut sent: Vec<&[u8]> = Vec::new();
    let buffers = ring.iter_mut().map(|buffer| &mut buffer[..]);
    Segments::new(&packet, &options)?
        .write_all(buffers, |buffer, len| sent.push(&buffer[..len]))?;
    println!("one packet of {} bytes became {} of at most 1500", packet.len(), sent.len());

    let options = coalesce::Options { link: LinkType::Ip, ..coalesce::Options::default() };
    let mut coalescer = Coalescer::new(vec![Flow::default(); 8], &options);
    let mut joined = vec![0; packet.len()];
    let mut write = |output: Output<'_>| match output {
        Output::Frame { token, reason } => println!("{token} stays alone: {reason:?}"),
        Output::Super(whole) => {
            let len = whole.write(&mut joined, |token| sent[token as usize]);
            println!("{} packets became one of {len:?} bytes", whole.tokens().len());
        }
    };
    for (token, packet) in (0..).zip(&sent) {
        coalescer.push(packet, token, 0, &mut write);
    }
    coalescer.flush_all(&mut write);
    assert_eq!(joined, packet);
    Ok(())
}
