//! The sockets that one call waits for.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use crate::queue::Queue;
use crate::table::{self, Socket};

/// The sockets with a queue that one call waits for at most; others are plain.
const SOCKETS: usize = 64;

pub(crate) struct Waiting {
    count: usize,
    sockets: [MaybeUninit<Socket>; SOCKETS],
}

impl Waiting {
    pub(crate) fn new() -> Self {
        Self { count: 0, sockets: [const { MaybeUninit::uninit() }; SOCKETS] }
    }

    /// Begins to wait for a descriptor. Returns how many messages it has; then the call may not wait.
    #[inline]
    pub(crate) fn add(&mut self, fd: c_int) -> u32 {
        let Some((socket, queue)) = table::begin_waiting(fd) else { return 0 };
        let held = queue.map_or(0, |queue| look(socket, queue));
        if held > 0 {
            socket.stop_waiting();
        } else if self.count < SOCKETS {
            self.sockets[self.count].write(socket);
            self.count += 1;
        } else {
            if let Some(socket) = table::enter(fd) {
                socket.make_plain(
                    "one call waits for more UDP sockets than Linerate keeps a list of",
                );
                socket.leave();
            }
            socket.stop_waiting();
        }
        held
    }

    /// The call has returned. No destructor: a thread that is cancelled while it waits passes none, and then nothing is
    /// read ahead from its sockets any more.
    pub(crate) fn end(self) {
        for socket in &self.sockets[..self.count] {
            // SAFETY: `add` has written it.
            let socket = unsafe { socket.assume_init() };
            socket.stop_waiting();
        }
    }
}

/// How many messages a socket has, for a thread that is counted as waiting and has entered. It leaves.
#[inline]
fn look(socket: Socket, queue: &Queue) -> u32 {
    let mut held = 0;
    if !queue.is_idle(table::process())
        && let Some(mut locked) = queue.lock()
    {
        socket.note_use(&mut locked);
        held = queue.held();
        locked.unlock();
    }
    socket.leave();
    held
}
