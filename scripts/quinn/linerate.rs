//! Put into quinn's own source by `scripts/test-quinn`: its tokio runtime wraps UDP sockets with Linerate.
//!
//! Linerate implements the trait of the quinn that is published, and this copy has a trait of its own, so each call is
//! handed on. The types of quinn-udp in between are the same.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{AsyncUdpSocket, UdpPoller};

/// Receives by the backend `LINERATE_BACKEND`, and sends by `LINERATE_SEND_BACKEND`.
pub(super) fn wrap(socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
    let word = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    if word("LINERATE_BACKEND") == "xdp" {
        return super::wire::wrap(socket);
    }
    let backend = word("LINERATE_SEND_BACKEND").parse().expect("a send backend");
    let options = linerate_udp::Options {
        backend: Some(word("LINERATE_BACKEND").parse().expect("a backend")),
        send: linerate_udp::SendOptions { backend, ..Default::default() },
        ..linerate_udp::Options::from_socket(socket).map_err(io::Error::other)?
    };
    let inner = linerate_udp::Socket::open_for_quinn(options).map_err(io::Error::other)?;
    Ok(Arc::new(Bridge(inner)))
}

#[derive(Debug)]
struct Bridge(Arc<dyn published::AsyncUdpSocket>);

#[derive(Debug)]
struct Poller(Pin<Box<dyn published::UdpPoller>>);

impl AsyncUdpSocket for Bridge {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller(Arc::clone(&self.0).create_io_poller()))
    }

    fn try_send(&self, transmit: &udp::Transmit<'_>) -> io::Result<()> {
        self.0.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [udp::RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.0.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.0.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.0.may_fragment()
    }
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_writable(cx)
    }
}
