//! [`UringSend`]: a batch of `sendmsg` requests in one call, in place of `sendmmsg`.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};

use super::refused;
use crate::Result;
use crate::socket::SendError;

/// The most requests of one call.
const MAX_REQUESTS: usize = 1024;

/// A ring for requests that send. They are linked, so that none is made after one that failed, as in `sendmmsg`.
pub(crate) struct UringSend {
    ring: IoUring,
    /// What the kernel answered to each.
    results: Vec<i32>,
}

impl fmt::Debug for UringSend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringSend").field("requests", &self.results.len()).finish_non_exhaustive()
    }
}

impl UringSend {
    /// A ring for batches of `batch` datagrams.
    pub(crate) fn new(batch: usize) -> Result<Self> {
        let requests = batch.clamp(1, MAX_REQUESTS).next_power_of_two();
        let ring = IoUring::builder().build(requests as u32).map_err(refused)?;
        Ok(Self { ring, results: vec![0; requests] })
    }

    /// Sends datagrams as `sendmmsg` does without waiting: the number of those that were sent, in order.
    ///
    /// # Safety
    /// The headers lead to memory that stays readable during the call.
    pub(crate) unsafe fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        headers: &[libc::mmsghdr],
    ) -> std::result::Result<usize, SendError> {
        let mut sent = 0;
        for part in headers.chunks(self.results.len()) {
            // SAFETY: the caller's.
            sent += match unsafe { self.send_part(fd, part) } {
                Ok(()) => part.len(),
                Err(SendError { sent: more, error }) => {
                    return Err(SendError { sent: sent + more, error });
                }
            };
        }
        Ok(sent)
    }

    /// # Safety
    /// As [`UringSend::send`].
    unsafe fn send_part(
        &mut self,
        fd: BorrowedFd<'_>,
        headers: &[libc::mmsghdr],
    ) -> std::result::Result<(), SendError> {
        let none = |error| SendError { sent: 0, error };
        let mut queue = self.ring.submission();
        for (at, header) in headers.iter().enumerate() {
            let flags = match at + 1 == headers.len() {
                true => squeue::Flags::empty(),
                false => squeue::Flags::IO_LINK,
            };
            let request = opcode::SendMsg::new(Fd(fd.as_raw_fd()), &header.msg_hdr)
                .flags(libc::MSG_DONTWAIT as u32)
                .build()
                .user_data(at as u64)
                .flags(flags);
            // SAFETY: the headers stay until every request has completed, before this function returns.
            let pushed = unsafe { queue.push(&request) };
            debug_assert!(pushed.is_ok(), "the ring has as many entries as results");
        }
        drop(queue);
        let mut left = headers.len();
        while left > 0 {
            let answer = self.ring.submit_and_wait(left);
            for completion in self.ring.completion() {
                self.results[completion.user_data() as usize] = completion.result();
                left -= 1;
            }
            match answer.map_err(|error| (error.raw_os_error(), error)) {
                Ok(_) | Err((Some(libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => {}
                Err((_, error)) => {
                    // None may run any more when the headers go.
                    super::cancel_all(&self.ring);
                    return Err(none(error));
                }
            }
        }
        let results = &self.results[..headers.len()];
        match results.iter().position(|result| *result < 0) {
            None => Ok(()),
            Some(sent) => {
                Err(SendError { sent, error: io::Error::from_raw_os_error(-results[sent]) })
            }
        }
    }
}
