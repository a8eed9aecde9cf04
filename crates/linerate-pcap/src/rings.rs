//! `setsockopt(2)`, for programs that open packet sockets themselves: a ring that one asks for is made of the
//! memory that `linerate run --ring-allocation` names, on a kernel that lets programs choose. Where it cannot
//! be, the ring is what the program asked for, and one line says why. Everything else goes to the kernel as
//! it is.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::{LazyLock, Mutex, Once, PoisonError};

use linerate_ring::packet::Allocation;

use crate::say::say;

/// What `LINERATE_RING_ALLOCATION` has; a word that makes no sense is named when a handle is activated.
static CHOSEN: LazyLock<Allocation> = LazyLock::new(|| {
    let word = std::env::var("LINERATE_RING_ALLOCATION").ok();
    word.and_then(|word| word.parse().ok()).unwrap_or_default()
});

/// A request for a ring, as the program wrote it; the longest is `struct tpacket_req3`.
type Asked = Vec<u8>;

/// Sockets, by their cookies, of which a ring is of huge pages: the request, and the option for such a ring.
static HUGE: Mutex<Option<HashMap<u64, (Asked, c_int)>>> = Mutex::new(None);

/// The kernel's call: what the C library's function is, without a way to have it taken over again.
///
/// # Safety
/// As for `setsockopt`.
unsafe fn kernel(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, value, len) as c_int }
}

fn set(fd: c_int, option: c_int, request: &[u8]) -> io::Result<()> {
    // SAFETY: the request is readable for its length.
    let answer = unsafe {
        kernel(
            fd,
            libc::SOL_PACKET,
            option,
            request.as_ptr().cast(),
            request.len() as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A number that the kernel gives to one socket only, however many descriptors it has.
fn cookie(fd: c_int) -> Option<u64> {
    let (mut cookie, mut len) = (0u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: room for what is asked for.
    let answer = unsafe {
        let value = (&raw mut cookie).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, value, &mut len)
    };
    (answer == 0).then_some(cookie)
}

fn told(option: c_int, allocation: Allocation, error: &io::Error) {
    static ONCE: Once = Once::new();
    let direction = if option == libc::PACKET_RX_RING { "receive" } else { "transmit" };
    ONCE.call_once(|| match error.raw_os_error() {
        Some(libc::ENOPROTOOPT) => say(format_args!(
            "--ring-allocation {allocation}: this kernel does not let programs choose the memory of packet \
             rings; that takes the patches in Linerate's kernel/"
        )),
        _ => say(format_args!(
            "--ring-allocation {allocation}: the program's {direction} ring is not of that memory: {error}"
        )),
    });
}

/// Sets the ring of the chosen memory; an error leaves the socket ready for one of any.
fn choose(fd: c_int, option: c_int, asked: &[u8], allocation: Allocation) -> io::Result<()> {
    let cookie = cookie(fd).ok_or_else(io::Error::last_os_error)?;
    let mut sockets = HUGE.lock().unwrap_or_else(PoisonError::into_inner);
    let sockets = sockets.get_or_insert_default();
    let result = set(fd, allocation.option(option == libc::PACKET_TX_RING), asked);
    match (&result, allocation) {
        (Ok(()), Allocation::TransparentHuge) => {
            sockets.insert(cookie, (asked.to_vec(), option));
        }
        // Both rings of a socket are of huge pages, or none is: they are mapped as one.
        (Err(_), Allocation::TransparentHuge) => {
            if let Some((other, its_option)) = sockets.remove(&cookie)
                && its_option != option
            {
                set(fd, its_option, &vec![0; other.len()])?;
                set(fd, its_option, &other)?;
            }
        }
        _ => {}
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> c_int {
    let ring =
        level == libc::SOL_PACKET && [libc::PACKET_RX_RING, libc::PACKET_TX_RING].contains(&name);
    let allocation = if ring { *CHOSEN } else { Allocation::Any };
    // The first fields are those of the shorter request. Where nothing was chosen, only the kernel looks at it.
    if allocation != Allocation::Any
        && len as usize >= size_of::<libc::tpacket_req>()
        && !value.is_null()
    {
        // SAFETY: the caller says that `len` bytes are readable.
        let asked = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len as usize) };
        let releases = asked[4..8] == [0; 4];
        match allocation {
            _ if releases => {}
            // The program maps its socket, and would have to map memory of ours in its place.
            Allocation::HugeTlb => told(
                name,
                allocation,
                &io::Error::other(
                    "a program's own rings can be transhuge, which is huge pages, too",
                ),
            ),
            _ => match choose(fd, name, asked, allocation) {
                Ok(()) => return 0,
                Err(error) => told(name, allocation, &error),
            },
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { kernel(fd, level, name, value, len) }
}
