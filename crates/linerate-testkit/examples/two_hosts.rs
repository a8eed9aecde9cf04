//! Lays two hosts and a cable, sends a datagram across, and prints what the cable carried.
//!
//! Needs root: `sudo -E cargo run --example two_hosts`. Nothing is left behind.

use std::net::UdpSocket;

use linerate_testkit::{Namespace, Veth, VethOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (left, right) = (Namespace::create("left")?, Namespace::create("right")?);
    let cable = Veth::create(&left, "a", &right, "b", VethOptions::default())?;
    let (here, there) = ("10.0.0.1".parse()?, "10.0.0.2".parse()?);
    cable.a.add_address(here, 24)?;
    cable.b.add_address(there, 24)?;
    // No ARP: each side is told where the other one is.
    cable.a.add_neighbour(there, cable.b.mac())?;
    cable.b.add_neighbour(here, cable.a.mac())?;

    let receiver = right.run(|| UdpSocket::bind("10.0.0.2:7000"))??;
    let sender = left.run(|| UdpSocket::bind("10.0.0.1:0"))??;
    sender.send_to(b"hello", "10.0.0.2:7000")?;
    let mut buffer = [0; 64];
    let (length, from) = receiver.recv_from(&mut buffer)?;
    println!("{} from {from}", String::from_utf8_lossy(&buffer[..length]));
    println!("{:?}", cable.b.statistics()?);
    let shown = right.command("ip").args(["-brief", "address"]).output()?;
    print!("{}", String::from_utf8_lossy(&shown.stdout));
    Ok(())
}
