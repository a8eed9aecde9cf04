//! Prints the layers of a frame given in hexadecimal, one a line.
//!
//! ```text
//! cargo run -p linerate-wire --example dissect -- ffffffffffff 020000000001 0806 0001 0800 ...
//! ```

use linerate_wire::{flow, layers};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let digits: String = std::env::args().skip(1).collect();
    let frame = digits
        .as_bytes()
        .chunks(2)
        .map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?))
        .collect::<Result<Vec<u8>, Box<dyn std::error::Error>>>()?;

    let layers = layers::parse(&frame)?;
    let tags = (0..layers.tags).filter_map(|tag| layers.vlan(&frame, tag));
    let mut lines: Vec<String> = Vec::new();
    lines.extend(layers.ethernet(&frame).map(|view| view.to_string()));
    lines.extend(tags.map(|view| view.to_string()));
    lines.extend(layers.arp(&frame).map(|view| view.to_string()));
    lines.extend(layers.ipv4(&frame).map(|view| view.to_string()));
    lines.extend(layers.ipv6(&frame).map(|view| view.to_string()));
    lines.extend(layers.tcp(&frame).map(|view| view.to_string()));
    lines.extend(layers.udp(&frame).map(|view| view.to_string()));
    lines.extend(layers.icmpv4(&frame).map(|view| view.to_string()));
    lines.extend(layers.icmpv6(&frame).map(|view| view.to_string()));
    lines.extend(layers.error.map(|error| error.to_string()));
    lines.extend(flow::Key::of(&frame).map(|key| format!("flow {key}")));
    println!("{}\n{} bytes of payload", lines.join("\n"), layers.payload(&frame).len());
    Ok(())
}
