//! Calls that make, change, duplicate, pass on and close descriptors.
//!
//! What is not known here to leave the queue of a socket alone makes it plain: the program gets what was read ahead, and
//! nothing more is.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};

use libc::{mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use crate::epoll::Epoll;
use crate::next::{self, after, before};
use crate::receive;
use crate::table::{self, Entry, Socket};

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    let fd = unsafe { next::socket(domain, kind, protocol) };
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    if fd >= 0
        && matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & !flags == libc::SOCK_DGRAM
        && matches!(protocol, 0 | libc::IPPROTO_UDP)
    {
        table::insert(fd, kind & libc::SOCK_NONBLOCK != 0);
    }
    fd
}

before! {
    close(fd: c_int) -> c_int {
        if table::knows(fd) && table::is_own() {
            table::remove(fd);
        }
    }
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        if flags & libc::CLOSE_RANGE_UNSHARE as c_int != 0 {
            // Other threads keep the descriptors.
            table::make_all_plain("close_range with CLOSE_RANGE_UNSHARE");
        } else if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 && table::is_own() {
            table::remove_range(first, last);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    if table::is_own() {
        table::remove_range(first.max(0) as c_uint, c_uint::MAX);
    }
    // SAFETY: the caller's argument.
    unsafe { next::closefrom(first) };
}

/// The descriptor `new` is what `fd` is.
fn duplicated(fd: c_int, new: c_int) {
    if new < 0 || fd == new {
        return;
    }
    if table::is_own() {
        Epoll::duplicate(fd, new);
    }
    // Also in a child of vfork(2), which executes a program that has it.
    if let Some(socket) = table::enter(fd) {
        socket.make_plain("it was duplicated");
        socket.leave();
    }
    if (table::knows(fd) || table::knows(new)) && table::is_own() {
        table::remove(new);
        table::duplicate(fd, new);
    }
}

after! {
    dup(fd: c_int) -> new: c_int { duplicated(fd, new); }
    dup2(fd: c_int, to: c_int) -> new: c_int { duplicated(fd, new); }
    dup3(fd: c_int, to: c_int, flags: c_int) -> new: c_int { duplicated(fd, new); }
    accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> new: c_int { table::remove(new); }
    accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> new: c_int { table::remove(new); }
    fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> result: c_int {
        controlled(fd, command, argument, result);
    }
    fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> result: c_int {
        controlled(fd, command, argument, result);
    }
}

/// After the call of fcntl(2), whose third argument is a register in every calling convention that Linux has for it.
fn controlled(fd: c_int, command: c_int, argument: *mut c_void, result: c_int) {
    if result >= 0 && matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        return duplicated(fd, result);
    }
    let Some(socket) = (if result < 0 { None } else { table::enter(fd) }) else { return };
    match command {
        libc::F_SETFL => {
            let flags = argument as usize as c_int;
            socket.set_nonblocking(flags & libc::O_NONBLOCK != 0);
            if flags & libc::O_ASYNC != 0 {
                socket.make_plain("O_ASYNC");
            }
        }
        libc::F_GETFL | libc::F_GETFD | libc::F_SETFD | libc::F_GETOWN => {}
        _ => socket.make_plain(format_args!("fcntl {command} is unknown")),
    }
    socket.leave();
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    /// Queries and changes of interfaces and routes (include/uapi/linux/sockios.h).
    const INTERFACES: std::ops::RangeInclusive<c_ulong> = 0x8910..=0x89ff;
    // SAFETY: the caller's arguments.
    let result = unsafe { next::ioctl(fd, request, argument) };
    let Some(socket) = (if result < 0 { None } else { table::enter(fd) }) else { return result };
    match request {
        libc::FIONREAD => {
            if let Some(length) = socket.next_length() {
                // SAFETY: the kernel has written there.
                unsafe { *argument.cast::<c_int>() = length as c_int };
            }
        }
        // SAFETY: the kernel has read it.
        libc::FIONBIO => socket.set_nonblocking(unsafe { *argument.cast::<c_int>() } != 0),
        libc::TIOCOUTQ | libc::FIOCLEX | libc::FIONCLEX => {}
        request if INTERFACES.contains(&request) => {}
        _ => socket.make_plain(format_args!("ioctl {request:#x} is unknown")),
    }
    socket.leave();
    result
}

