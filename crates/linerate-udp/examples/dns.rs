//! Answers every question for an IPv4 address with 192.0.2.1, and others with no data (RFC 1035 §4.1).
//!
//! `cargo run -p linerate-udp --example dns -- 127.0.0.1:5300 [BACKEND]`

use std::error::Error;

use linerate_udp::{Options, Socket};

/// The name of the question, type A, class IN, a time to live of 60 seconds, and four bytes of address.
const ANSWER: [u8; 16] = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1];

/// Writes the answer to a query of one question over `to`; `None` for anything else.
pub(crate) fn answer(query: &[u8], to: &mut Vec<u8>) -> Option<()> {
    let is_query = query.get(2)? & 0xf8 == 0 && query.get(4..6)? == [0, 1];
    let mut at = 12;
    while *query.get(at)? != 0 {
        at += 1 + usize::from(*query.get(at).filter(|len| **len < 64)?);
    }
    let question = query.get(..at + 5).filter(|_| is_query)?;
    let has_address = question.ends_with(&[0, 1, 0, 1]);
    to.clear();
    to.extend(question);
    (to[2], to[3]) = (0x84 | query[2] & 1, 0);
    to[6..12].copy_from_slice(&[0, u8::from(has_address), 0, 0, 0, 0]);
    to.extend(has_address.then_some(ANSWER).iter().flatten());
    Some(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("dns ADDRESS:PORT [BACKEND]")?.parse()?;
    let backend = std::env::args().nth(2).map(|name| name.parse()).transpose()?;
    let mut socket = Socket::open(Options { backend, ..Options::new(address) })?;
    Ok(serve(&mut socket)?)
}

/// Answers until the socket fails.
pub(crate) fn serve(socket: &mut Socket) -> linerate_udp::Result<()> {
    let Socket { receiver, transmitter } = socket;
    let mut reply = Vec::new();
    loop {
        let mut batch = receiver.receive(None)?;
        while let Some(message) = batch.next() {
            if answer(message.payload, &mut reply).is_some() {
                transmitter.push(&message.reply(&reply))?;
            }
        }
        transmitter.flush()?;
    }
}
