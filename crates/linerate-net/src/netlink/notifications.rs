//! [`Notifications`]: a netlink socket that receives kernel notifications about changes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use rustix::net::{RecvFlags, recv};

use super::{Message, Protocol, Socket, messages};

/// More than the kernel puts into one notification: `NLMSG_GOODSIZE` is a page, and links with many virtual
/// functions take more.
const LONGEST: usize = 128 << 10;

/// A socket that receives from the groups that it has joined. It does not block: poll it.
#[derive(Debug)]
pub struct Notifications {
    socket: Socket,
    protocol: Protocol,
    buffer: Box<[u8]>,
}

/// How far the socket was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Received {
    /// Up to the limit, or to the end.
    All,
    /// Some notifications were lost (`ENOBUFS`).
    Overrun,
}

impl Notifications {
    /// Opens it in the network namespace of the calling thread.
    ///
    /// # Errors
    /// As [`Socket::open`].
    pub fn open(protocol: Protocol) -> io::Result<Self> {
        Ok(Self { socket: Socket::open(protocol)?, protocol, buffer: vec![0; LONGEST].into() })
    }

    /// Sets the receive buffer in bytes; without CAP_NET_ADMIN `net.core.rmem_max` limits it.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        if set_socket_recv_buffer_size_force(&self.socket, bytes).is_err() {
            set_socket_recv_buffer_size(&self.socket, bytes)?;
        }
        Ok(())
    }

    /// Joins a group.
    ///
    /// # Errors
    /// As [`Socket::join`].
    pub fn join(&self, group: u32) -> io::Result<()> {
        self.socket.join(group)
    }

    /// The protocol that it was opened for.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Reads up to `most` queued notifications, and passes on their messages.
    pub fn receive(
        &mut self,
        most: usize,
        mut take: impl FnMut(Message<'_>),
    ) -> io::Result<Received> {
        for _ in 0..most {
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
            let length = match recv(&self.socket, &mut self.buffer[..], flags) {
                Ok((_, length)) => length,
                Err(Errno::AGAIN) => return Ok(Received::All),
                Err(Errno::INTR) => continue,
                Err(Errno::NOBUFS) => return Ok(Received::Overrun),
                Err(errno) => return Err(errno.into()),
            };
            let Some(bytes) = self.buffer.get(..length) else { return Ok(Received::Overrun) };
            messages(bytes).for_each(&mut take);
        }
        Ok(Received::All)
    }

    /// Discards everything that is queued. This terminates after an overrun: the kernel queues nothing more
    /// until everything is read (`netlink_rcv_wake`).
    pub fn discard(&mut self) -> io::Result<()> {
        loop {
            match recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Notifications {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
