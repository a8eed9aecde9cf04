//! [`AsyncReceiver`] and [`AsyncTransmitter`]: the halves of a [`Socket`] in tokio (feature `tokio`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::coop::consume_budget;

use crate::receiver::{Batch, Found, Receiver};
use crate::transmit::Transmit;
use crate::transmitter::Transmitter;
use crate::{Error, Result, Socket};

/// A [`Receiver`] that tokio waits for.
#[derive(Debug)]
pub struct AsyncReceiver {
    // A duplicated descriptor, so that both halves can be registered: epoll identifies descriptors by number.
    readable: AsyncFd<OwnedFd>,
    receiver: Receiver,
}

/// A [`Transmitter`] that tokio waits for.
#[derive(Debug)]
pub struct AsyncTransmitter {
    writable: AsyncFd<OwnedFd>,
    transmitter: Transmitter,
}

impl Socket {
    /// Both halves for tokio. Must be called in a runtime whose I/O driver is enabled.
    pub fn into_async(self) -> Result<(AsyncReceiver, AsyncTransmitter)> {
        let Self { mut receiver, transmitter } = self;
        let readable = register(receiver.edge_triggered_fd(), Interest::READABLE)?;
        let writable = register(transmitter.as_fd(), Interest::WRITABLE)?;
        Ok((AsyncReceiver { readable, receiver }, AsyncTransmitter { writable, transmitter }))
    }
}

impl AsyncReceiver {
    /// The messages that have arrived, as [`Receiver::receive`]; waits if there are none. Cancel-safe: no message is
    /// lost.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub async fn recv_batch(&mut self) -> Result<Batch<'_>> {
        // Messages that always wait must not keep other tasks from running.
        consume_budget().await;
        let found = match self.receiver.try_fill()? {
            Some(found) => found,
            None => self.wait().await?,
        };
        Ok(self.receiver.batch(found))
    }

    /// Waits for messages, or for ICMP errors.
    async fn wait(&mut self) -> Result<Found> {
        loop {
            let mut ready = self.readable.readable().await.map_err(waiting)?;
            // Try once more before clearing the readiness: the notification is edge-triggered.
            if let Some(found) = self.receiver.try_fill()? {
                ready.retain_ready();
                return Ok(found);
            }
            ready.clear_ready();
        }
    }

    /// The receiver.
    pub fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }
}

impl AsyncTransmitter {
    /// Sends all, as [`Transmitter::send`], after the collected messages. If this is cancelled, only the first of them
    /// may have been sent.
    ///
    /// # Errors
    /// As [`Transmitter::send`].
    pub async fn send_batch(&mut self, transmits: &[Transmit<'_>]) -> Result<()> {
        consume_budget().await;
        self.flush().await?;
        let mut sent = 0;
        loop {
            sent += self.transmitter.try_send(&transmits[sent..])?;
            if sent == transmits.len() {
                return Ok(());
            }
            self.wait(|transmitter| {
                sent += transmitter.try_send(&transmits[sent..])?;
                Ok(sent == transmits.len())
            })
            .await?;
        }
    }

    /// Collects messages, as [`Transmitter::push`]; sends the collected messages when the batch is full.
    ///
    /// # Errors
    /// As [`Transmitter::push`].
    pub async fn push(&mut self, transmit: &Transmit<'_>) -> Result<()> {
        if !self.transmitter.has_room(transmit) {
            self.flush().await?;
        }
        self.transmitter.push(transmit)
    }

    /// Sends the collected messages.
    ///
    /// # Errors
    /// As [`Transmitter::flush`].
    pub async fn flush(&mut self) -> Result<()> {
        while !self.transmitter.try_flush()? {
            self.wait(Transmitter::try_flush).await?;
        }
        Ok(())
    }

    /// The transmitter.
    pub fn transmitter(&mut self) -> &mut Transmitter {
        &mut self.transmitter
    }

    /// Waits until the socket is writable; `done` tries once more before the readiness is cleared.
    async fn wait(&mut self, done: impl FnOnce(&mut Transmitter) -> Result<bool>) -> Result<()> {
        let mut ready = self.writable.writable().await.map_err(waiting)?;
        match done(&mut self.transmitter)? {
            true => ready.retain_ready(),
            false => ready.clear_ready(),
        }
        Ok(())
    }
}

/// Has the I/O driver of the runtime watch a duplicate.
pub(crate) fn register(fd: BorrowedFd<'_>, interest: Interest) -> Result<AsyncFd<OwnedFd>> {
    let duplicate = fd.try_clone_to_owned().map_err(waiting)?;
    #[allow(deprecated, reason = "an OwnedFd stays open; what replaces this is unsafe")]
    AsyncFd::with_interest(duplicate, interest).map_err(waiting)
}

fn waiting(error: io::Error) -> Error {
    Error::system("wait for a socket in tokio", error)
}
