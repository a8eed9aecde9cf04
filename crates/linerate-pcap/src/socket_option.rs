//! `setsockopt(2)`, for programs that set `PACKET_FANOUT` on the descriptor of a handle: it is a packet socket only where
//! the source is one. All other calls go to the C library.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::handles;
use crate::warn::warn;

type SetOption = unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, libc::socklen_t) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    socket: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: libc::socklen_t,
) -> c_int {
    static SYSTEM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut errno = libc::ENOSYS;
    if level == libc::SOL_PACKET
        && option == libc::PACKET_FANOUT
        && let Some(device) = handles::without_socket(socket)
    {
        warn(format_args!(
            "{device}: PACKET_FANOUT of the program is for packet sockets: use --source packet, or --cluster"
        ));
        errno = libc::EOPNOTSUPP;
    } else {
        let mut address = SYSTEM.load(Ordering::Acquire);
        if address.is_null() {
            // SAFETY: a name that ends in a zero; the next object behind this one that has it.
            address = unsafe { libc::dlsym(libc::RTLD_NEXT, c"setsockopt".as_ptr()) };
            SYSTEM.store(address, Ordering::Release);
        }
        // SAFETY: null, or the function of this name, with the type that POSIX gives it.
        let system = unsafe { std::mem::transmute::<*mut c_void, Option<SetOption>>(address) };
        if let Some(system) = system {
            // SAFETY: the caller's arguments.
            return unsafe { system(socket, level, option, value, length) };
        }
    }
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}
