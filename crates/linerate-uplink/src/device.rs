//! [`DeviceQueue`]: what is behind a queue of the device: the kernel's stack, a program at a stream socket, or a guest's
//! virtio-net device.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use linerate_ring::Error as RingError;
use linerate_ring::tun::{MAX_PACKET, Queue};
use linerate_wire::checksum::Engine;
use linerate_wire::virtio::Header;
use rustix::event::PollFlags;
use rustix::net::SendFlags;

use crate::listener::Listener;
use crate::statistics::Drops;
use crate::vhost_user::ring::Received;
use crate::{Error, Result, vhost_user};

/// Bytes of the length before each frame, in network byte order: QEMU's `-netdev stream`, and passt.
const LENGTH_PREFIX: usize = 4;

/// Bytes that are read at once.
const BUFFER: usize = 256 << 10;

/// One queue of the device.
pub(crate) enum DeviceQueue {
    Kernel(Queue),
    Stream(Stream),
    VhostUser(vhost_user::Queue),
}

impl DeviceQueue {
    /// Takes the next packet. No call here waits.
    #[inline]
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Received> {
        match self {
            Self::Kernel(queue) => match queue.receive(buffer) {
                Ok(Some((header, len))) => Ok(Received::Packet(header, len)),
                Ok(None) => Ok(Received::Empty),
                Err(RingError::Invalid(_)) => Ok(Received::TooLong),
                Err(error) => Err(error.into()),
            },
            Self::Stream(stream) => {
                let len = stream.state.borrow_mut().receive(stream, buffer)?;
                Ok(len.map_or(Received::Empty, |len| Received::Packet(Header::default(), len)))
            }
            Self::VhostUser(queue) => Ok(queue.receive(buffer)),
        }
    }

    /// As [`Queue::send`].
    #[inline]
    pub(crate) fn send(&self, header: &Header, packet: &[u8]) -> Result<bool> {
        match self {
            Self::Kernel(queue) => Ok(queue.send(header, packet)?),
            _ => self.send_vectored(header, &[IoSlice::new(packet)]),
        }
    }

    /// As [`Queue::send_vectored`].
    pub(crate) fn send_vectored(&self, header: &Header, packet: &[IoSlice<'_>]) -> Result<bool> {
        match self {
            Self::Kernel(queue) => Ok(queue.send_vectored(header, packet)?),
            Self::Stream(stream) => stream.state.borrow_mut().send(stream, header, packet),
            Self::VhostUser(queue) => queue.send(header, packet),
        }
    }

    /// Whether it takes any super-packets.
    pub(crate) fn takes_super_packets(&self) -> bool {
        match self {
            Self::Kernel(_) => true,
            Self::Stream(_) => false,
            Self::VhostUser(queue) => queue.takes_super_packets(),
        }
    }

    /// Whether it takes this super-packet.
    pub(crate) fn accepts(&self, header: &Header) -> bool {
        match self {
            Self::Kernel(_) => true,
            Self::Stream(_) => false,
            Self::VhostUser(queue) => queue.accepts(header),
        }
    }

    /// Ends a batch in both directions.
    pub(crate) fn flush(&self, drops: &mut Drops) {
        if let Self::VhostUser(queue) = self {
            queue.flush(drops);
        }
    }

    /// Whether it holds packets that it could not deliver yet. Then it wants no more.
    pub(crate) fn has_backlog(&self) -> bool {
        matches!(self, Self::VhostUser(queue) if queue.has_backlog())
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Kernel(queue) => queue.interface(),
            Self::Stream(stream) => &stream.name,
            Self::VhostUser(queue) => queue.name(),
        }
    }

