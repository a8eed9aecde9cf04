//! The C library's functions, behind those of this library that have their names.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};

/// A function that is looked up when it is first called.
pub(crate) struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Its address, or null where this C library does not have it.
    #[inline]
    pub(crate) fn resolve(&self) -> *mut c_void {
        let mut address = self.address.load(Ordering::Acquire);
        if address.is_null() {
            // SAFETY: a name that ends in a zero; the next object behind this one that has it.
            address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.address.store(address, Ordering::Release);
        }
        address
    }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() }
}

/// Each becomes a function of that name that calls the next one, and `resolve_all`, which looks all up: a signal
/// handler may be the first to call one, and cannot ask the loader.
macro_rules! next {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        mod symbols {
            $(#[allow(non_upper_case_globals)]
            pub(super) static $name: super::Symbol = {
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => super::Symbol::new(name),
                    Err(_) => panic!("a name without zeros"),
                }
            };)*
        }

        $(#[allow(non_snake_case)]
        pub(crate) unsafe fn $name($($argument: $kind),*) -> $result {
            type Function = unsafe extern "C-unwind" fn($($kind),*) -> $result;
            // SAFETY: null, or the function of this name, with the type of its declaration in glibc's headers.
            match unsafe { std::mem::transmute::<*mut c_void, Option<Function>>(symbols::$name.resolve()) } {
                // SAFETY: the caller's arguments.
                Some(function) => unsafe { function($($argument),*) },
                None => {
                    set_errno(libc::ENOSYS);
                    -1
                }
            }
        })*

        pub(crate) fn resolve_all() {
            $(symbols::$name.resolve();)*
        }
    };
}

next! {
    recv(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int, address: *mut sockaddr,
        address_length: *mut socklen_t) -> ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t;
    readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
    __recv_chk(fd: c_int, buffer: *mut c_void, length: size_t, size: size_t, flags: c_int) -> ssize_t;
    __recvfrom_chk(fd: c_int, buffer: *mut c_void, length: size_t, size: size_t, flags: c_int,
        address: *mut sockaddr, address_length: *mut socklen_t) -> ssize_t;
    __read_chk(fd: c_int, buffer: *mut c_void, length: size_t, size: size_t) -> ssize_t;
    preadv2(fd: c_int, vectors: *const iovec, count: c_int, offset: libc::off_t, flags: c_int) -> ssize_t;
    accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    clone(function: *mut c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut c_void,
        tls: *mut c_void, child: *mut c_void) -> c_int;
    _Fork() -> c_int;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, size: size_t) -> c_int;
    __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        size: size_t) -> c_int;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec,
        mask: *const sigset_t) -> c_int;
    epoll_create(size: c_int) -> c_int;
    epoll_create1(flags: c_int) -> c_int;
    epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_wait(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int;
    epoll_pwait(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int,
        mask: *const sigset_t) -> c_int;
    epoll_pwait2(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec,
        mask: *const sigset_t) -> c_int;
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    setsockopt(fd: c_int, level: c_int, option: c_int, value: *const c_void, length: socklen_t) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, new: c_int) -> c_int;
    dup3(fd: c_int, new: c_int, flags: c_int) -> c_int;
    fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int;
    fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int;
    ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
    splice(fd: c_int, offset: *mut libc::loff_t, output: c_int, output_offset: *mut libc::loff_t, length: size_t,
        flags: c_uint) -> ssize_t;
    execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execv(path: *const c_char, arguments: *const *const c_char) -> c_int;
    execvp(file: *const c_char, arguments: *const *const c_char) -> c_int;
    execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execveat(folder: c_int, path: *const c_char, arguments: *const *const c_char,
        environment: *const *const c_char, flags: c_int) -> c_int;
    system(command: *const c_char) -> c_int;
    popen(command: *const c_char, kind: *const c_char) -> isize;
    posix_spawn(pid: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    posix_spawnp(pid: *mut libc::pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, new: c_int) -> c_int;
    fdopen(fd: c_int, mode: *const c_char) -> isize;
    closefrom(first: c_int) -> c_int;
    prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
    unshare(flags: c_int) -> c_int;
    syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
}

/// Functions that note what they are asked for, and then do what the next one of their name does.
macro_rules! before {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty $note:block)*) => {
        $($(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $result {
            $note
            // SAFETY: the caller's arguments.
            unsafe { $crate::next::$name($($argument),*) }
        })*
    };
}

/// Functions that do what the next one of their name does, and then note its result.
macro_rules! after {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $value:ident: $result:ty $note:block)*) => {
        $(#[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $result {
            // SAFETY: the caller's arguments.
            let $value = unsafe { $crate::next::$name($($argument),*) };
            $note
            $value
        })*
    };
}

/// Functions that have the size of the caller's buffer. Where it is too small, the C library's ends the program.
macro_rules! checked {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty, $is_too_small:expr,
        $function:ident($($passed:ident),*);)*) => {
        $(#[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $result {
            if $is_too_small {
                // SAFETY: the caller's arguments.
                return unsafe { $crate::next::$name($($argument),*) };
            }
            // SAFETY: the caller's arguments.
            unsafe { $function($($passed),*) }
        })*
    };
}

pub(crate) use {after, before, checked};
