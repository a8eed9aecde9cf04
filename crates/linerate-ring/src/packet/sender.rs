//! [`Sender`]: a packet socket without a ring, which sends super-packets.
//!
//! A transmit ring takes no frame longer than the MTU without a virtio header in each slot; here the
//! header goes along with the frame, one system call for both. The price of the call is spread over
//! the segments that the kernel or the card makes.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd};

use linerate_net::Interface;
use linerate_wire::virtio::{self, Header};

use super::layout::PACKET_VNET_HDR;
use super::socket::Socket;
use crate::{Error, Result};

/// Bytes that the kernel may hold for frames on their way, metadata included.
const SEND_BUFFER: libc::c_int = 4 << 20;

/// Sends frames through one interface, each with a virtio header.
#[derive(Debug)]
pub struct Sender {
    file: File,
    name: String,
}

impl Sender {
    /// Opens a socket on an interface of the current network namespace.
    ///
    /// # Errors
    /// [`Error::Privilege`] without CAP_NET_RAW, [`Error::NoInterface`], [`Error::System`] for the
    /// rest.
    pub fn open(interface: &str) -> Result<Self> {
        let socket = Socket::open()?;
        let index = Interface::open(interface)?.index();
        let system = |action: &str| {
            let action = format!("{action} (interface {interface})");
            move |error| Error::system(action, error)
        };
        socket
            .set(libc::SOL_PACKET, PACKET_VNET_HDR, &1i32)
            .map_err(system("ask for virtio headers"))?;
        socket
            .set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)
            .or_else(|_| socket.set(libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER))
            .map_err(system("enlarge the send buffer"))?;
        // Protocol 0: this socket receives nothing.
        socket.bind(index, 0).map_err(system("bind the socket"))?;
        Ok(Self { file: File::from(socket.into_fd()), name: interface.to_owned() })
    }

    /// [`Sender::send`] no longer waits: while the send buffer is full it ends with EAGAIN.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn set_nonblocking(&self) -> Result<()> {
        rustix::io::ioctl_fionbio(&self.file, true)
            .map_err(|errno| Error::system("make a packet socket non-blocking", errno.into()))
    }

    /// Sends a frame. The kernel segments it as `header` says, if the card cannot, and fills in the
    /// checksum. Waits while the send buffer is full.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a header that contradicts the frame, or a frame longer than the MTU
    /// that is not to be segmented; [`Error::InterfaceDown`], [`Error::InterfaceGone`];
    /// [`Error::System`] for the rest, with ENOMEM where the kernel cannot segment the frame.
    pub fn send(&self, header: &Header, frame: &[u8]) -> Result<()> {
        let mut bytes = [0; virtio::HEADER_LEN];
        header.emit(&mut bytes).expect("there is room for a header");
        let pieces = [IoSlice::new(&bytes), IoSlice::new(frame)];
        match (&self.file).write_vectored(&pieces) {
            Ok(len) => {
                debug_assert_eq!(len, bytes.len() + frame.len(), "a frame goes whole or not");
                Ok(())
            }
            Err(error) => Err(self.failed(header, frame.len(), error)),
        }
    }

    #[cold]
    fn failed(&self, header: &Header, len: usize, error: io::Error) -> Error {
        let name = &self.name;
        match error.raw_os_error() {
            Some(libc::ENETDOWN) => Error::InterfaceDown(name.clone()),
            Some(libc::ENXIO | libc::ENODEV) => Error::InterfaceGone(name.clone()),
            Some(libc::EINVAL) => Error::Invalid(format!(
                "interface {name} refuses a frame of {len} bytes with the virtio header \
                 \"{header}\": its offsets or sizes contradict the frame"
            )),
            Some(libc::EMSGSIZE) => Error::Invalid(format!(
                "a frame of {len} bytes is too long for interface {name}, and its virtio header \
                 \"{header}\" does not say how to segment it"
            )),
            _ => Error::system(format!("send a frame of {len} bytes through {name}"), error),
        }
    }
}

impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
