//! A [`Socket`] beneath quinn (feature `quinn`).

use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use quinn::udp::{self, EcnCodepoint, RecvMeta, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::asynchronous::register;
use crate::backend::Backend;
use crate::options::{MtuDiscovery, Options};
use crate::outgoing::MAX_SEGMENTS;
use crate::receiver::Receiver;
use crate::transmit::Transmit;
use crate::transmitter::Transmitter;
use crate::{Batch, Error, Message, Metadata, Result, Socket, socket};

impl Socket {
    /// A socket for [`quinn::Endpoint::new_with_abstract_socket`]; in the context of a tokio runtime that has its I/O
    /// driver.
    ///
    /// The kernel copies messages to quinn's own buffers with the backends of the stock socket (`recvmmsg`, `gro`,
    /// `uring`), as quinn does without this. Buffers of io_uring would need one copy more, and quinn lends
    /// its own for a call only: so a socket of `uring` receives as one of `recvmmsg`. `xdp` copies from its rings, past
    /// the stack. ICMP errors and transmit timestamps are not collected, as quinn cannot ask for them. Datagrams have
    /// DF, as QUIC needs, unless [`crate::SendOptions::mtu_discovery`] says otherwise.
    ///
    /// # Errors
    /// As [`Receiver::open`].
    pub fn open_for_quinn(mut options: Options) -> Result<Arc<dyn AsyncUdpSocket>> {
        let timestamp = options.metadata.timestamp;
        options.metadata = Metadata { timestamp, ..Metadata::ALL };
        if options.backend == Some(Backend::Uring) {
            crate::probe(Backend::Uring, None)
                .map_err(|reason| Error::BackendUnavailable { backend: Backend::Uring, reason })?;
            options.backend = Some(Backend::Recvmmsg);
        }
        options.icmp_errors = false;
        (options.send.timestamps, options.send.transmit_clock) = (false, None);
        let discovery = *options.send.mtu_discovery.get_or_insert(MtuDiscovery::Probe);
        let Self { mut receiver, transmitter } = Self::open(options)?;
        let direct = match receiver.backend() {
            Backend::Recvmmsg | Backend::Gro => {
                if receiver.address().is_ipv6() {
                    socket::disable_ipv4_info(receiver.socket());
                }
                let state = UdpSocketState::new((&receiver.socket()).into());
                Some(state.map_err(|error| Error::system("prepare a socket for quinn", error))?)
            }
            Backend::Uring | Backend::Xdp => None,
        };
        Ok(Arc::new(QuinnSocket {
            readable: register(receiver.edge_triggered_fd(), Interest::READABLE)?,
            writable: register(transmitter.as_fd(), Interest::WRITABLE)?,
            address: receiver.address(),
            may_fragment: matches!(discovery, MtuDiscovery::Off | MtuDiscovery::Fragment),
            receiver: Mutex::new(Reader { receiver, poll_again: false }),
            transmitter: Mutex::new(transmitter),
            direct,
        }))
    }
}

#[derive(Debug)]
struct QuinnSocket {
    readable: AsyncFd<OwnedFd>,
    writable: AsyncFd<OwnedFd>,
    // Quinn receives in one task and sends in many. A lock is taken once a batch or super-datagram, and not a message.
    receiver: Mutex<Reader>,
    transmitter: Mutex<Transmitter>,
    /// Receives from the socket into quinn's buffers, where the messages are in the socket.
    direct: Option<UdpSocketState>,
    address: SocketAddr,
    may_fragment: bool,
}

#[derive(Debug)]
struct Reader {
    receiver: Receiver,
    /// Messages were received since the rings were polled in vain.
    poll_again: bool,
}

impl QuinnSocket {
    /// As [`UdpSocketState::recv`]; `None` to poll again when the tasks have run that the messages have woken.
    fn receive(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> io::Result<Option<usize>> {
        let mut reader = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        let Reader { receiver, poll_again } = &mut *reader;
        if let Some(direct) = &self.direct {
            return direct.recv((&receiver.socket()).into(), bufs, meta).map(Some);
        }
        let room = bufs.len().min(meta.len());
        let mut used = 0;
        // All frames of a batch of xdp may have had wrong checksums; more may wait then.
        while used == 0 {
            // As NAPI polls once more before it enables interrupts: while connections use what was received, more
            // arrives. A wake-up for it would cost the core that receives as much as about ten messages.
            if *poll_again && receiver.is_drained() {
                *poll_again = false;
                return Ok(None);
            }
            let found = match receiver.try_fill() {
                Ok(Some(found)) => found,
                // Only now the next message wakes the endpoint.
                Ok(None) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(error) => return Err(io::Error::other(error)),
            };
            used = fill(receiver.batch(found), &mut bufs[..room], meta);
            if self.address.is_ipv6() {
                meta[..used].iter_mut().for_each(|meta| meta.addr = mapped(meta.addr));
            }
        }
        *poll_again = true;
        Ok(Some(used))
    }

    fn send(&self, transmit: &udp::Transmit<'_>) -> io::Result<()> {
        let udp::Transmit { destination, ecn, contents, segment_size, src_ip } = *transmit;
        let traffic_class = ecn.map(|ecn| ecn as u8);
        let transmit = Transmit {
            source: src_ip,
            traffic_class,
            segment_size,
            ..Transmit::new(destination, contents)
        };
        let mut transmitter = self.transmitter.lock().unwrap_or_else(PoisonError::into_inner);
        match transmitter.try_send(&[transmit]).map_err(io::Error::other)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    }
}

/// Copies messages to buffers, once; the number of buffers that were used.
fn fill(mut batch: Batch<'_>, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> usize {
    let mut used = 0;
    // While a buffer is free: a message that was lent needs a place.
    while used < bufs.len()
        && let Some(message) = batch.next()
    {
        if used > 0 && join(&mut bufs[used - 1], &mut meta[used - 1], &message) {
            continue;
        }
        let buf = &mut bufs[used];
        let len = message.payload.len().min(buf.len());
        buf[..len].copy_from_slice(&message.payload[..len]);
        meta[used] = described(&message, len);
        used += 1;
    }
    used
}

/// IPv4 senders as quinn knows them on an IPv6 socket: it compares them with the IPv4-mapped address that it sends to.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        v6 => v6,
    }
}

