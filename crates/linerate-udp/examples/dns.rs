//! Answers every question for an IPv4 address with 192.0.2.1, and others with no data (RFC 1035 §4.1).
//!
//! `cargo run -p linerate-udp --example dns -- 127.0.0.1:5300 [BACKEND]`

use std::error::Error;

use linerate_udp::Socket;

/// The name of the question, type A, class IN, a time to live of 60 seconds, and four bytes of address.
const ANSWER: [u8; 16] = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1];

/// The length of the header and of the one question of a query; `None` for anything else.
fn question(query: &[u8]) -> Option<usize> {
    let is_query = query.get(2)? & 0xf8 == 0 && query.get(4..6)? == [0, 1];
    let mut at = 12;
    while *query.get(at)? != 0 {
        at += 1 + usize::from(*query.get(at).filter(|len| **len < 64)?);
    }
    (is_query && query.len() >= at + 5).then_some(at + 5)
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:5300".to_owned());
    let backend = std::env::args().nth(2).map(|name| name.parse()).transpose()?;
    let mut socket = Socket::builder(address.parse()?).backend(backend).build_socket()?;
    println!("answering on {} by {}", socket.address(), socket.receiver().backend());
    Ok(serve(&mut socket)?)
}

/// Answers until the socket fails.
pub(crate) fn serve(socket: &mut Socket) -> linerate_udp::Result<()> {
    let (receiver, transmitter) = socket.split();
    loop {
        let mut batch = receiver.receive(None)?;
        while let Some(message) = batch.next() {
            let Some(len) = question(message.payload) else { continue };
            let has_address = message.payload[len - 4..len] == [0, 1, 0, 1];
            let answers = if has_address { &ANSWER[..] } else { &[] };
            // Written where it is sent from.
            let reply = transmitter.message(&message.reply(&[]), len + answers.len())?;
            reply[..len].copy_from_slice(&message.payload[..len]);
            // An answer with authority, of no error; recursion as it was desired.
            (reply[2], reply[3]) = (0x84 | message.payload[2] & 1, 0);
            reply[6..12].copy_from_slice(&[0, u8::from(has_address), 0, 0, 0, 0]);
            reply[len..].copy_from_slice(answers);
        }
        transmitter.flush()?;
    }
}
