//! Lines on standard error, without the allocation and the lock of the standard library's.

use std::ffi::c_int;
use std::fmt::{self, Display, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::queue;

static LOGS: AtomicBool = AtomicBool::new(false);
static QUIET: AtomicBool = AtomicBool::new(false);

/// Text on the stack, cut where it has no room.
pub(crate) struct Line {
    length: usize,
    bytes: [u8; 256],
}

impl Line {
    pub(crate) fn new() -> Self {
        Self { length: 0, bytes: [0; 256] }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let length = text.len().min(room.len());
        room[..length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
        Ok(())
    }
}

fn print(text: fmt::Arguments<'_>) {
    let mut line = Line::new();
    let _ = writeln!(line, "linerate: {text}");
    // SAFETY: initialised bytes. A program may have closed standard error.
    unsafe { libc::write(2, line.bytes().as_ptr().cast(), line.length) };
}

/// With `LINERATE_LOG`: why nothing is read ahead any more.
#[cold]
pub(crate) fn plain(fd: c_int, reason: impl Display) {
    if LOGS.load(Ordering::Relaxed) {
        let process = std::process::id();
        print(format_args!("process {process}, UDP socket {fd}: plain from now on: {reason}"));
    }
}

/// Messages were read ahead that the program cannot get any more.
#[cold]
pub(crate) fn lost(fd: c_int, count: u32, reason: &str) {
    if !QUIET.load(Ordering::Relaxed) {
        print(format_args!(
            "UDP socket {fd}: {count} messages that were read ahead are lost: {reason}"
        ));
    }
}

pub(crate) fn start() {
    let is_set =
        |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    LOGS.store(is_set("LINERATE_LOG"), Ordering::Relaxed);
    QUIET.store(is_set("LINERATE_QUIET"), Ordering::Relaxed);
}

pub(crate) fn end() {
    let (messages, reads) =
        (queue::MESSAGES.load(Ordering::Relaxed), queue::READS.load(Ordering::Relaxed));
    if LOGS.load(Ordering::Relaxed) && reads > 0 {
        print(format_args!("{messages} UDP messages were read ahead, in {reads} calls"));
    }
}
