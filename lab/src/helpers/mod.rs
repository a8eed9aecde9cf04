//! The small programs that experiments run in their namespaces: `linerate-lab helper NAME`.

mod connections;
mod consumer;
mod datagram_server;
mod datagrams;
mod pcap_loop;
mod quic;
mod redirect;
mod redirect_tc;
mod sink;
pub(crate) mod splitter;
mod stream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Subcommand;
use linerate::cli::stdio;
use serde::Serialize;
use serde_json::json;

use crate::baseline::{forward_fib, xdp_loop};
use crate::interrupt;

/// The arguments of a helper.
#[derive(Debug, Subcommand)]
pub(crate) enum Helper {
    /// Hash every byte of captured frames, and work on every n-th frame for longer.
    Consumer(consumer::Options),
    /// Receive with a plain AF_XDP loop, the limit that rates are compared with.
    XdpLoop {
        /// The interface.
        #[arg(short, long)]
        interface: String,
        /// Keep the UMEM in huge pages.
        #[arg(long)]
        huge: bool,
        /// Parse and verify a UDP datagram in each frame.
        #[arg(long)]
        udp: bool,
    },
    /// Count the packets that libpcap's loop delivers.
    PcapLoop {
        /// The interface.
        #[arg(short, long)]
        interface: String,
    },
    /// Send a TCP stream, or datagrams.
    Send {
        /// The receiver.
        #[arg(long)]
        address: SocketAddr,
        /// How long.
        #[arg(long)]
        seconds: f64,
        /// Send datagrams of this many bytes.
        #[arg(long, value_name = "PAYLOAD")]
        datagrams: Option<usize>,
        /// Have the kernel segment them (UDP_SEGMENT).
        #[arg(long, requires = "datagrams")]
        gso: bool,
    },
    /// Receive and compare what `send` sends.
    Receive {
        /// Where to listen.
        #[arg(long)]
        address: SocketAddr,
        /// Datagrams, not a stream.
        #[arg(long)]
        datagrams: bool,
    },
    /// Answer UDP messages.
    DatagramServer(datagram_server::Options),
    /// Receive or send a stream of QUIC.
    Quic(quic::Options),
    /// Split a super-packet again and again.
    Split(splitter::Options),
    /// Send back what comes on TCP connections.
    Echo {
        /// Where to listen.
        #[arg(long)]
        address: SocketAddr,
    },
    /// Open TCP connections and hold them.
    Hold {
        /// The server.
        #[arg(long)]
        address: SocketAddr,
        /// How many connections.
        #[arg(long)]
        connections: u64,
        /// Messages there and back on each.
        #[arg(long)]
        rounds: u64,
        /// The file to write when all messages were exchanged.
        #[arg(long)]
        ready: PathBuf,
    },
    /// Forward by a look-up in the FIB for each packet.
    ForwardFib {
        /// The interfaces to forward between.
        #[arg(short, long)]
        interface: Vec<String>,
    },
    /// Redirect every frame with constant addresses, the limit of forwarding.
    Redirect(redirect::Options),
    /// Redirect TCP over IPv4 at tcx with constant addresses, the limit of forwarding by TC.
    RedirectTc(redirect_tc::Options),
    /// Count and drop frames in the driver.
    Sink {
        /// The interface.
        #[arg(short, long)]
        interface: String,
    },
}

impl Helper {
    /// Runs it, and prints its report as JSON.
    pub(crate) fn run(&self) -> Result<()> {
        match self {
            Self::Consumer(options) => report(&consumer::run(options)?),
            Self::XdpLoop { interface, huge, udp } => {
                let parser = linerate_udp::xdp::Parser::new(false);
                let stop = interrupt::flag();
                let counts = match udp {
                    true => {
                        xdp_loop::run(interface, *huge, stop, |frame| parser.parse(frame).is_ok())
                    }
                    false => xdp_loop::run(interface, *huge, stop, |_| true),
                }?;
                report(&json!({
                    "captured": counts.received,
                    "dropped": {"no chunk": counts.dropped, "ring full": counts.ring_full},
                }))
            }
            Self::PcapLoop { interface } => report(&pcap_loop::run(interface)?),
            Self::Send { address, seconds, datagrams, gso } => {
                let time =
                    Duration::try_from_secs_f64(*seconds).context("--seconds is not a time")?;
                match datagrams {
                    Some(payload) => report(&datagrams::send(*address, *payload, *gso, time)?),
                    None => report(&stream::send(*address, time)?),
                }
            }
            Self::Receive { address, datagrams: true } => report(&datagrams::receive(*address)?),
            Self::Receive { address, datagrams: false } => report(&stream::receive(*address)?),
            Self::DatagramServer(options) => report(&datagram_server::run(options)?),
            Self::Quic(options) => report(&quic::run(options)?),
            Self::Split(options) => splitter::run(options),
            Self::Echo { address } => connections::echo(*address),
            Self::Hold { address, connections, rounds, ready } => {
                report(&connections::hold(*address, *connections, *rounds, ready)?)
            }
            Self::ForwardFib { interface } => forward_fib::run(interface),
            Self::Redirect(options) => redirect::run(options),
            Self::RedirectTc(options) => redirect_tc::run(options),
            Self::Sink { interface } => {
                let (frames, bytes) = sink::run(interface)?;
                report(&json!({"captured": frames, "bytes": bytes, "dropped": {}}))
            }
        }
    }
}

fn report(report: &impl Serialize) -> Result<()> {
    stdio::println(serde_json::to_string(report)?)
}
