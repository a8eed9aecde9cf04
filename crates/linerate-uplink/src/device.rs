//! [`DeviceQueue`]: what is behind a queue of the device: the kernel's stack, or a program at a stream socket.

use std::cell::RefCell;
use std::fs;
use std::io::{self, ErrorKind, IoSlice, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;

use linerate_ring::Error as RingError;
use linerate_ring::tun::{MAX_PACKET, Queue};
use linerate_wire::checksum::Engine;
use linerate_wire::virtio::Header;
use rustix::event::PollFlags;
use rustix::net::SendFlags;

use crate::{Error, Result};

/// Bytes of the length before each frame, in network byte order: QEMU's `-netdev stream`, and passt.
const LENGTH_PREFIX: usize = 4;

/// Bytes that are read at once.
const BUFFER: usize = 256 << 10;

/// One queue of the device.
pub(crate) enum DeviceQueue {
    Kernel(Queue),
    Stream(Stream),
}

impl DeviceQueue {
    /// As [`Queue::receive`].
    #[inline]
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Option<(Header, usize)>> {
        match self {
            Self::Kernel(queue) => Ok(queue.receive(buffer)?),
            Self::Stream(stream) => {
                let len = stream.state.borrow_mut().receive(stream, buffer)?;
                Ok(len.map(|len| (Header::default(), len)))
            }
        }
    }

    /// As [`Queue::send`].
    #[inline]
    pub(crate) fn send(&self, header: &Header, packet: &[u8]) -> Result<bool> {
        match self {
            Self::Kernel(queue) => Ok(queue.send(header, packet)?),
            Self::Stream(_) => self.send_vectored(header, &[IoSlice::new(packet)]),
        }
    }

    /// As [`Queue::send_vectored`].
    pub(crate) fn send_vectored(&self, header: &Header, packet: &[IoSlice<'_>]) -> Result<bool> {
        match self {
            Self::Kernel(queue) => Ok(queue.send_vectored(header, packet)?),
            Self::Stream(stream) => stream.state.borrow_mut().send(stream, header, packet),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Kernel(queue) => queue.interface(),
            Self::Stream(stream) => &stream.name,
        }
    }

    /// The poll events to wait for: input if `wants_input`, output while the rest of a frame is unsent.
    pub(crate) fn events(&self, wants_input: bool) -> PollFlags {
        let has_rest = match self {
            Self::Kernel(_) => false,
            Self::Stream(stream) => !stream.state.borrow().rest.is_empty(),
        };
        let input = if wants_input { PollFlags::IN } else { PollFlags::empty() };
        input | if has_rest { PollFlags::OUT } else { PollFlags::empty() }
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
        }
    }
}

/// A program at the other end of a stream socket. It has no offloads: frames are whole, with their checksums.
pub(crate) struct Stream {
    name: String,
    /// Takes the next program after one has gone; `None` for a socket that was passed.
    listener: Option<UnixListener>,
    /// Device and inode of the listener's socket.
    inode: Option<(u64, u64)>,
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
        let listener = match UnixListener::bind(path) {
            Err(error)
                if error.kind() == ErrorKind::AddrInUse
                    && path.symlink_metadata().is_ok_and(|there| there.file_type().is_socket())
                    && UnixStream::connect(path)
                        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) =>
            {
                fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            bound => bound?,
        };
        listener.set_nonblocking(true)?;
        let mut stream = Self::new(path.display().to_string(), Some(listener), None);
        stream.inode = inode(path);
        Ok(stream)
    }

    /// A connected socket.
    pub(crate) fn from_fd(name: String, descriptor: OwnedFd) -> io::Result<Self> {
        let peer = UnixStream::from(descriptor);
        // One that listens has none.
        peer.peer_addr()?;
        peer.set_nonblocking(true)?;
        Ok(Self::new(name, None, Some(peer)))
    }

    fn new(name: String, listener: Option<UnixListener>, peer: Option<UnixStream>) -> Self {
        let state = State {
            peer,
            received: vec![0; BUFFER].into_boxed_slice(),
            start: 0,
            end: 0,
            rest: Vec::new(),
            frame: Vec::with_capacity(LENGTH_PREFIX + MAX_PACKET),
            engine: Engine::detect(),
        };
        Self { name, listener, inode: None, state: RefCell::new(state) }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|found| (found.dev(), found.ino()))
}

impl Drop for Stream {
    fn drop(&mut self) {
        let address = self.listener.as_ref().and_then(|listener| listener.local_addr().ok());
        if let Some(path) = address.as_ref().and_then(SocketAddr::as_pathname)
            && self.inode == inode(path)
        {
            // Without privileges the folder may refuse it. Then the next uplink replaces the socket.
            let _ = fs::remove_file(path);
        }
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
        if let Some(partial) = header.partial_checksum().filter(|partial| partial.fits(frame.len()))
        {
            let checksum = partial.compute(self.engine, frame);
            frame[partial.field()].copy_from_slice(&checksum.to_be_bytes());
        }
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
            while let Some((_, len)) = queue.receive(&mut buffer).unwrap() {
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
            partly |= queue.events(true).contains(PollFlags::OUT);
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
                if let Some((_, len)) = queue.receive(&mut buffer).unwrap() {
                    came.push(buffer[..len].to_vec());
                }
            }
            assert_eq!(came, [[number, 7]]);
            assert!(queue.receive(&mut buffer).unwrap().is_none());
            assert!(queue.send(&Header::default(), &[number; 60]).unwrap());
        }
        drop(queue);
        assert!(!path.exists());
    }
}
