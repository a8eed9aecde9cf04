//! quinn-udp as the lab's peer: receives and counts messages, in the way of its own benchmark.
//!
//! `peer-quinn-udp ADDRESS:PORT` ends when nothing has come for half a second after the first message, and
//! prints {"messages": N, "bytes": N}.

use std::io::{IoSliceMut, Result};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};

const QUIET: Duration = Duration::from_millis(500);

fn main() -> Result<()> {
    let address = std::env::args().nth(1).expect("peer-quinn-udp ADDRESS:PORT");
    let socket = UdpSocket::bind(address)?;
    let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
    // As large as the others' where the system allows it.
    let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), 8 << 20);
    // It sets the socket to non-blocking; here it waits for what comes.
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(QUIET / 5))?;
    let mut buffers = vec![[0u8; 65_536]; BATCH_SIZE];
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
            Err(_) if messages > 0 && last.elapsed() > QUIET => break,
            Err(_) => {}
        }
    }
    println!("{{\"messages\": {messages}, \"bytes\": {bytes}}}");
    Ok(())
}