/// Whether a socket with this option is read ahead as before: it changes what arrives, what is sent, or the control data
/// that the queue keeps.
fn is_known(level: c_int, option: c_int) -> bool {
    /// include/uapi/asm-generic/socket.h: libc has no names for these.
    const SO_TIMESTAMP_NEW: c_int = 63;
    const SO_TIMESTAMPNS_NEW: c_int = 64;
    const SO_TIMESTAMPING_NEW: c_int = 65;
    const SO_RCVTIMEO_NEW: c_int = 66;
    const SO_SNDTIMEO_NEW: c_int = 67;
    /// include/uapi/linux/in.h: groups and their sources.
    const MCAST: std::ops::RangeInclusive<c_int> = 42..=48;
    match level {
        libc::SOL_SOCKET => matches!(
            option,
            libc::SO_ATTACH_BPF
                | libc::SO_ATTACH_FILTER
                | libc::SO_ATTACH_REUSEPORT_CBPF
                | libc::SO_ATTACH_REUSEPORT_EBPF
                | libc::SO_BINDTODEVICE
                | libc::SO_BROADCAST
                | libc::SO_DETACH_FILTER
                | libc::SO_DONTROUTE
                | libc::SO_INCOMING_CPU
                | libc::SO_KEEPALIVE
                | libc::SO_LINGER
                | libc::SO_MARK
                | libc::SO_PRIORITY
                | libc::SO_RCVBUF
                | libc::SO_RCVBUFFORCE
                | libc::SO_RCVTIMEO
                | libc::SO_REUSEADDR
                | libc::SO_REUSEPORT
                | libc::SO_RXQ_OVFL
                | libc::SO_SELECT_ERR_QUEUE
                | libc::SO_SNDBUF
                | libc::SO_SNDBUFFORCE
                | libc::SO_SNDTIMEO
                | libc::SO_TIMESTAMP
                | libc::SO_TIMESTAMPING
                | libc::SO_TIMESTAMPNS
                | SO_TIMESTAMP_NEW
                | SO_TIMESTAMPNS_NEW
                | SO_TIMESTAMPING_NEW
                | SO_RCVTIMEO_NEW
                | SO_SNDTIMEO_NEW
        ),
        libc::IPPROTO_IP => {
            MCAST.contains(&option)
                || matches!(
                    option,
                    libc::IP_ADD_MEMBERSHIP
                        | libc::IP_ADD_SOURCE_MEMBERSHIP
                        | libc::IP_BIND_ADDRESS_NO_PORT
                        | libc::IP_BLOCK_SOURCE
                        | libc::IP_DROP_MEMBERSHIP
                        | libc::IP_DROP_SOURCE_MEMBERSHIP
                        | libc::IP_FREEBIND
                        | libc::IP_MTU_DISCOVER
                        | libc::IP_MULTICAST_ALL
                        | libc::IP_MULTICAST_IF
                        | libc::IP_MULTICAST_LOOP
                        | libc::IP_MULTICAST_TTL
                        | libc::IP_PKTINFO
                        | libc::IP_RECVERR
                        | libc::IP_RECVORIGDSTADDR
                        | libc::IP_RECVTOS
                        | libc::IP_RECVTTL
                        | libc::IP_TOS
                        | libc::IP_TRANSPARENT
                        | libc::IP_TTL
                        | libc::IP_UNBLOCK_SOURCE
                )
        }
        libc::IPPROTO_IPV6 => {
            MCAST.contains(&option)
                || matches!(
                    option,
                    libc::IPV6_ADD_MEMBERSHIP
                        | libc::IPV6_AUTOFLOWLABEL
                        | libc::IPV6_DONTFRAG
                        | libc::IPV6_DROP_MEMBERSHIP
                        | libc::IPV6_FREEBIND
                        | libc::IPV6_MTU
                        | libc::IPV6_MTU_DISCOVER
                        | libc::IPV6_MULTICAST_HOPS
                        | libc::IPV6_MULTICAST_IF
                        | libc::IPV6_MULTICAST_LOOP
                        | libc::IPV6_RECVERR
                        | libc::IPV6_RECVHOPLIMIT
                        | libc::IPV6_RECVPKTINFO
                        | libc::IPV6_RECVTCLASS
                        | libc::IPV6_TCLASS
                        | libc::IPV6_TRANSPARENT
                        | libc::IPV6_UNICAST_HOPS
                        | libc::IPV6_V6ONLY
                )
        }
        libc::IPPROTO_UDP => matches!(option, libc::UDP_CORK | libc::UDP_SEGMENT),
        _ => false,
    }
}

