//! Many TCP connections, held open together: what a router's session table meets in practice.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::event::{Timespec, epoll};
use serde::Serialize;

use crate::interrupt;

/// Bytes of a message.
const MESSAGE_LEN: usize = 64;

/// What the client saw.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Connections open together, each of which exchanged all its messages.
    pub(super) held: u64,
    /// Messages that came back.
    pub(super) exchanged: u64,
    /// Of them, in a second.
    pub(super) exchanges_per_second: f64,
    /// Seconds to open all of them.
    pub(super) opening_seconds: f64,
}

/// A process has 1,024 descriptors unless it asks for more, and often not more than 20,000 then: who wants
/// more connections starts several processes.
fn raise_limit(wanted: u64) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard)
            .context("cannot raise the limit of open files")?;
    }
    Ok(())
}

/// Sends back what comes, until a signal asks for the end.
pub(super) fn echo(address: SocketAddr) -> Result<()> {
    raise_limit(100_000)?;
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    // The standard library asks for room for 128.
    rustix::net::listen(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let readable = epoll::EventFlags::IN;
    epoll::add(&poll, listener.as_fd(), epoll::EventData::new_u64(0), readable)?;
    let mut streams: HashMap<u64, TcpStream> = HashMap::new();
    let (mut next, mut message) = (1, [0; MESSAGE_LEN * 16]);
    let mut events = Vec::with_capacity(1024);
    let flush_delay = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !interrupt::happened() {
        events.clear();
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&flush_delay)) {
            Err(rustix::io::Errno::INTR) => continue,
            done => done?,
        };
        for event in &events {
            let key = event.data.u64();
            if key == 0 {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    epoll::add(&poll, stream.as_fd(), epoll::EventData::new_u64(next), readable)?;
                    streams.insert(next, stream);
                    next += 1;
                }
                continue;
            }
            let Some(stream) = streams.get_mut(&key) else { continue };
            match stream.read(&mut message) {
                Ok(length) if length > 0 => stream.write_all(&message[..length])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Closed by the other side, or broken: epoll forgets what is closed.
                _ => drop(streams.remove(&key)),
            }
        }
    }
    Ok(())
}

/// Opens `connections`, has `rounds` messages echoed on each, writes `ready` and holds all of them until
/// a signal asks for the end.
pub(super) fn hold(
    address: SocketAddr,
    connections: u64,
    rounds: u64,
    ready: &Path,
) -> Result<Report> {
    raise_limit(connections + 1024)?;
    let began = Instant::now();
    let mut streams = Vec::new();
    for number in 0..connections {
        let stream = TcpStream::connect(address)
            .with_context(|| format!("cannot open connection {number} to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        streams.push(stream);
        interrupt::check()?;
    }
    let opening_seconds = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let mut exchanged = 0;
    for round in 0..rounds {
        for (number, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&message(number, round))?;
        }
        for (number, stream) in streams.iter_mut().enumerate() {
            let mut back = [0; MESSAGE_LEN];
            stream
                .read_exact(&mut back)
                .with_context(|| format!("connection {number}, message {round}"))?;
            if back != message(number, round) {
                bail!("connection {number} sent back something else in round {round}");
            }
            exchanged += 1;
        }
        interrupt::check()?;
    }
    let seconds = began.elapsed().as_secs_f64();
    std::fs::write(ready, "").with_context(|| format!("cannot write {}", ready.display()))?;
    interrupt::wait();
    Ok(Report {
        held: streams.len() as u64,
        exchanged,
        exchanges_per_second: exchanged as f64 / seconds.max(1e-9),
        opening_seconds,
    })
}

/// No two messages are alike.
fn message(connection: usize, round: u64) -> [u8; MESSAGE_LEN] {
    let mut bytes = [0; MESSAGE_LEN];
    bytes[..8].copy_from_slice(&(connection as u64).to_be_bytes());
    bytes[8..16].copy_from_slice(&round.to_be_bytes());
    bytes
}
