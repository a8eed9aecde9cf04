//! [`Requests`]: asks the request server of a feed for missing messages, and takes its answers.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use linerate_feed::moldudp64::{MoldUdp64, request};
use linerate_feed::{Feed, Line, RequestStatistics, Requester};
use linerate_udp::{Backend, Options, Result, Socket, Transmit};

/// How long a reader of a feed with gaps may wait.
pub(super) const MAX_WAIT_WITH_GAPS: Duration = Duration::from_millis(5);

/// A socket of its own: the port of the feed may be bound to a group, which nothing can be sent from.
#[derive(Debug)]
pub(super) struct Requests {
    socket: Socket,
    server: SocketAddr,
    requester: Requester,
}

impl Requests {
    pub(super) fn open(server: SocketAddr) -> Result<Self> {
        let any = match server {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket =
            Socket::open(Options { backend: Some(Backend::Recvmmsg), ..Options::new(any) })?;
        Ok(Self { socket, server, requester: Requester::new() })
    }

    /// Takes the answers that have arrived, and makes the next request. Returns the number of answers.
    pub(super) fn exchange(&mut self, feed: &mut Feed<MoldUdp64>) -> Result<u64> {
        let mut answers = 0;
        let mut batch = self.socket.receiver.try_receive()?;
        while let Some(answer) = batch.next() {
            // Anybody can send to the port.
            if answer.source == self.server {
                feed.process(Line::Retransmission, answer.payload, |_| {});
                answers += 1;
            }
        }
        drop(batch);
        if let Some(gap) = self.requester.next(feed, Instant::now()) {
            let packet = request(feed.session(), gap);
            self.socket.transmitter.send(&[Transmit::new(self.server, &packet)])?;
        }
        Ok(answers)
    }

    pub(super) fn statistics(&self) -> RequestStatistics {
        self.requester.statistics()
    }
}

impl AsFd for Requests {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.receiver.as_fd()
    }
}
