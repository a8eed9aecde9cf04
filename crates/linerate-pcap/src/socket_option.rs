//! `setsockopt(2)`, for programs that set `PACKET_FANOUT` on the descriptor of a handle: it is a packet socket only where
//! the source is one. All other calls go to the C library.

use std::ffi::{c_int, c_void};

use crate::handles;
use crate::system::InterposedSymbol;
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
    static SYSTEM: InterposedSymbol = InterposedSymbol::new(c"setsockopt");
    let is_fanout = level == libc::SOL_PACKET && option == libc::PACKET_FANOUT;
    let errno = if let Some(device) = is_fanout.then(|| handles::without_socket(socket)).flatten() {
        warn(format_args!(
            "{device}: PACKET_FANOUT of the program is for packet sockets: use --source packet, or --cluster"
        ));
        libc::EOPNOTSUPP
    } else {
        // SAFETY: null, or the function of this name, with the type that POSIX gives it.
        match unsafe { std::mem::transmute::<*mut c_void, Option<SetOption>>(SYSTEM.resolve()) } {
            // SAFETY: the caller's arguments.
            Some(system) => return unsafe { system(socket, level, option, value, length) },
            None => libc::ENOSYS,
        }
    };
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}
