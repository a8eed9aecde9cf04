//! Counts messages, and what was lost, once a second.
//!
//! `cargo run --release -p linerate-udp --example sink -- 0.0.0.0:7000 [BACKEND]`

use std::error::Error;
use std::time::{Duration, Instant};

use linerate_udp::{Options, Receiver};

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "0.0.0.0:7000".to_owned());
    let backend = std::env::args().nth(2).map(|name| name.parse()).transpose()?;
    let mut receiver = Receiver::open(Options { backend, ..Options::new(address.parse()?) })?;
    println!("receiving on {} by {}", receiver.address(), receiver.backend());
    let mut before = 0;
    loop {
        let second = Instant::now() + Duration::from_secs(1);
        while Instant::now() < second {
            let mut batch = receiver.receive(Some(second))?;
            while batch.next().is_some() {}
        }
        let messages = receiver.messages();
        println!("{} messages, {:?}", messages - before, receiver.drops()?);
        before = messages;
    }
}
