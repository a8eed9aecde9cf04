//! Sends every message back to where it came from.
//!
//! `cargo run -p linerate-udp --example echo -- [::]:7000 [BACKEND]`

use std::error::Error;

use linerate_udp::{Options, Socket};

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let backend = std::env::args().nth(2).map(|name| name.parse()).transpose()?;
    let mut socket = Socket::open(Options { backend, ..Options::new(address.parse()?) })?;
    println!("echoing on {} by {}", socket.receiver.address(), socket.receiver.backend());
    Ok(serve(&mut socket)?)
}

/// Answers until the socket fails, as it does when its interface is removed.
pub(crate) fn serve(socket: &mut Socket) -> linerate_udp::Result<()> {
    let Socket { receiver, transmitter } = socket;
    loop {
        let mut batch = receiver.receive(None)?;
        while let Some(message) = batch.next() {
            transmitter.push(&message.reply(message.payload))?;
        }
        transmitter.flush()?;
    }
}
