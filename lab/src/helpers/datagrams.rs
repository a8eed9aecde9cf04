//! UDP datagrams as fast as the other end takes them, every one compared and counted where it arrives:
//! the two programs of `segment-udp`.
//!
//! The receiver says from time to time how far it has come, and the sender keeps no more than a window
//! in flight, as every bulk protocol over UDP does: without that, most of the sender's share of the CPU
//! would go into datagrams that the next queue drops.

use std::io::{ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::socket::sockopt::{RcvBufForce, UdpGroSegment, UdpGsoSegment};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};
use serde::{Deserialize, Serialize};

use crate::helpers::stream::pattern;
use crate::interrupt;

/// Bytes in flight at most. As frames of 1500 bytes they fit into the ring of a veth (256), so that
/// nothing need be lost.
const WINDOW: u64 = 256 << 10;
/// The receiver acknowledges whenever so much has arrived.
const ACK_INTERVAL: u64 = WINDOW / 4;
/// After so long without an acknowledgement, what is in flight counts as lost.
const ACK_TIMEOUT: Duration = Duration::from_millis(20);
/// The number of a datagram that ends the stream.
const END_NUMBER: u64 = u64::MAX;
/// The longest datagram, and the longest row of them that GRO makes.
const MAX_DATAGRAM: usize = 65_535;
/// The most bytes of one call that the kernel splits (`UDP_SEGMENT`), and the most datagrams.
const MAX_CALL: usize = 65_507;
const MAX_SEGMENTS: usize = 64;

/// What one end saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Datagrams {
    /// Datagrams sent, or received as they were sent.
    pub(super) datagrams: u64,
    /// Bytes of their payload.
    pub(super) bytes: u64,
    /// From the first to the last.
    pub(super) seconds: f64,
    /// Sender: how often it counted the datagrams in flight as lost.
    #[serde(default)]
    pub(super) timeouts: u64,
}

/// Takes datagrams on `address` until one ends the stream.
pub(super) fn receive(address: SocketAddr) -> Result<Datagrams> {
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind {address}"))?;
    // The window, as the kernel counts it: each frame with the room around it.
    setsockopt(&socket, RcvBufForce, &(16 * WINDOW as usize))
        .context("cannot set SO_RCVBUFFORCE (CAP_NET_ADMIN)")?;
    setsockopt(&socket, UdpGroSegment, &true).context("cannot set UDP_GRO")?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    let (expected, mut buffer) = (pattern(MAX_DATAGRAM), vec![0; MAX_DATAGRAM]);
    let mut control = nix::cmsg_space!(i32);
    let mut seen = Datagrams::default();
    let (mut first, mut last, mut reported) = (None, Instant::now(), 0);
    loop {
        let (length, size, from) = {
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let fd = socket.as_raw_fd();
            let flags = MsgFlags::empty();
            let message =
                match recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), flags) {
                    Ok(message) => message,
                    Err(nix::Error::EAGAIN) => bail!("no datagram for 20 s, and no end"),
                    Err(nix::Error::EINTR) => {
                        interrupt::check()?;
                        continue;
                    }
                    Err(errno) => return Err(errno).context("cannot receive"),
                };
            let size = message.cmsgs()?.find_map(|one| match one {
                ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
                _ => None,
            });
            let from = message.address.context("a datagram without a sender")?;
            (message.bytes, size.unwrap_or(message.bytes).max(1), from)
        };
        if first.is_none() {
            // The ends of the socket are known now; what is said goes back.
            let from = from.as_sockaddr_in().context("not IPv4")?;
            socket.connect(std::net::SocketAddrV4::new(from.ip(), from.port()))?;
            first = Some(Instant::now());
        }
        for datagram in buffer[..length].chunks(size) {
            let (number, rest) = numbered(datagram)?;
            if number == END_NUMBER {
                socket.send(&seen.bytes.to_le_bytes())?;
                let start = first.unwrap_or(last);
                seen.seconds = last.duration_since(start).as_secs_f64();
                return Ok(seen);
            }
            ensure!(rest == &expected[8..datagram.len()], "datagram {number} is not what was sent");
            seen.datagrams += 1;
            seen.bytes += datagram.len() as u64;
            // Everything before it is here or lost.
            let so_far = number + datagram.len() as u64;
            if so_far >= reported + ACK_INTERVAL {
                reported = so_far;
                socket.send(&so_far.to_le_bytes())?;
            }
        }
        last = Instant::now();
    }
}

