//! Sends every message back to where it came from.
//!
//! `cargo run -p linerate-udp --example echo -- 127.0.0.1:7000`

use std::error::Error;
use std::net::UdpSocket;

use linerate_udp::Receiver;

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let mut receiver = Receiver::builder(address.parse()?).build()?;
    println!("echoing on {} by {}", receiver.address(), receiver.backend());
    // The receiver's own socket sends as any other does.
    let socket = UdpSocket::from(receiver.socket().try_clone_to_owned()?);
    loop {
        let mut batch = receiver.receive(None)?;
        while let Some(message) = batch.next() {
            socket.send_to(message.payload, message.source)?;
        }
    }
}