fn described(message: &Message<'_>, len: usize) -> RecvMeta {
    RecvMeta {
        addr: message.source,
        len,
        stride: len,
        ecn: message.traffic_class.and_then(EcnCodepoint::from_bits),
        dst_ip: message.reply(&[]).source,
    }
}

/// Puts a message behind others of one size that came the same way, as GRO does; only the last may be shorter.
fn join(buf: &mut IoSliceMut<'_>, meta: &mut RecvMeta, message: &Message<'_>) -> bool {
    let len = message.payload.len();
    let next = described(message, len);
    let is_same = (meta.addr, meta.dst_ip, meta.ecn) == (next.addr, next.dst_ip, next.ecn);
    let fits = len > 0
        && len <= meta.stride
        && meta.len.is_multiple_of(meta.stride)
        && meta.len / meta.stride < MAX_SEGMENTS
        && meta.len + len <= buf.len();
    if is_same && fits {
        buf[meta.len..meta.len + len].copy_from_slice(message.payload);
        meta.len += len;
    }
    is_same && fits
}

impl AsyncUdpSocket for QuinnSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller { socket: self, waiting: None })
    }

    fn try_send(&self, transmit: &udp::Transmit<'_>) -> io::Result<()> {
        self.writable.try_io(Interest::WRITABLE, |_| self.send(transmit))
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.readable.poll_read_ready(cx))?;
            match ready.try_io(|_| self.receive(bufs, meta)) {
                Ok(Ok(Some(received))) => return Poll::Ready(Ok(received)),
                Ok(Ok(None)) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn max_transmit_segments(&self) -> usize {
        MAX_SEGMENTS
    }

    fn max_receive_segments(&self) -> usize {
        self.direct.as_ref().map_or(MAX_SEGMENTS, UdpSocketState::gro_segments)
    }

    fn may_fragment(&self) -> bool {
        self.may_fragment
    }
}

/// Waits for one task until the socket has room.
struct Poller {
    socket: Arc<QuinnSocket>,
    /// Allocated only when the socket had no room.
    waiting: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>>,
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = Arc::clone(&self.socket);
        let waiting = self.waiting.get_or_insert_with(|| {
            Box::pin(async move { socket.writable.writable().await.map(drop) })
        });
        let answer = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(answer)
    }
}
