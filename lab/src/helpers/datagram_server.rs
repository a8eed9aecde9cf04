//! The servers of the `receive-echo` and `receive-dns` experiments: on sockets of Linerate, or on a plain one.

#[path = "../../../crates/linerate-udp/examples/dns.rs"]
#[allow(dead_code)]
mod dns;

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use linerate_udp::{Backend, SendBackend, SendOptions, Socket};
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use serde::Serialize;

use crate::interrupt;

/// How long a server waits before it looks for a signal.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// Bytes of the receive buffer of a plain socket.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Arguments of the helper.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where to listen.
    #[arg(long)]
    address: SocketAddr,
    /// How to receive; default: a plain socket, a message a call.
    #[arg(long)]
    backend: Option<Backend>,
    /// How to send.
    #[arg(long, default_value = "sendmmsg", requires = "backend")]
    send_backend: SendBackend,
    /// Have the kernel segment nothing.
    #[arg(long, requires = "backend")]
    no_gso: bool,
    /// Answer questions of DNS; default: send back what comes.
    #[arg(long)]
    dns: bool,
}

/// What a server did.
#[derive(Debug, Default, Serialize)]
pub(super) struct Served {
    received: u64,
    answered: u64,
    /// Answers that bypassed the stack.
    ring: u64,
    refused: u64,
    calls: u64,
}

/// Serves until a signal asks for the end.
pub(super) fn run(options: &Options) -> Result<Served> {
    match options.backend {
        Some(backend) => on_linerate(options, backend),
        None => on_plain(options),
    }
}

fn on_linerate(options: &Options, backend: Backend) -> Result<Served> {
    let send = SendOptions {
        backend: options.send_backend,
        gso: options.no_gso.then_some(false),
        ..SendOptions::default()
    };
    let defaults = linerate_udp::Options::new(options.address);
    let mut socket =
        Socket::open(linerate_udp::Options { backend: Some(backend), send, ..defaults })?;
    let Socket { receiver, transmitter } = &mut socket;
    let mut reply = Vec::new();
    while !interrupt::happened() {
        let mut batch = receiver.receive(Some(Instant::now() + MAX_WAIT))?;
        while let Some(message) = batch.next() {
            if !options.dns {
                transmitter.push(&message.reply(message.payload))?;
            } else if dns::answer(message.payload, &mut reply).is_some() {
                transmitter.push(&message.reply(&reply))?;
            }
        }
        transmitter.flush()?;
    }
    let sent = transmitter.statistics();
    Ok(Served {
        received: receiver.messages(),
        answered: sent.messages,
        ring: sent.ring,
        refused: sent.refused,
        calls: receiver.syscalls() + sent.syscalls,
    })
}

fn on_plain(options: &Options) -> Result<Served> {
    let address = options.address;
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind {address}"))?;
    socket.set_read_timeout(Some(MAX_WAIT))?;
    // As much as Linerate asks for.
    setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER)
        .context("cannot set SO_RCVBUFFORCE (CAP_NET_ADMIN)")?;
    let (mut served, mut room, mut reply) = (Served::default(), [0; 2048], Vec::new());
    while !interrupt::happened() {
        served.calls += 1;
        let (len, from) = match socket.recv_from(&mut room) {
            Ok(received) => received,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(error) => return Err(error).context("cannot receive"),
        };
        served.received += 1;
        let answer = match options.dns {
            false => &room[..len],
            true if dns::answer(&room[..len], &mut reply).is_some() => &reply[..],
            true => continue,
        };
        served.calls += 1;
        match socket.send_to(answer, from) {
            Ok(_) => served.answered += 1,
            Err(_) => served.refused += 1,
        }
    }
    Ok(served)
}
