//! Reads a MoldUDP64 feed from a group, and asks a server for what is missing.
//!
//! `cargo run -p linerate-udp --example feed -- 0.0.0.0:26400 233.54.12.111@eth1 10.0.0.9:26401`

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linerate_feed::moldudp64::{MoldUdp64, request};
use linerate_feed::{Feed, Line, Message, Requester};
use linerate_udp::{Group, Options, Receiver, Socket, Transmit};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, group, server] = &arguments[..] else {
        return Err("feed ADDRESS:PORT GROUP@IFACE SERVER:PORT".into());
    };
    let mut receiver = Receiver::open(Options {
        groups: vec![group.parse::<Group>()?],
        ..Options::new(address.parse()?)
    })?;
    // Answers come to the address that asks.
    let mut requests = Socket::open(Options::new("0.0.0.0:0".parse()?))?;
    read(&mut receiver, &mut requests, server.parse()?, |message| {
        println!("{} {}", message.number, String::from_utf8_lossy(message.bytes));
    })
    .map_err(Into::into)
}

/// Reads a session to its end.
pub(crate) fn read(
    receiver: &mut Receiver,
    requests: &mut Socket,
    server: SocketAddr,
    mut take: impl FnMut(Message<'_>),
) -> linerate_udp::Result<()> {
    let (mut feed, mut requester) = (Feed::new(MoldUdp64), Requester::new());
    let Socket { receiver: answers, transmitter: asking } = requests;
    while !feed.ended() || !requester.is_done(&feed) {
        let mut batch = receiver.receive(Some(Instant::now() + Duration::from_millis(2)))?;
        while let Some(packet) = batch.next() {
            feed.process(Line::A, packet.payload, &mut take);
        }
        let mut batch = answers.try_receive()?;
        while let Some(answer) = batch.next().filter(|answer| answer.source == server) {
            feed.process(Line::Retransmission, answer.payload, &mut take);
        }
        if let Some(gap) = requester.next(&feed, Instant::now()) {
            asking.send(&[Transmit::new(server, &request(feed.session(), gap))])?;
        }
    }
    Ok(())
}
