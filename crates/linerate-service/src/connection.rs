//! What clients can take of the process: a number of connections, each for a time.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};

/// Connections that are open at once; fewer where the process may open few files. Others wait in the kernel's queue,
/// where they cost the process no descriptor.
pub(crate) const MAX_CONNECTIONS: usize = 32;
/// How long a client may take for its first request. Each byte of it does not extend that.
const MAX_REQUEST: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
/// How long after a part of a response it must have read the next, or sent another request; longer than most intervals
/// of scrapes.
const MAX_IDLE: Duration = Duration::from_secs(30);
/// Replaces both while no permit is free.
const MAX_IDLE_WHEN_FULL: Duration = Duration::from_secs(1);
/// How long a connection may last, so that slow clients make way, too.
const MAX_AGE: Duration = Duration::from_secs(120);

/// A listener whose connections are limited.
pub(crate) struct LimitedListener {
    listener: TcpListener,
    free: Arc<Semaphore>,
}

impl LimitedListener {
    pub(crate) fn new(listener: TcpListener) -> Self {
        // Most descriptors are for files and sockets of the verb, which may serve metrics and a page.
        let limit = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize);
        let connections = (limit / 8).clamp(1, MAX_CONNECTIONS);
        Self { listener, free: Arc::new(Semaphore::new(connections)) }
    }

    /// The next connection, once the limit allows one.
    pub(crate) async fn accept(&mut self) -> Connection {
        const NEVER_CLOSED: &str = "the semaphore is never closed";
        // Not taken yet: it is free until a client comes, and nobody else takes one.
        drop(self.free.acquire().await.expect(NEVER_CLOSED));
        let (stream, _) = Listener::accept(&mut self.listener).await;
        let free = Arc::clone(&self.free);
        let permit = Arc::clone(&free).acquire_owned().await.expect(NEVER_CLOSED);
        let now = Instant::now();
        let check = Box::pin(sleep_until(now + MAX_IDLE_WHEN_FULL));
        let (max_idle, end) = (MAX_REQUEST, now + MAX_AGE);
        Connection { stream, last_write: now, max_idle, check, end, free, _permit: permit }
    }
}

/// A connection that fails when it was idle, or open, for too long.
pub(crate) struct Connection {
    stream: TcpStream,
    last_write: Instant,
    /// How long at most nothing may be written.
    max_idle: Duration,
    /// When to check the limits again.
    check: Pin<Box<Sleep>>,
    end: Instant,
    free: Arc<Semaphore>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    /// Does `poll`, unless the time is over.
    fn within_time<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        while self.check.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            let is_full = self.free.available_permits() == 0;
            let max_idle = if is_full { MAX_IDLE_WHEN_FULL } else { self.max_idle };
            let end = (self.last_write + max_idle).min(self.end);
            if now >= end {
                return Poll::Ready(Err(ErrorKind::TimedOut.into()));
            }
            self.check.as_mut().reset(end.min(now + MAX_IDLE_WHEN_FULL));
        }
        poll(Pin::new(&mut self.stream), context)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.within_time(context, |stream, context| stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written =
            ready!(self.within_time(context, |stream, context| stream.poll_write(context, bytes)));
        (self.last_write, self.max_idle) = (Instant::now(), MAX_IDLE);
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
