//! [`Socket`]: receives and sends on one port.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use crate::options::Options;
use crate::receiver::{Batch, Receiver};
use crate::socket::unmapped;
use crate::transmit::Transmit;
use crate::transmitter::Transmitter;
use crate::{IcmpError, Result, TransmitTimestamp};

/// A [`Receiver`] and a [`Transmitter`] on one port, for servers.
///
/// ```no_run
/// # fn main() -> linerate_udp::Result<()> {
/// let mut socket =
///     linerate_udp::Socket::open(linerate_udp::Options::new("[::]:7000".parse().unwrap()))?;
/// let (receiver, transmitter) = socket.split();
/// loop {
///     let mut batch = receiver.receive(None)?;
///     while let Some(message) = batch.next() {
///         transmitter.push(&message.reply(message.payload))?;
///     }
///     transmitter.flush()?;
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Socket {
    receiver: Receiver,
    transmitter: Transmitter,
}

impl Socket {
    /// Opens a receiver and a transmitter with the same batch size and message size. A socket that is bound to an
    /// unspecified address reports the destination of each message, so that a reply is sent from it
    /// ([`crate::Message::reply`]).
    ///
    /// # Errors
    /// As [`Receiver::open`].
    pub fn open(mut options: Options) -> Result<Self> {
        options.metadata.destination |= unmapped(options.bind).ip().is_unspecified();
        let mut receiver = Receiver::open(options)?;
        let transmitter = receiver.transmitter();
        Ok(Self { receiver, transmitter })
    }

    /// Borrows both halves, so that replies can be collected while a batch is lent.
    pub fn split(&mut self) -> (&mut Receiver, &mut Transmitter) {
        (&mut self.receiver, &mut self.transmitter)
    }

    /// Splits the socket into owned halves, for two threads.
    pub fn into_split(self) -> (Receiver, Transmitter) {
        (self.receiver, self.transmitter)
    }

    /// As [`Receiver::receive`].
    ///
    /// # Errors
    /// As there.
    pub fn receive(&mut self, deadline: Option<Instant>) -> Result<Batch<'_>> {
        self.receiver.receive(deadline)
    }

    /// As [`Receiver::try_receive`].
    ///
    /// # Errors
    /// As there.
    pub fn try_receive(&mut self) -> Result<Batch<'_>> {
        self.receiver.try_receive()
    }

    /// As [`Transmitter::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, transmits: &[Transmit<'_>]) -> Result<()> {
        self.transmitter.send(transmits)
    }

    /// As [`Transmitter::try_send`].
    ///
    /// # Errors
    /// As there.
    pub fn try_send(&mut self, transmits: &[Transmit<'_>]) -> Result<usize> {
        self.transmitter.try_send(transmits)
    }

    /// As [`Receiver::next_error`].
    pub fn next_error(&mut self) -> Option<IcmpError> {
        self.receiver.next_error()
    }

    /// As [`Receiver::next_transmit_timestamp`].
    pub fn next_transmit_timestamp(&mut self) -> Option<TransmitTimestamp> {
        self.receiver.next_transmit_timestamp()
    }

    /// The receiving half.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// The sending half.
    pub fn transmitter(&self) -> &Transmitter {
        &self.transmitter
    }

    /// The address that it is bound to.
    pub fn address(&self) -> SocketAddr {
        self.receiver.address()
    }
}

impl AsFd for Socket {
    /// As that of [`Receiver`]: readable when messages wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}