before! {
    setsockopt(fd: c_int, level: c_int, option: c_int, value: *const c_void, length: socklen_t) -> c_int {
        // Before: once the option has its effect, nothing more is read ahead.
        if let Some(socket) = table::enter(fd) {
            if !is_known(level, option) {
                socket.make_plain(format_args!("option {option} of level {level} is unknown"));
            }
            socket.leave();
        }
    }
    shutdown(fd: c_int, how: c_int) -> c_int {
        if let Some(socket) = table::enter(fd) {
            socket.make_plain("shutdown");
            socket.leave();
        }
    }
}

/// splice(2) of a queue is not possible: it is refused as for a file that has no splice, and programs read then.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn splice(
    fd: c_int,
    offset: *mut libc::loff_t,
    output: c_int,
    output_offset: *mut libc::loff_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    if let Some(socket) = table::enter(fd) {
        socket.make_plain("splice");
        let holds = socket.holds();
        socket.leave();
        if holds {
            next::set_errno(libc::EINVAL);
            return -1;
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { next::splice(fd, offset, output, output_offset, length, flags) }
}

/// The stream reads and closes the descriptor without the functions of this library.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> isize {
    // SAFETY: the caller's string.
    let reads = !mode.is_null()
        && unsafe { CStr::from_ptr(mode) }.to_bytes().iter().any(|c| b"r+".contains(c));
    if table::enter(fd).is_some_and(Socket::has_messages) {
        if reads {
            // The stream could not have them.
            next::set_errno(libc::EMFILE);
            return 0;
        }
        // SAFETY: the caller's arguments.
        return unsafe { next::fdopen(fd, mode) };
    }
    // SAFETY: the caller's arguments.
    let stream = unsafe { next::fdopen(fd, mode) };
    if stream != 0
        && let Some(socket) = table::enter(fd)
    {
        socket.pass_on("fdopen");
        socket.leave();
        table::remove(fd);
    }
    stream
}

/// Sockets in the control data of a message go to another process.
///
/// # Safety
///
/// The header is one for sendmsg(2).
unsafe fn pass_rights(message: &msghdr) {
    if message.msg_control.is_null() || message.msg_controllen == 0 {
        return;
    }
    // SAFETY: the caller's control data.
    let mut one = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !one.is_null() {
        // SAFETY: not null, so one of the buffer.
        let (kind, length) = unsafe { (((*one).cmsg_level, (*one).cmsg_type), (*one).cmsg_len) };
        if kind == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: the descriptors behind its header, as many as have room in its length.
            let count = length.saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize) / 4;
            for index in 0..count {
                // SAFETY: as above.
                let fd =
                    unsafe { libc::CMSG_DATA(one).cast::<c_int>().add(index).read_unaligned() };
                if let Some(socket) = table::enter(fd) {
                    socket.pass_on("it was passed to another process");
                    socket.leave();
                }
            }
        }
        // SAFETY: both are the caller's.
        one = unsafe { libc::CMSG_NXTHDR(message, one) };
    }
}

