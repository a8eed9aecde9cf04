//! [`Socket`]: receives and sends on one port.

use crate::Result;
use crate::options::Options;
use crate::receiver::Receiver;
use crate::socket::unmapped;
use crate::transmitter::Transmitter;

/// A [`Receiver`] and a [`Transmitter`] on one port, for servers.
///
/// ```no_run
/// # fn main() -> linerate_udp::Result<()> {
/// use linerate_udp::{Options, Socket};
///
/// let Socket { mut receiver, mut transmitter } =
///     Socket::open(Options::new("[::]:7000".parse().unwrap()))?;
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
    /// Readable when messages wait.
    pub receiver: Receiver,
    /// Collects replies while a batch is lent, or sends from another thread.
    pub transmitter: Transmitter,
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
}
