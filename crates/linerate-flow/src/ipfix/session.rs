//! The socket to a collector: connects, sends whole messages, connects again.

use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::Error;
use super::message::MIN_MESSAGE_LEN;
use super::target::{Target, Transport};
use super::tls::{TlsSettings, TlsStream};

/// Bytes of IP and UDP headers, with IPv6.
const UDP_OVERHEAD: usize = 40 + 8;
/// The longest datagram: the MTU of loopback and of jumbo frames does not hold on the whole path.
const MAX_PATH_MTU: usize = 1500;
/// The longest message in a stream.
const MAX_STREAM_MESSAGE_LEN: usize = 16 << 10;
/// How long a collector may take to accept a connection, or to read.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Messages of one burst over UDP, and the time between two bursts: about 100,000 records a second.
const BURST_MESSAGES: u32 = 8;
const BURST_INTERVAL: Duration = Duration::from_millis(1);
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The outcome of sending a message.
pub(super) enum SendOutcome {
    /// It was sent.
    Sent {
        /// The collector's host refused an earlier message, with this error.
        refused: Option<io::Error>,
    },
    /// It was not sent; the connection is down.
    Failed(io::Error),
}

/// The session with a collector.
pub(super) struct Session {
    target: Target,
    /// With TLS.
    tls: Option<TlsSettings>,
    socket: Option<Socket>,
    /// When the next attempt to connect is due, and how long it is after the last one.
    retry: Option<(Instant, Duration)>,
    /// When the burst of datagrams began, and how many were sent.
    burst: (Instant, u32),
}

enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
}

impl Socket {
    /// Whether the collector has closed the connection, as far as it is known.
    fn is_closed(&mut self) -> bool {
        match self {
            Self::Udp(_) => false,
            Self::Tcp(stream) => is_closed(stream),
            Self::Tls(stream) => stream.is_closed(),
        }
    }
}

impl Session {
    /// A session that is not connected yet.
    ///
    /// # Errors
    ///
    /// [`Error::Tls`].
    pub(super) fn new(target: Target) -> Result<Self, Error> {
        let tls = match &target.transport {
            Transport::Tls(files) => Some(TlsSettings::read(&target, files)?),
            Transport::Udp | Transport::Tcp => None,
        };
        Ok(Self { target, tls, socket: None, retry: None, burst: (Instant::now(), 0) })
    }

    pub(super) fn is_stream(&self) -> bool {
        self.target.transport != Transport::Udp
    }

    /// The time until the next attempt to connect is due; zero when connected.
    pub(super) fn wait(&self) -> Duration {
        match (&self.socket, self.retry) {
            (None, Some((at, _))) => at.saturating_duration_since(Instant::now()),
            _ => Duration::ZERO,
        }
    }

    /// Connects, unless connected. `Ok(true)` says that the session is new.
    pub(super) fn connect(&mut self) -> io::Result<bool> {
        if self.socket.as_mut().is_some_and(Socket::is_closed) {
            self.socket = None;
        }
        if self.socket.is_some() {
            return Ok(false);
        }
        match self.open() {
            Ok(socket) => {
                (self.socket, self.retry) = (Some(socket), None);
                Ok(true)
            }
            Err(error) => {
                let before = self.retry.map_or(Duration::ZERO, |(_, pause)| pause);
                let pause = (before * 2).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
                self.retry = Some((Instant::now() + pause, pause));
                Err(error)
            }
        }
    }

    fn open(&self) -> io::Result<Socket> {
        let address = self.target.resolve()?;
        let connect = || {
            let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
            stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
            stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
            stream.set_nodelay(true)?;
            Ok::<_, io::Error>(stream)
        };
        Ok(match &self.tls {
            Some(tls) => Socket::Tls(Box::new(tls.connect(connect()?)?)),
            None if self.is_stream() => Socket::Tcp(connect()?),
            None => {
                let any: SocketAddr = match address {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                Socket::Udp(socket)
            }
        })
    }

    /// The longest message that this session sends in one piece.
    pub(super) fn max_message_len(&self) -> usize {
        match &self.socket {
            Some(Socket::Udp(socket)) => {
                let mtu = sockopt::ip_mtu(socket).or_else(|_| sockopt::ipv6_mtu(socket));
                let mtu = mtu.map_or(MIN_MESSAGE_LEN, |mtu| mtu as usize);
                mtu.min(MAX_PATH_MTU).saturating_sub(UDP_OVERHEAD).max(MIN_MESSAGE_LEN)
            }
            _ => MAX_STREAM_MESSAGE_LEN,
        }
    }

    pub(super) fn send(&mut self, message: &[u8]) -> SendOutcome {
        let mut refused = None;
        // A message would be lost in a connection that the collector has closed.
        let is_closed = self.socket.as_mut().is_some_and(Socket::is_closed);
        let sent = match &mut self.socket {
            Some(_) if is_closed => Err(ErrorKind::ConnectionAborted.into()),
            None => Err(ErrorKind::NotConnected.into()),
            Some(Socket::Udp(socket)) => {
                pace(&mut self.burst);
                match socket.send(message) {
                    // The error of an earlier datagram: port unreachable, or what a firewall answered. Another error
                    // comes again.
                    Err(error) => {
                        let sent = socket.send(message);
                        refused = sent.is_ok().then_some(error);
                        sent
                    }
                    sent => sent,
                }
                .map(drop)
            }
            Some(Socket::Tcp(stream)) => stream.write_all(message),
            Some(Socket::Tls(stream)) => stream.write_all(message),
        };
        match sent {
            Ok(()) => SendOutcome::Sent { refused },
            Err(error) => {
                if self.is_stream() {
                    // A part of the message may have left: the stream cannot go on.
                    self.socket = None;
                }
                SendOutcome::Failed(error)
            }
        }
    }
}

/// Waits until another datagram may be sent.
fn pace((began, count): &mut (Instant, u32)) {
    let passed = began.elapsed();
    if passed >= BURST_INTERVAL {
        (*began, *count) = (Instant::now(), 0);
    } else if *count >= BURST_MESSAGES {
        std::thread::sleep(BURST_INTERVAL - passed);
        (*began, *count) = (Instant::now(), 0);
    }
    *count += 1;
}

/// Whether the collector has closed the connection. It never sends anything.
fn is_closed(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let closed = match stream.peek(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    };
    closed || stream.set_nonblocking(false).is_err()
}
