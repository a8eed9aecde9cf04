//! [`Queue`]: one descriptor of a device, which sends and receives packets.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use linerate_wire::virtio::{self, Header};

use super::Offloads;
use super::builder::set;
use crate::{Error, Result};

/// Bytes of the longest packet that a device delivers: IP's 65,535, with an Ethernet header and two VLAN tags
/// before it.
pub const MAX_PACKET: usize = 65_535 + 14 + 2 * 4;

/// Pieces that a packet to send can be in.
pub const MAX_IOVECS: usize = 128;

/// One queue of a device. No call on it waits: `poll` its descriptor.
#[derive(Debug)]
pub struct Queue {
    file: File,
    name: Arc<str>,
    /// Bytes of the virtio header, the same for all queues.
    header_len: usize,
    /// The device stays, and the next program may know no offloads.
    is_existing: bool,
}

impl Queue {
    pub(super) fn new(file: File, name: Arc<str>, header_len: usize) -> Self {
        Self { file, name, header_len, is_existing: false }
    }

    pub(super) fn of_existing(file: File, name: Arc<str>, header_len: usize) -> Self {
        Self { file, name, header_len, is_existing: true }
    }

    /// Takes the next packet that the kernel sends through the interface into `buffer`, and returns
    /// its header and length in bytes; `None` when there is none. [`MAX_PACKET`] bytes are enough.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a packet that did not fit `buffer`, which is then lost;
    /// [`Error::InterfaceGone`]; [`Error::System`] for the rest.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Option<(Header, usize)>> {
        let mut header = [0; virtio::TUNNEL_HEADER_LEN];
        let header = &mut header[..self.header_len];
        // The kernel truncates a packet silently; a packet that reaches this byte was truncated.
        let mut beyond = [0; 1];
        let room = buffer.len();
        let mut pieces =
            [IoSliceMut::new(header), IoSliceMut::new(buffer), IoSliceMut::new(&mut beyond)];
        let len = match (&self.file).read_vectored(&mut pieces) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(self.failed("receive from", error)),
        };
        match len.checked_sub(self.header_len) {
            Some(len) if len <= room => Ok(Some((self.parse(header), len))),
            _ => Err(Error::Invalid(format!(
                "a packet of interface {} is longer than the buffer of {room} bytes",
                self.name
            ))),
        }
    }

    /// Passes a packet to the kernel as if the interface had received it. Returns `false` if there is no room
    /// at the moment.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a header that contradicts the packet, or an invalid packet;
    /// [`Error::InterfaceDown`], [`Error::InterfaceGone`]; [`Error::System`] for the rest.
    #[inline]
    pub fn send(&self, header: &Header, packet: &[u8]) -> Result<bool> {
        let mut bytes = [0; virtio::TUNNEL_HEADER_LEN];
        let bytes = self.emit(header, &mut bytes);
        self.write(header, &[IoSlice::new(bytes), IoSlice::new(packet)])
    }

    /// As [`Queue::send`] for a packet in up to [`MAX_IOVECS`] pieces.
    ///
    /// # Errors
    /// As [`Queue::send`]; [`Error::Invalid`] for too many pieces.
    pub fn send_vectored(&self, header: &Header, packet: &[IoSlice<'_>]) -> Result<bool> {
        if packet.len() > MAX_IOVECS {
            return Err(Error::Invalid(format!(
                "a packet for interface {} can be in {MAX_IOVECS} pieces, not {}",
                self.name,
                packet.len()
            )));
        }
        let mut bytes = [0; virtio::TUNNEL_HEADER_LEN];
        let mut pieces = [IoSlice::new(&[]); MAX_IOVECS + 1];
        pieces[0] = IoSlice::new(self.emit(header, &mut bytes));
        pieces[1..=packet.len()].copy_from_slice(packet);
        self.write(header, &pieces[..=packet.len()])
    }

    /// The interface's name.
    pub fn interface(&self) -> &str {
        &self.name
    }

    #[inline]
    fn write(&self, header: &Header, pieces: &[IoSlice<'_>]) -> Result<bool> {
        match (&self.file).write_vectored(pieces) {
            Ok(len) => {
                let whole = pieces.iter().map(|piece| piece.len()).sum::<usize>();
                debug_assert_eq!(len, whole, "a packet goes whole or not");
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                let len: usize = pieces[1..].iter().map(|piece| piece.len()).sum();
                Err(Error::Invalid(format!(
                    "interface {} refuses a packet of {len} bytes with the virtio header \
                     \"{header}\": its offsets or sizes contradict the packet, or it is no packet",
                    self.name
                )))
            }
            Err(error) => Err(self.failed("send through", error)),
        }
    }

    fn parse(&self, bytes: &[u8]) -> Header {
        Header::parse(bytes).expect("a device has a header of at least 10 bytes")
    }

    fn emit<'b>(&self, header: &Header, bytes: &'b mut [u8]) -> &'b [u8] {
        let bytes = &mut bytes[..self.header_len];
        header.emit(bytes).expect("a device has a header of at least 10 bytes");
        bytes
    }

    #[cold]
    fn failed(&self, action: &str, error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(libc::EIO) => Error::InterfaceDown(self.name.to_string()),
            Some(libc::EBADFD) => Error::InterfaceGone(self.name.to_string()),
            _ => Error::system(format!("{action} interface {}", self.name), error),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.is_existing {
            // The kernel keeps them with the device.
            let _ = set(&self.file, self.header_len, Offloads::NONE);
        }
    }
}

impl AsFd for Queue {
    /// For `poll` and `epoll`: readable when a packet waits; writable when the interface is up and
    /// has room.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
