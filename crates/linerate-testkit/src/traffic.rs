//! Traffic between two namespaces, compared byte by byte.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Namespace, Random, TIMEOUT};

/// Sends `bytes` bytes by TCP from one namespace to `address` in another one, and compares what arrives.
/// Calls `meanwhile` when half of them are sent.
///
/// # Panics
/// Where it takes longer than [`TIMEOUT`], or other bytes arrive.
#[track_caller]
pub fn send_tcp(
    from: &Namespace,
    to: &Namespace,
    address: SocketAddr,
    bytes: usize,
    meanwhile: impl FnOnce(),
) {
    let listener = to.run(|| bound(address, || TcpListener::bind(address))).expect("entered");
    let sent = Random::new(bytes as u64).bytes(bytes);
    // Connects before the other thread waits in accept(): an unreachable address is an error, not a hang.
    let connect = || TcpStream::connect_timeout(&address, TIMEOUT);
    let stream = from.run(connect).expect("entered");
    let mut stream = stream.unwrap_or_else(|error| panic!("connect to {address}: {error}"));
    let arrived = thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
            let mut arrived = Vec::new();
            stream.read_to_end(&mut arrived).expect("the whole stream");
            arrived
        });
        stream.set_write_timeout(Some(TIMEOUT)).expect("a timeout");
        let (first, second) = sent.split_at(bytes / 2);
        stream.write_all(first).expect("sent");
        meanwhile();
        stream.write_all(second).expect("sent");
        drop(stream);
        reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    assert_eq!(arrived.len(), sent.len(), "bytes that arrived at {address}");
    assert!(arrived == sent, "other bytes arrived at {address} than were sent");
}

/// A UDP socket on this address. Waits for a port that was closed just now.
///
/// # Panics
/// Where the address cannot be bound to.
#[track_caller]
pub fn bind_udp(address: SocketAddr) -> UdpSocket {
    bound(address, || UdpSocket::bind(address))
}

/// What `bind` makes. A process that another thread starts holds this one's sockets until it is another program: a
/// port that was closed just now may be taken for that long.
#[track_caller]
fn bound<T>(address: SocketAddr, bind: impl Fn() -> io::Result<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    loop {
        match bind() {
            Ok(socket) => return socket,
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < end => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{address}: {error}"),
        }
    }
}
