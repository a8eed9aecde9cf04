//! [`Drops`]: what a socket lost, asked of the kernel when somebody wants to know.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use super::get;

/// `SO_MEMINFO` of `asm-generic/socket.h`, which costs nothing a message, unlike `SO_RXQ_OVFL`.
const SO_MEMINFO: i32 = 55;
/// Where `sk_drops` stands in it (`SK_MEMINFO_DROPS` of `linux/sock_diag.h`).
const DROPS: usize = 8;

/// What a socket had lost when it was last asked, with 64 bits where the kernel has 32.
///
/// `sk_drops` counts messages without room and messages with a wrong checksum together. The namespace
/// counts the latter for all its sockets, so they are told apart as well as that allows: exactly where no
/// other socket meets wrong checksums.
#[derive(Debug)]
pub(crate) struct Drops {
    last: u32,
    total: u64,
    /// Counters of the namespace; absent where /proc is.
    counters: Option<File>,
    v6: bool,
    checksum_before: u64,
}

impl Drops {
    /// Starts to count for `fd`, a socket of this thread's network namespace.
    pub(crate) fn start(fd: BorrowedFd<'_>, v6: bool) -> io::Result<Self> {
        let file = if v6 { "/proc/thread-self/net/snmp6" } else { "/proc/thread-self/net/snmp" };
        let mut drops = Self {
            last: count(fd)?,
            total: 0,
            counters: File::open(file).ok(),
            v6,
            checksum_before: 0,
        };
        drops.checksum_before = drops.checksum_errors();
        Ok(drops)
    }

    /// Messages lost for want of room, and for a wrong checksum.
    pub(crate) fn read(&mut self, fd: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
        let now = count(fd)?;
        self.total += u64::from(now.wrapping_sub(self.last));
        self.last = now;
        let wrong = self.checksum_errors().saturating_sub(self.checksum_before).min(self.total);
        Ok((self.total - wrong, wrong))
    }

    /// `InCsumErrors` of UDP in the namespace.
    fn checksum_errors(&self) -> u64 {
        let mut bytes = [0; 8192];
        let Some(Ok(len)) = self.counters.as_ref().map(|file| file.read_at(&mut bytes, 0)) else {
            return 0;
        };
        let text = std::str::from_utf8(&bytes[..len]).unwrap_or_default();
        if self.v6 { named(text) } else { columned(text) }.unwrap_or(0)
    }
}

fn count(fd: BorrowedFd<'_>) -> io::Result<u32> {
    get::<9>(fd, libc::SOL_SOCKET, SO_MEMINFO).map(|info| info[DROPS])
}

/// `/proc/net/snmp6`: a name and a number on each line.
fn named(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("Udp6InCsumErrors"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// `/proc/net/snmp`: a line of names and a line of numbers for each protocol.
fn columned(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let column = lines.next()?.split(' ').position(|name| name == "InCsumErrors")?;
    lines.next()?.split(' ').nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_this_kernel_have_checksum_errors() {
        let read = |file| std::fs::read_to_string(file).unwrap();
        assert!(columned(&read("/proc/net/snmp")).is_some());
        if let Ok(text) = std::fs::read_to_string("/proc/net/snmp6") {
            assert!(named(&text).is_some());
        }
    }
}
