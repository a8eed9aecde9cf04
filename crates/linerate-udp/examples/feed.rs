//! Reads a MoldUDP64 feed from a group, and asks a server for what is missing.
//!
//! `cargo run -p linerate-udp --example feed -- 0.0.0.0:26400 233.54.12.111@eth1 10.0.0.9:26401`

use std::error::Error;
use std::net::UdpSocket;

use linerate_udp::feed::moldudp64::{MoldUdp64, request};
use linerate_udp::feed::{Feed, Line};
use linerate_udp::{Group, Receiver};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, group, server] = &arguments[..] else {
        return Err("feed ADDRESS:PORT GROUP@IFACE SERVER:PORT".into());
    };
    let group: Group = group.parse()?;
    let mut receiver = Receiver::builder(address.parse()?).join(group).build()?;
    let socket = UdpSocket::from(receiver.socket().try_clone_to_owned()?);
    let mut feed = Feed::new(MoldUdp64);
    let mut asked = 0;
    while !feed.ended() {
        let mut batch = receiver.receive(None)?;
        while let Some(packet) = batch.next() {
            feed.process(Line::A, packet.payload, |message| {
                println!(
                    "{} {} bytes{}",
                    message.number,
                    message.bytes.len(),
                    if message.late { ", late" } else { "" }
                );
            });
        }
        // Each gap is asked for once; the answer comes to the same socket.
        if let Some(gap) = feed.gap_list().gaps().iter().find(|gap| gap.from >= asked) {
            socket.send_to(&request(feed.session(), *gap), server)?;
            asked = gap.to;
        }
    }
    println!("{:?}", feed.statistics());
    Ok(())
}
