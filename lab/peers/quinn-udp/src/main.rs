//! quinn-udp as the lab's peer: receives and counts messages as its users do, by a socket that does not block,
//! asked whenever it is readable, for `BATCH_SIZE` datagrams with as much in each as GRO joins.
//!
//! `peer-quinn-udp ADDRESS:PORT` ends when nothing has come for half a second after the first message, and
//! prints {"messages": N, "bytes": N}.

use std::io::{ErrorKind, IoSliceMut, Result};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};

const QUIET: Duration = Duration::from_millis(500);
/// As large as the default of `linerate receive`.
static BUFFER: i32 = 8 << 20;

fn main() -> Result<()> {
    let address = std::env::args().nth(1).expect("peer-quinn-udp ADDRESS:PORT");
    let socket = UdpSocket::bind(address)?;
    let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
    enlarge(&socket);
    let mut buffers = vec![vec![0u8; 65_536]; BATCH_SIZE];
    let mut meta = [RecvMeta::default(); BATCH_SIZE];
    let (mut messages, mut bytes, mut last) = (0u64, 0u64, Instant::now());
    let mut slices: Vec<_> = buffers.iter_mut().map(|one| IoSliceMut::new(one)).collect();
    loop {
        match state.recv(UdpSockRef::from(&socket), &mut slices, &mut meta) {
            Ok(count) => {
                for meta in &meta[..count] {
                    messages += meta.len.div_ceil(meta.stride.max(1)).max(1) as u64;
                    bytes += meta.len as u64;
                }
                last = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if messages > 0 && last.elapsed() > QUIET {
                    break;
                }
                wait(&socket);
            }
            Err(error) => return Err(error),
        }
    }
    println!("{{\"messages\": {messages}, \"bytes\": {bytes}}}");
    Ok(())
}

/// Past `net.core.rmem_max`, as ours is, where the process may.
fn enlarge(socket: &UdpSocket) {
    let (level, option, value) = (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &raw const BUFFER);
    // SAFETY: an integer of the length that is said.
    unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, value.cast(), size_of::<i32>() as u32)
    };
}

/// Until there is something to read, or a while is over.
fn wait(socket: &UdpSocket) {
    let mut entry = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, ours.
    unsafe { libc::poll(&mut entry, 1, (QUIET / 5).as_millis() as i32) };
}
