//! One TCP stream at full speed; the receiver checks every byte: the two programs of `segment-tcp`.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::interrupt;

/// The stream repeats after this many bytes, which is no multiple of any segment's or buffer's size.
const PERIOD: usize = 61_441;
/// Bytes of one call.
const CALL_LEN: usize = 128 << 10;
/// How long the receiver may take to read what is in flight when the sender stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// What one end saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Stream {
    /// Bytes sent, or received as they were sent.
    pub(super) bytes: u64,
    /// From the connection to the last byte.
    pub(super) seconds: f64,
}

/// What is sent, from every place in the period one call long.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let period: Vec<u8> = (0..PERIOD).map(|_| byte()).collect();
    period.iter().copied().cycle().take(length).collect()
}

/// Takes one connection on `address` and compares what comes.
pub(super) fn receive(address: SocketAddr) -> Result<Stream> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    let (mut peer, _) = listener.accept().context("no sender connected")?;
    let (expected, mut buffer) = (pattern(PERIOD + CALL_LEN), vec![0; CALL_LEN]);
    let start = Instant::now();
    let mut bytes = 0;
    loop {
        let length = peer.read(&mut buffer).context("the stream broke off")?;
        if length == 0 {
            break;
        }
        let place = (bytes % PERIOD as u64) as usize;
        ensure!(
            buffer[..length] == expected[place..place + length],
            "the stream is not what was sent, in the {length} bytes from {bytes} on"
        );
        bytes += length as u64;
    }
    Ok(Stream { bytes, seconds: start.elapsed().as_secs_f64() })
}

/// Connects to `address`, sends for `time`, and waits until the other end has read everything.
pub(super) fn send(address: SocketAddr, time: Duration) -> Result<Stream> {
    let mut peer = connect(address)?;
    let source = pattern(PERIOD + CALL_LEN);
    let start = Instant::now();
    let mut bytes = 0u64;
    while start.elapsed() < time {
        interrupt::check()?;
        let place = (bytes % PERIOD as u64) as usize;
        peer.write_all(&source[place..place + CALL_LEN]).context("the stream broke off")?;
        bytes += CALL_LEN as u64;
    }
    peer.shutdown(Shutdown::Write)?;
    peer.set_read_timeout(Some(DRAIN_TIMEOUT))?;
    // The other end closes when it has read everything.
    let left = peer.read(&mut [0]).context("the other end did not read everything in time")?;
    ensure!(left == 0, "the other end sent something");
    Ok(Stream { bytes, seconds: start.elapsed().as_secs_f64() })
}

/// The other end may still be starting.
fn connect(address: SocketAddr) -> Result<TcpStream> {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        match TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
            Ok(peer) => return Ok(peer),
            Err(error) if Instant::now() > end => {
                bail!("cannot connect to {address}: {error}")
            }
            Err(_) => interrupt::sleep(Duration::from_millis(10))?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free_address() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    #[test]
    fn what_is_sent_is_what_arrives() {
        let address = free_address();
        let receiver = std::thread::spawn(move || receive(address));
        let sent = send(address, Duration::from_millis(50)).unwrap();
        let received = receiver.join().unwrap().unwrap();
        assert!(sent.bytes > 0 && sent.bytes == received.bytes);
    }

    #[test]
    fn a_byte_that_was_changed_is_noticed() {
        let address = free_address();
        let receiver = std::thread::spawn(move || receive(address));
        let mut peer = connect(address).unwrap();
        let mut bytes = pattern(CALL_LEN);
        bytes[CALL_LEN - 1] ^= 1;
        peer.write_all(&bytes).unwrap();
        drop(peer);
        let error = receiver.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("not what was sent"), "{error:#}");
    }
}