/// Sends datagrams of `payload` bytes to `address` for `time`; `split` has the kernel make them of one
/// large buffer (`UDP_SEGMENT`, udp(7)).
pub(super) fn send(
    address: SocketAddr,
    payload: usize,
    split: bool,
    time: Duration,
) -> Result<Datagrams> {
    ensure!(
        (8..=MAX_CALL).contains(&payload),
        "a datagram has 8 to {MAX_CALL} bytes, not {payload}"
    );
    let socket = UdpSocket::bind("0.0.0.0:0").context("cannot make a socket")?;
    socket.connect(address).with_context(|| format!("cannot connect to {address}"))?;
    let count = if split { (MAX_CALL / payload).clamp(1, MAX_SEGMENTS) } else { 1 };
    if split {
        let size = i32::try_from(payload)?;
        setsockopt(&socket, UdpGsoSegment, &size).context("cannot set UDP_SEGMENT")?;
    }
    let mut buffer = pattern(payload).repeat(count);
    let mut sent = Datagrams::default();
    // A datagram's number is the count of bytes before it.
    let (mut numbers, mut taken) = (0, 0);
    socket.set_read_timeout(Some(ACK_TIMEOUT))?;
    let start = Instant::now();
    while start.elapsed() < time {
        interrupt::check()?;
        while numbers - taken + buffer.len() as u64 <= WINDOW {
            for datagram in buffer.chunks_mut(payload) {
                datagram[..8].copy_from_slice(&numbers.to_le_bytes());
                numbers += payload as u64;
            }
            socket.send(&buffer).context("the kernel does not send")?;
            sent.datagrams += count as u64;
            sent.bytes += buffer.len() as u64;
        }
        match answer(&socket)? {
            Some(so_far) => taken = so_far.max(taken),
            None => {
                sent.timeouts += 1;
                taken = numbers;
            }
        }
    }
    sent.seconds = start.elapsed().as_secs_f64();
    if split {
        setsockopt(&socket, UdpGsoSegment, &0).context("cannot clear UDP_SEGMENT")?;
    }
    finish(&socket)?;
    Ok(sent)
}

/// Waits until what is in flight has arrived or is lost, then ends the stream; repeats that if it is lost.
fn finish(socket: &UdpSocket) -> Result<()> {
    socket.set_read_timeout(Some(5 * ACK_TIMEOUT))?;
    while answer(socket)?.is_some() {}
    for _ in 0..20 {
        socket.send(&END_NUMBER.to_le_bytes())?;
        if answer(socket)?.is_some() {
            return Ok(());
        }
    }
    bail!("the other end does not answer")
}

/// Reads the peer's next acknowledgement; `None` on timeout.
fn answer(socket: &UdpSocket) -> Result<Option<u64>> {
    let mut bytes = [0; 8];
    match socket.recv(&mut bytes) {
        Ok(8) => Ok(Some(u64::from_le_bytes(bytes))),
        Ok(length) => bail!("the other end said {length} bytes"),
        // An answer of the far kernel: its program is not there yet.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            bail!("no program receives datagrams there")
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(None)
        }
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error).context("cannot receive"),
    }
}

fn numbered(datagram: &[u8]) -> Result<(u64, &[u8])> {
    let (number, rest) =
        datagram.split_first_chunk::<8>().context("a datagram without a number arrived")?;
    Ok((u64::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(payload: usize, split: bool) -> (Datagrams, Datagrams) {
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let receiver = std::thread::spawn(move || receive(address));
        std::thread::sleep(Duration::from_millis(100));
        let sent = send(address, payload, split, Duration::from_millis(50)).unwrap();
        (sent, receiver.join().unwrap().unwrap())
    }

    #[test]
    fn what_is_sent_is_what_arrives_split_by_the_kernel_or_not() {
        linerate_testkit::root_or_skip!();
        for (payload, split) in [(1472, false), (1472, true), (60_000, false)] {
            let (sent, received) = both(payload, split);
            assert!(sent.datagrams > 0, "{payload} {split}");
            let counts = |seen: Datagrams| (seen.datagrams, seen.bytes);
            assert_eq!(counts(sent), counts(received), "{payload} {split}");
        }
    }
}
