//! [`SocketDrops`]: what a socket lost, queried from the kernel on demand.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use super::get;
use crate::message::Drops;
use crate::versions::Versions;

/// `SO_MEMINFO` of `asm-generic/socket.h`, which costs nothing a message, unlike `SO_RXQ_OVFL`.
const SO_MEMINFO: i32 = 55;
/// The index of `sk_drops` in it (`SK_MEMINFO_DROPS` of `linux/sock_diag.h`).
const DROPS: usize = 8;

/// What a socket had lost at the last query, in 64 bits where the kernel has 32.
///
/// The kernel keeps no account of causes for a socket. `sk_drops` counts messages without room, those that a filter or
/// an IPsec policy rejects, and those whose checksum turned out to be wrong when they were copied, which is when long
/// ones are summed. Short ones (`CHECKSUM_BREAK` in `linux/skbuff.h`) are summed before their socket is looked for, and
/// counted for the namespace alone. So the namespace's counts tell the causes apart: exactly where no other socket of it
/// loses anything; else a wrong checksum of another socket is counted here, too.
#[derive(Debug)]
pub(crate) struct SocketDrops {
    last: u32,
    total: u64,
    /// Counters of the namespace, of IPv4 and of IPv6; absent where /proc is, or the socket has no such messages.
    counters: [Option<File>; 2],
    before: Errors,
}

/// What the UDP sockets of a namespace lost, since it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Errors {
    checksum: u64,
    /// For want of room: in the socket's buffer, or in what all may have (net.ipv4.udp_mem).
    room: u64,
    /// For any other reason.
    other: u64,
}

impl SocketDrops {
    /// Starts to count for `fd`, a socket of this thread's network namespace.
    pub(crate) fn start(fd: BorrowedFd<'_>, versions: Versions) -> io::Result<Self> {
        let open = |file, on: bool| if on { File::open(file).ok() } else { None };
        let v4 = open("/proc/thread-self/net/snmp", versions.v4);
        let v6 = open("/proc/thread-self/net/snmp6", versions.v6);
        Self::with([v4, v6], fd)
    }

    /// The same for another reader of the socket, whichever the namespace of its thread.
    pub(crate) fn for_socket(&self, fd: BorrowedFd<'_>) -> io::Result<Self> {
        let other = self.counters.each_ref().map(|file| file.as_ref()?.try_clone().ok());
        Self::with(other, fd)
    }

    fn with(counters: [Option<File>; 2], fd: BorrowedFd<'_>) -> io::Result<Self> {
        let before = Errors::default();
        let mut drops = Self { last: count(fd)?, total: 0, counters, before };
        match drops.errors() {
            Some(errors) => drops.before = errors,
            // Without those of the start, later ones say nothing of this socket.
            None => drops.counters = [None, None],
        }
        Ok(drops)
    }

    /// Messages lost in the socket, by cause.
    pub(crate) fn read(&mut self, fd: BorrowedFd<'_>) -> io::Result<Drops> {
        let now = count(fd)?;
        self.total += u64::from(now.wrapping_sub(self.last));
        self.last = now;
        let Some(errors) = self.errors() else {
            return Ok(Drops { socket_buffer: self.total, ..Drops::default() });
        };
        let since = Errors {
            checksum: errors.checksum.saturating_sub(self.before.checksum),
            room: errors.room.saturating_sub(self.before.room),
            other: errors.other.saturating_sub(self.before.other),
        };
        Ok(since.shared_out(self.total))
    }

    fn errors(&self) -> Option<Errors> {
        let [v4, v6] = &self.counters;
        let v4 = v4.as_ref().map(|file| errors(file, columned));
        let v6 = v6.as_ref().map(|file| errors(file, named));
        // Where one is there and cannot be read, the sum is unknown.
        let all = v4.into_iter().chain(v6).collect::<Option<Vec<_>>>()?;
        all.into_iter().reduce(|one, other| Errors {
            checksum: one.checksum + other.checksum,
            room: one.room + other.room,
            other: one.other + other.other,
        })
    }
}

impl Errors {
    /// `drops` that a socket counts by their causes, and all messages with a wrong checksum.
    fn shared_out(self, drops: u64) -> Drops {
        let socket_buffer = self.room.min(drops);
        let other = self.other.min(drops - socket_buffer);
        let checksum = self.checksum.max(drops - socket_buffer - other);
        Drops { socket_buffer, checksum, other, ..Drops::default() }
    }
}

fn count(fd: BorrowedFd<'_>) -> io::Result<u32> {
    get::<9>(fd, libc::SOL_SOCKET, SO_MEMINFO).map(|info| info[DROPS])
}

fn errors(file: &File, find: fn(&str, &str) -> Option<u64>) -> Option<Errors> {
    let mut bytes = [0; 8192];
    let len = file.read_at(&mut bytes, 0).ok()?;
    let text = std::str::from_utf8(&bytes[..len]).unwrap_or_default();
    let value = |name| find(text, name);
    let checksum = value("InCsumErrors")?;
    let room = value("RcvbufErrors")? + value("MemErrors").unwrap_or(0);
    Some(Errors { checksum, room, other: value("InErrors")?.saturating_sub(checksum + room) })
}

/// `/proc/net/snmp6`: a name and a number on each line.
fn named(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp6")?.strip_prefix(name));
    lines.next()?.trim().parse().ok()
}

/// `/proc/net/snmp`: a line of names and a line of numbers for each protocol.
fn columned(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let column = lines.next()?.split(' ').position(|found| found == name)?;
    lines.next()?.split(' ').nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_counts_what_is_asked_for() {
        let read = |file| std::fs::read_to_string(file).unwrap();
        for name in ["InErrors", "InCsumErrors", "RcvbufErrors"] {
            assert!(columned(&read("/proc/net/snmp"), name).is_some(), "{name}");
            if let Ok(text) = std::fs::read_to_string("/proc/net/snmp6") {
                assert!(named(&text, name).is_some(), "{name}");
            }
        }
    }

    #[test]
    fn causes_are_told_apart() {
        let shared_out = |checksum, room, other, drops| {
            let found = Errors { checksum, room, other }.shared_out(drops);
            (found.checksum, found.socket_buffer, found.other)
        };
        // Short messages are in no socket's count, long ones are.
        assert_eq!(shared_out(3, 0, 0, 0), (3, 0, 0));
        assert_eq!(shared_out(3, 0, 0, 3), (3, 0, 0));
        assert_eq!(shared_out(0, 7, 0, 7), (0, 7, 0));
        assert_eq!(shared_out(3, 7, 0, 8), (3, 7, 0));
        assert_eq!(shared_out(3, 7, 2, 9), (3, 7, 2));
        // Another socket lost for want of room, and by its filter.
        assert_eq!(shared_out(0, 9, 0, 2), (0, 2, 0));
        assert_eq!(shared_out(0, 0, 9, 2), (0, 0, 2));
    }
}