before! {
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        // SAFETY: null, or the caller's header.
        if let Some(message) = unsafe { message.as_ref() } {
            // SAFETY: as above.
            unsafe { pass_rights(message) };
        }
    }
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        for index in (0..count as usize).filter(|_| !messages.is_null()) {
            // SAFETY: one of the caller's headers.
            unsafe { pass_rights(&(*messages.add(index)).msg_hdr) };
        }
    }
    /// A process that has copies of all descriptors, and for which no handler of fork(3) runs.
    clone(function: *mut c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut c_void,
        tls: *mut c_void, child: *mut c_void) -> c_int { table::make_all_plain("clone"); }
    _Fork() -> c_int { table::make_all_plain("_Fork"); }
    unshare(flags: c_int) -> c_int {
        if flags & libc::CLONE_FILES != 0 {
            table::make_all_plain("unshare(CLONE_FILES)");
        }
    }
    /// A seccomp filter may forbid the system calls of this library.
    prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
        if option == libc::PR_SET_SECCOMP {
            table::make_all_plain("seccomp");
        }
    }
}

/// System calls without their functions.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let fd = a as c_int;
    match number {
        libc::SYS_close if table::knows(fd) && table::is_own() => table::remove(fd),
        libc::SYS_close_range => {
            // SAFETY: the caller's arguments.
            return unsafe { close_range(a as c_uint, b as c_uint, c as c_int) }.into();
        }
        libc::SYS_read => {
            // SAFETY: the caller's arguments.
            return unsafe { receive::read(fd, b as *mut c_void, c as size_t) } as c_long;
        }
        libc::SYS_recvfrom => {
            let (flags, address) = (d as c_int, e as *mut sockaddr);
            // SAFETY: the caller's arguments.
            return unsafe {
                receive::recvfrom(
                    fd,
                    b as *mut c_void,
                    c as size_t,
                    flags,
                    address,
                    f as *mut socklen_t,
                )
            } as c_long;
        }
        libc::SYS_recvmsg => {
            // SAFETY: the caller's arguments.
            return unsafe { receive::recvmsg(fd, b as *mut msghdr, c as c_int) } as c_long;
        }
        libc::SYS_recvmmsg => {
            let (count, flags) = (c as c_uint, d as c_int);
            // SAFETY: the caller's arguments.
            return unsafe {
                receive::recvmmsg(fd, b as *mut mmsghdr, count, flags, e as *mut libc::timespec)
            }
            .into();
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => {
            // SAFETY: the caller's arguments.
            return unsafe { dup2(fd, b as c_int) }.into();
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait
        | libc::SYS_fork
        | libc::SYS_poll
        | libc::SYS_select
        | libc::SYS_vfork => {
            table::make_all_plain("a system call that is not made by its function");
        }
        libc::SYS_dup3 => {
            // SAFETY: the caller's arguments.
            return unsafe { dup3(fd, b as c_int, c as c_int) }.into();
        }
        libc::SYS_clone
        | libc::SYS_clone3
        | libc::SYS_epoll_ctl
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_execve
        | libc::SYS_execveat
        | libc::SYS_io_uring_setup
        | libc::SYS_pidfd_getfd
        | libc::SYS_ppoll
        | libc::SYS_prctl
        | libc::SYS_pselect6
        | libc::SYS_seccomp
        | libc::SYS_sendmmsg
        | libc::SYS_sendmsg
        | libc::SYS_unshare => {
            table::make_all_plain("a system call that is not made by its function");
        }
        _ if table::entry(fd).is_some_and(Entry::is_socket) && number != libc::SYS_futex => {
            if let Some(socket) = table::enter(fd) {
                socket.make_plain("a system call that is not made by its function");
                socket.leave();
            }
        }
        _ => {}
    }
    // SAFETY: the caller's arguments.
    unsafe { next::syscall(number, a, b, c, d, e, f) }
}
