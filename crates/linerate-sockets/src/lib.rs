#![doc = include_str!("../README.md")]
//!
//! ```text
//!   program ── socket, close, dup, fcntl, setsockopt, exec ... ──> descriptors, execute: what the table has
//!           ── recv, recvfrom, recvmsg, recvmmsg, read, readv ──> receive: from the queue; recvmmsg fills it
//!           ── poll, select ──> readiness; epoll_wait ──> epoll: queues that are not empty are readable
//! ```

mod descriptors;
mod epoll;
mod execute;
mod lock;
mod log;
mod next;
mod queue;
mod readiness;
mod receive;
mod table;
mod waiting;

/// Before the program's own constructors.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn start() {
        next::resolve_all();
        log::start();
        table::start();
    }
    start
};

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = {
    extern "C" fn end() {
        log::end();
    }
    end
};
