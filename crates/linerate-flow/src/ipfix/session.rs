//! The socket to a collector: connects, sends whole messages, connects again.

use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use linerate_net::unit;
use rustix::net::sockopt;

use super::Error;
use super::message::{MIN_MESSAGE_LEN, empty_message};
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
/// How long the host of one of several addresses may take to refuse a datagram.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(100);
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
    /// The collector's name has several addresses.
    has_alternatives: bool,
    /// Since the last message that was sent: when the next attempt to connect is due, and how long it is after the last
    /// one.
    retry: Option<(Instant, Duration)>,
    /// How often the name is looked up, when it was, and its addresses when they are found.
    lookup_interval: Duration,
    looked_up: Instant,
    lookup: Option<Receiver<Vec<SocketAddr>>>,
    /// When the burst of datagrams began, and how many were sent.
    burst: (Instant, u32),
}

enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
}

impl Socket {
    /// Its own address, and that of the collector.
    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        match self {
            Self::Udp(socket) => Ok((socket.local_addr()?, socket.peer_addr()?)),
            Self::Tcp(stream) => Ok((stream.local_addr()?, stream.peer_addr()?)),
            Self::Tls(stream) => Ok((stream.socket().local_addr()?, stream.socket().peer_addr()?)),
        }
    }

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
    /// A session that is not connected yet. Its collector's name is looked up again this often.
    ///
    /// # Errors
    /// [`Error::Tls`].
    pub(super) fn new(target: Target, lookup_interval: Duration) -> Result<Self, Error> {
        let tls = match &target.transport {
            Transport::Tls(files) => Some(TlsSettings::read(&target, files)?),
            Transport::Udp | Transport::Tcp => None,
        };
        let now = Instant::now();
        Ok(Self {
            target,
            tls,
            socket: None,
            has_alternatives: false,
            retry: None,
            lookup_interval,
            looked_up: now,
            lookup: None,
            burst: (now, 0),
        })
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
        let opened = self.open();
        match opened {
            Ok(socket) => {
                self.socket = Some(socket);
                Ok(true)
            }
            Err(error) => {
                self.close();
                Err(error)
            }
        }
    }

    /// Ends the session after an error. The next attempt waits longer, until a message was sent.
    fn close(&mut self) {
        let before = self.retry.map_or(Duration::ZERO, |(_, pause)| pause);
        let pause = (before * 2).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
        (self.socket, self.retry) = (None, Some((Instant::now() + pause, pause)));
    }

    /// Ends the session if the collector's name has other addresses now, or this host sends from another address.
    pub(super) fn close_if_outdated(&mut self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let found = match self.lookup.as_ref().map(Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => None,
            found => {
                self.lookup = None;
                found.and_then(Result::ok)
            }
        };
        if self.lookup.is_none() && self.looked_up.elapsed() >= self.lookup_interval {
            self.looked_up = Instant::now();
            let ((sender, lookup), target) = (channel(), self.target.clone());
            self.lookup = Some(lookup);
            // A look-up may take long. Without an answer the session continues.
            let look_up = move || target.resolve().map(|addresses| sender.send(addresses));
            _ = thread::Builder::new().name("lookup".into()).spawn(look_up);
        }
        let is_outdated = socket.addresses().is_ok_and(|(local, collector)| {
            found.is_some_and(|addresses| !addresses.contains(&collector))
                || source_address(collector).is_ok_and(|source| source != local.ip())
        });
        if is_outdated {
            self.socket = None;
        }
        is_outdated
    }

    /// Connects to the first address that answers or, over UDP, does not refuse.
    fn open(&mut self) -> io::Result<Socket> {
        self.looked_up = Instant::now();
        let addresses = self.target.resolve()?;
        self.has_alternatives = addresses.len() > 1;
        let mut failed = ErrorKind::AddrNotAvailable.into();
        for address in addresses {
            match self.open_address(address) {
                Ok(socket) => return Ok(socket),
                Err(error) => failed = unit::with_address_remedy(address.ip(), error),
            }
        }
        Err(failed)
    }

    fn open_address(&self, address: SocketAddr) -> io::Result<Socket> {
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
                let socket = connect_udp(address)?;
                if self.has_alternatives {
                    probe(&socket)?;
                }
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
                    Err(error)
                        if self.has_alternatives
                            && error.kind() == ErrorKind::ConnectionRefused =>
                    {
                        Err(error)
                    }
                    Err(error) => {
                        let sent = socket.send(message);
                        refused = sent.is_ok().then_some(error);
                        sent.map_err(|error| match socket.peer_addr() {
                            Ok(collector) => unit::with_address_remedy(collector.ip(), error),
                            Err(_) => error,
                        })
                    }
                    sent => sent,
                }
                .map(drop)
            }
            Some(Socket::Tcp(stream)) => stream.write_all(message),
            Some(Socket::Tls(stream)) => stream.write_all(message),
        };
        match sent {
            Ok(()) => {
                self.retry = None;
                SendOutcome::Sent { refused }
            }
            Err(error) => {
                // A part of the message may have left in a stream. A datagram may need another route or be too long.
                self.close();
                SendOutcome::Failed(error)
            }
        }
    }
}

fn connect_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    Ok(socket)
}

/// The address that this host sends from to another one now.
fn source_address(to: SocketAddr) -> io::Result<IpAddr> {
    Ok(connect_udp(to)?.local_addr()?.ip())
}

/// Sends a message without records, and waits for a refusal.
fn probe(socket: &UdpSocket) -> io::Result<()> {
    socket.send(&empty_message())?;
    socket.set_read_timeout(Some(REFUSAL_TIMEOUT))?;
    match socket.recv(&mut [0]) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Err(error),
        _ => Ok(()),
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
