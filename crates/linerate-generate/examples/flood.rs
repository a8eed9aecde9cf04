//! Floods an interface with UDP datagrams of a hundred flows for one second.
//!
//! ```text
//! cargo run -p linerate-generate --example flood -- veth0
//! ```

use std::time::Duration;

use linerate_generate::{Config, Generator, Options, Result};

fn main() -> Result<()> {
    let interface = std::env::args().nth(1).unwrap_or_else(|| "veth0".into());
    let options =
        Options { duration: Some(Duration::from_secs(1)), flows: Some(100), ..Options::default() };
    let running = Generator::start(Config::new(&interface, options)?)?;
    while !running.is_finished() {
        std::thread::sleep(Duration::from_millis(100));
        println!("{} frames", running.progress().sent);
    }
    let report = running.wait()?;
    println!(
        "{} sent, {} refused, {:.0} a second",
        report.sent, report.refused, report.packets_per_second
    );
    Ok(())
}