    /// The poll events to wait for: input if `wants_input`, and whatever ends a wait of its own: for the rest of a frame
    /// to be sent, or for buffers. `None` if there is nothing to wait for.
    pub(crate) fn arm(&self, wants_input: bool) -> Option<PollFlags> {
        let has_rest = match self {
            Self::Kernel(_) => false,
            Self::Stream(stream) => !stream.state.borrow().rest.is_empty(),
            Self::VhostUser(queue) => return queue.arm(wants_input),
        };
        let input = if wants_input { PollFlags::IN } else { PollFlags::empty() };
        Some(input | if has_rest { PollFlags::OUT } else { PollFlags::empty() })
    }

    /// Calls `wait` with the descriptor to wait for.
    pub(crate) fn with_descriptor<T>(&self, wait: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        match self {
            Self::Kernel(queue) => wait(queue.as_fd()),
            Self::Stream(stream) => match (&stream.state.borrow().peer, &stream.listener) {
                (Some(peer), _) => wait(peer.as_fd()),
                (None, Some(listener)) => wait(listener.as_fd()),
                (None, None) => unreachable!("a passed socket has its peer until its end"),
            },
            Self::VhostUser(queue) => wait(queue.as_fd()),
        }
    }
}

/// Completes the checksum of a frame for a device that does not.
pub(crate) fn complete(engine: Engine, header: &Header, frame: &mut [u8]) {
    if let Some(partial) = header.partial_checksum().filter(|partial| partial.fits(frame.len())) {
        let checksum = partial.compute(engine, frame);
        frame[partial.field()].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// A program at the other end of a stream socket. It has no offloads: frames are whole, with their checksums.
pub(crate) struct Stream {
    name: String,
    /// Takes the next program after one has gone; `None` for a socket that was passed.
    listener: Option<Listener>,
    state: RefCell<State>,
}

struct State {
    peer: Option<UnixStream>,
    /// What was read: `start..end` was not taken.
    received: Box<[u8]>,
    start: usize,
    end: usize,
    /// The rest of a frame that the socket took in part.
    rest: Vec<u8>,
    /// A frame with its length.
    frame: Vec<u8>,
    engine: Engine,
}

impl Stream {
    /// Listens at `path`. A socket there to which nobody listens is replaced.
    pub(crate) fn listen(path: &Path) -> io::Result<Self> {
        let listener = Listener::open(path)?;
        Ok(Self::new(path.display().to_string(), Some(listener), None))
    }

    /// A connected socket.
    pub(crate) fn from_fd(name: String, descriptor: OwnedFd) -> io::Result<Self> {
        let peer = UnixStream::from(descriptor);
        // One that listens has none.
        peer.peer_addr()?;
        peer.set_nonblocking(true)?;
        Ok(Self::new(name, None, Some(peer)))
    }

    fn new(name: String, listener: Option<Listener>, peer: Option<UnixStream>) -> Self {
        let state = State {
            peer,
            received: vec![0; BUFFER].into_boxed_slice(),
            start: 0,
            end: 0,
            rest: Vec::new(),
            frame: Vec::with_capacity(LENGTH_PREFIX + MAX_PACKET),
            engine: Engine::detect(),
        };
        Self { name, listener, state: RefCell::new(state) }
    }
}

impl State {
    fn receive(&mut self, stream: &Stream, buffer: &mut [u8]) -> Result<Option<usize>> {
        loop {
            if self.peer.is_none() && !self.accept(stream)? {
                return Ok(None);
            }
            self.send_rest(stream)?;
            let whole = &self.received[self.start..self.end];
            if let Some((len, rest)) = whole.split_first_chunk::<LENGTH_PREFIX>() {
                let len = u32::from_be_bytes(*len) as usize;
                let Some(room) = buffer.get_mut(..len).filter(|_| len <= MAX_PACKET) else {
                    tracing::warn!("{} sends a frame of {len} bytes", stream.name);
                    self.disconnect(stream)?;
                    continue;
                };
                if let Some(frame) = rest.get(..len) {
                    room.copy_from_slice(frame);
                    self.start += LENGTH_PREFIX + len;
                    return Ok(Some(len));
                }
            }
            self.received.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let Some(mut peer) = self.peer.as_ref() else { continue };
            match peer.read(&mut self.received[self.end..]) {
                Ok(0) => self.disconnect(stream)?,
                Ok(len) => self.end += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.disconnect(stream)?,
            }
        }
    }

    fn send(&mut self, stream: &Stream, header: &Header, packet: &[IoSlice<'_>]) -> Result<bool> {
        self.send_rest(stream)?;
        if self.peer.is_none() {
            return Err(RingError::InterfaceDown(stream.name.clone()).into());
        }
        if !self.rest.is_empty() {
            return Ok(false);
        }
        // A copy: the socket takes the length and the frame together, and the frame needs its checksum.
        self.frame.clear();
        self.frame.extend_from_slice(&[0; LENGTH_PREFIX]);
        packet.iter().for_each(|piece| self.frame.extend_from_slice(piece));
        let (len, frame) = self.frame.split_at_mut(LENGTH_PREFIX);
        len.copy_from_slice(&(frame.len() as u32).to_be_bytes());
        complete(self.engine, header, frame);
        let frame = std::mem::take(&mut self.frame);
        let sent = self.write(stream, &frame);
        self.rest.extend_from_slice(&frame[sent.as_ref().map_or(frame.len(), |len| *len)..]);
        let any = sent.as_ref().is_ok_and(|len| *len > 0);
        if !any {
            self.rest.clear();
        }
        self.frame = frame;
        match sent? {
            _ if self.peer.is_none() => Err(RingError::InterfaceDown(stream.name.clone()).into()),
            len => Ok(len > 0),
        }
    }

    /// Sends the rest of the frame before.
    fn send_rest(&mut self, stream: &Stream) -> Result<()> {
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            let sent = self.write(stream, &rest)?;
            if self.peer.is_some() {
                self.rest = rest[sent..].to_vec();
            }
        }
        Ok(())
    }

    /// Writes what the socket takes.
    fn write(&mut self, stream: &Stream, bytes: &[u8]) -> Result<usize> {
        let Some(peer) = &self.peer else { return Ok(0) };
        match rustix::net::send(peer, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(len) => Ok(len),
            Err(errno) if io::Error::from(errno).kind() == ErrorKind::WouldBlock => Ok(0),
            Err(_) => self.disconnect(stream).map(|()| 0),
        }
    }

    fn accept(&mut self, stream: &Stream) -> Result<bool> {
        let Some(listener) = &stream.listener else { return Ok(false) };
        let Ok((peer, _)) = listener.accept() else { return Ok(false) };
        peer.set_nonblocking(true).map_err(|source| stream.failed("use", source))?;
        tracing::info!("a program has connected to {}", stream.name);
        self.peer = Some(peer);
        Ok(true)
    }

    /// The peer has closed, or broke the protocol. A listening socket accepts the next one.
    fn disconnect(&mut self, stream: &Stream) -> Result<()> {
        if stream.listener.is_none() {
            return Err(Error::PeerGone(stream.name.clone()));
        }
        tracing::info!("the program at {} has gone", stream.name);
        (self.peer, self.start, self.end) = (None, 0, 0);
        self.rest.clear();
        Ok(())
    }
}

impl Stream {
    fn failed(&self, action: &str, source: io::Error) -> Error {
        Error::Link { action: format!("{action} the socket {}", self.name), source }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    use linerate_wire::virtio::Flags;

    use super::*;

    fn pair() -> (DeviceQueue, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stream = Stream::from_fd("a socket".to_owned(), ours.into()).unwrap();
        (DeviceQueue::Stream(stream), theirs)
    }

    #[test]
    fn frames_come_whole_whatever_the_pieces_are() {
        let (queue, mut peer) = pair();
        let frames: Vec<Vec<u8>> =
            [60, 1, 0, 1514, MAX_PACKET, 14].map(|len| vec![len as u8; len]).into();
        let bytes: Vec<u8> = frames
            .iter()
            .flat_map(|frame| [&(frame.len() as u32).to_be_bytes()[..], frame].concat())
            .collect();
        let (mut buffer, mut came) = (vec![0; MAX_PACKET], Vec::new());
        for piece in bytes.chunks(777) {
            peer.write_all(piece).unwrap();
            while let Received::Packet(_, len) = queue.receive(&mut buffer).unwrap() {
                came.push(buffer[..len].to_vec());
            }
        }
        assert_eq!(came, frames);
        peer.write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert!(matches!(queue.receive(&mut buffer), Err(Error::PeerGone(_))));
    }

    #[test]
    fn frames_go_whole_or_not_at_all() {
        let (queue, mut peer) = pair();
        let frame = |number: u32| [&number.to_be_bytes()[..], &[7; 60_000]].concat();
        let (mut sent, mut partly) = (Vec::new(), false);
        let mut read = Vec::new();
        let mut bytes = vec![0; 70_001];
        peer.set_nonblocking(true).unwrap();
        for number in 0..500 {
            if queue.send(&Header::default(), &frame(number)).unwrap() {
                sent.push(number);
            }
            partly |= queue.arm(true).unwrap().contains(PollFlags::OUT);
            // The reader is slow: the socket is full most of the time.
            if number % 12 == 0
                && let Ok(len) = peer.read(&mut bytes)
            {
                read.extend_from_slice(&bytes[..len]);
            }
        }
        assert!(sent.len() < 500 && partly);
        loop {
            let _ = queue.receive(&mut [0; 100]).unwrap();
            let Ok(len) = peer.read(&mut bytes) else { break };
            read.extend_from_slice(&bytes[..len]);
        }
        let whole: Vec<u8> = sent
            .iter()
            .flat_map(|number| [&60_004_u32.to_be_bytes()[..], &frame(*number)].concat())
            .collect();
        assert!(read == whole, "{} bytes of {}", read.len(), whole.len());
        drop(peer);
        assert!(matches!(queue.send(&Header::default(), &[1; 60]), Err(Error::PeerGone(_))));
    }

    #[test]
    fn a_checksum_that_is_open_is_completed() {
        let (queue, mut peer) = pair();
        let header =
            Header { flags: Flags::NEEDS_CSUM, csum_start: 2, csum_offset: 0, ..Header::default() };
        assert!(queue.send(&header, &[9, 9, 0, 0, 0x12, 0x34]).unwrap());
        let mut bytes = [0; 10];
        peer.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [0, 0, 0, 6, 9, 9, 0xed, 0xcb, 0x12, 0x34]);
    }

    #[test]
    fn one_program_after_the_other_may_come() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let queue = DeviceQueue::Stream(Stream::listen(&path).unwrap());
        assert!(Stream::listen(&path).is_err(), "somebody listens");
        let mut buffer = vec![0; MAX_PACKET];
        let down = queue.send(&Header::default(), &[1; 60]);
        assert!(matches!(down, Err(Error::Ring(RingError::InterfaceDown(_)))));
        for number in 0..3 {
            let mut peer = UnixStream::connect(&path).unwrap();
            // The one before ended within a frame.
            peer.write_all(&[0, 0, 0, 2, number, 7, 0, 0, 0, 90, 1]).unwrap();
            let mut came = Vec::new();
            while came.is_empty() {
                if let Received::Packet(_, len) = queue.receive(&mut buffer).unwrap() {
                    came.push(buffer[..len].to_vec());
                }
            }
            assert_eq!(came, [[number, 7]]);
            assert!(matches!(queue.receive(&mut buffer).unwrap(), Received::Empty));
            assert!(queue.send(&Header::default(), &[number; 60]).unwrap());
        }
        drop(queue);
        assert!(!path.exists());
    }
}
