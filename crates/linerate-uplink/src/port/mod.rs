//! [`FramePort`]: a queue's share of the interface, for any backend.

mod packet;
mod xdp;

use std::os::fd::BorrowedFd;
use std::time::Duration;

pub(crate) use packet::PacketPort;
pub(crate) use xdp::{XdpPort, chunk};

use crate::Result;
use crate::device::DeviceQueue;
use crate::rx::Receiver;
use crate::statistics::{Drops, Statistics};

/// The outcome of writing a frame.
pub(crate) enum SendOutcome {
    /// It is in the ring, with so many bytes.
    Bytes(usize),
    /// There is no free frame.
    Full,
    /// There is none, and will be none before the interface is up.
    Down,
}

/// Rings to receive from and to send through. Nothing here waits but [`FramePort::wait_to_send`]; each
/// implementation is compiled with the threads of its own.
pub(crate) trait FramePort: Send {
    /// Passes a batch of received frames to `receiver`. Returns whether there was one.
    fn receive(
        &mut self,
        tap: &DeviceQueue,
        receiver: &mut Receiver,
        statistics: &mut Statistics,
    ) -> Result<bool>;

    /// Frames that can be written at once, as far as that has to be known: a number above
    /// [`crate::tx::MIN_FREE_FRAMES`] says no more than that one.
    fn room(&mut self) -> usize;

    /// The longest frame that can be written.
    fn longest(&self) -> usize;

    /// Calls `fill` to write a frame of at most `longest` bytes. It returns how many it wrote.
    fn write(
        &mut self,
        longest: usize,
        fill: &mut impl FnMut(&mut [u8]) -> usize,
    ) -> Result<SendOutcome>;

    /// Makes the kernel send what was written. False while the interface is down: it keeps the frames.
    fn flush(&mut self) -> Result<bool>;

    /// Whether frames were written that the kernel has not taken.
    fn has_unsent(&self) -> bool;

    /// Waits until the interface may have taken something.
    fn wait_to_send(&mut self, timeout: Duration);

    /// What becomes readable when a frame comes.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>>;

    /// Handles an error that a poll of the descriptors reported.
    fn note_error(&mut self);

    /// Received frames that the kernel dropped.
    fn drops(&self) -> Drops;
}

/// The result of a flush: whether the interface is up.
fn is_up(answer: linerate_ring::Result<bool>, unsent: &mut bool) -> Result<bool> {
    match answer {
        Ok(all) => {
            *unsent = !all;
            Ok(true)
        }
        Err(linerate_ring::Error::InterfaceDown(_)) => {
            *unsent = true;
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
