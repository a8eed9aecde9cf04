//! A telemetry sink: sums the counters of statsd clients (`name:3|c`), and prints them when they say `print:1|c`.
//!
//! `cargo run -p linerate-udp --example statsd -- 127.0.0.1:8125 [BACKEND]`

use std::collections::BTreeMap;
use std::error::Error;

use linerate_udp::{Options, Receiver};

/// Name and value of a counter; `@` says which part of the events was reported.
fn counter(line: &str) -> Option<(&str, f64)> {
    let (name, rest) = line.split_once(':')?;
    let (value, rest) = rest.split_once("|c")?;
    let rate = rest.strip_prefix("|@").map_or(Ok(1.0), str::parse::<f64>).ok()?;
    Some((name, value.parse::<f64>().ok()? / rate))
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8125".to_owned());
    let backend = std::env::args().nth(2).map(|name| name.parse()).transpose()?;
    let mut receiver = Receiver::open(Options { backend, ..Options::new(address.parse()?) })?;
    println!("counting on {} by {}", receiver.address(), receiver.backend());
    Ok(sink(&mut receiver, |counters| println!("{counters:?}"))?)
}

/// Sums until the receiver fails.
pub(crate) fn sink(
    receiver: &mut Receiver,
    mut print: impl FnMut(&BTreeMap<String, f64>),
) -> linerate_udp::Result<()> {
    let mut counters = BTreeMap::new();
    loop {
        let mut batch = receiver.receive(None)?;
        while let Some(message) = batch.next() {
            for line in String::from_utf8_lossy(message.payload).lines() {
                match counter(line) {
                    Some(("print", _)) => print(&counters),
                    Some((name, value)) => match counters.get_mut(name) {
                        Some(sum) => *sum += value,
                        None => drop(counters.insert(name.to_owned(), value)),
                    },
                    None => eprintln!("no counter: {line}"),
                }
            }
        }
    }
}
