//! Requests for rings (`PACKET_RX_RING`, `PACKET_TX_RING`), and the memory that they get.

use std::cell::Cell;
use std::ffi::c_int;
use std::fmt;
use std::io;
use std::sync::{LazyLock, Once};

use linerate_ring::Error;
use linerate_ring::packet::Allocation;
use linerate_ring::region::huge_page_size;

use super::kernel::{self, set};
use super::memory::Memory;
use super::sockets::{self, LentMemory, RingRequest, Socket, Sockets};
use crate::warn::warn;

/// The value of `LINERATE_RING_ALLOCATION`; an invalid one is reported when a handle is activated.
static CHOSEN: LazyLock<Allocation> = LazyLock::new(|| {
    let word = std::env::var("LINERATE_RING_ALLOCATION").ok();
    word.and_then(|word| word.parse().ok()).unwrap_or_default()
});

thread_local! {
    /// Whether the rings that this thread sets are this library's.
    static FOR_LIBRARY: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; its rings are this library's and get the memory that they ask for.
pub(crate) fn for_library<T>(work: impl FnOnce() -> T) -> T {
    /// Restores the flag, also where `work` unwinds.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            FOR_LIBRARY.set(self.0);
        }
    }
    let _before = Before(FOR_LIBRARY.replace(true));
    work()
}

/// Whether a ring of this thread is the program's and gets the configured memory.
pub(super) fn is_from_program() -> bool {
    *CHOSEN != Allocation::Any && !FOR_LIBRARY.get()
}

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It has been done.
    Done,
    /// The kernel gets it unchanged.
    Pass,
    /// It fails, with this in `errno`.
    Fail(c_int),
}

impl From<io::Result<()>> for Outcome {
    fn from(result: io::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(error) => Self::Fail(error.raw_os_error().unwrap_or(libc::EINVAL)),
        }
    }
}

/// The options of the two rings, in the order in which a socket maps them.
const OPTIONS: [c_int; 2] = [libc::PACKET_RX_RING, libc::PACKET_TX_RING];

/// `tp_block_size` and `tp_block_nr`, which every request begins with.
fn blocks(request: &[u8]) -> (usize, usize) {
    let word =
        |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("four")) as usize;
    (word(0), word(4))
}

/// A ring of this kind, at least as long as `struct tpacket_req`.
pub(super) fn ring(sockets: &mut Sockets, fd: c_int, option: c_int, request: &[u8]) -> Outcome {
    let Some(cookie) = kernel::cookie(fd) else { return Outcome::Pass };
    let direction = usize::from(option == libc::PACKET_TX_RING);
    if blocks(request).1 == 0 {
        return release(sockets, fd, cookie, direction, request);
    }
    let allocation = *CHOSEN;
    if !allocation.is_huge() {
        let Err(error) = set(fd, allocation.option(direction == 1), request) else {
            return Outcome::Done;
        };
        // The socket has a ring already, or it is mapped: other memory does not help.
        if error.raw_os_error() == Some(libc::EBUSY) {
            return Err(error).into();
        }
        warn_about(option, allocation, &error);
        return Outcome::Pass;
    }
    sockets::start_tracking();
    sockets::remove_closed(sockets);
    let known = sockets.get(&cookie);
    if known.is_some_and(|socket| socket.rings[direction].is_some()) {
        return Outcome::Pass; // which the kernel refuses
    }
    if known.and_then(|socket| socket.lent.as_ref()).is_some_and(|lent| lent.mapped > 0) {
        return Outcome::Fail(libc::EBUSY); // as the kernel does for its own rings
    }
    let mut socket = sockets.remove(&cookie).unwrap_or_default();
    socket.descriptor = Some(fd);
    let outcome = huge(fd, &mut socket, direction, request, allocation);
    if outcome == Outcome::Done {
        socket.rings[direction] = Some(request.to_vec());
    }
    if socket.rings != [None, None] {
        sockets.insert(cookie, socket);
    }
    outcome
}

/// A ring in huge pages, or in any memory. Both rings of a socket are in huge pages, or neither: one `mmap`
/// maps both.
fn huge(
    fd: c_int,
    socket: &mut Socket,
    direction: usize,
    request: &[u8],
    allocation: Allocation,
) -> Outcome {
    let option = OPTIONS[direction];
    if socket.is_fallback {
        return set(fd, option, request).into();
    }
    let has_other = socket.rings[1 - direction].is_some();
    let result = match allocation {
        Allocation::HugeTlb => {
            // An invalid request must not cost the socket its other ring.
            if has_other
                && let Err(error) =
                    set(fd, option, request).and_then(|()| release_ring(fd, option, request))
            {
                return Err(error).into();
            }
            let mut rings = socket.rings.clone();
            rings[direction] = Some(request.to_vec());
            lend(fd, socket, &rings)
        }
        _ => whole(request).and_then(|()| set(fd, allocation.option(direction == 1), request)),
    };
    let Err(error) = result else { return Outcome::Done };
    if let Err(error) = set(fd, option, request) {
        return Err(error).into();
    }
    warn_about(option, allocation, &error);
    match fall_back(fd, socket, 1 - direction) {
        Ok(()) => Outcome::Done,
        error => error.into(),
    }
}

/// Sets the ring of this direction, if there is one, again in usual memory.
fn fall_back(fd: c_int, socket: &mut Socket, direction: usize) -> io::Result<()> {
    socket.is_fallback = true;
    socket.lent = None;
    let Some(request) = &socket.rings[direction] else { return Ok(()) };
    let option = OPTIONS[direction];
    let result = release_ring(fd, option, request).and_then(|()| set(fd, option, request));
    if result.is_err() {
        socket.rings[direction] = None;
    }
    result
}

/// Releases a ring, by a request as long as the one that set it.
fn release_ring(fd: c_int, option: c_int, request: &[u8]) -> io::Result<()> {
    set(fd, option, &vec![0; request.len()])
}

/// Handles the release of a ring.
fn release(
    sockets: &mut Sockets,
    fd: c_int,
    cookie: u64,
    direction: usize,
    request: &[u8],
) -> Outcome {
    let Some(socket) = sockets.get_mut(&cookie) else { return Outcome::Pass };
    if socket.rings[direction].is_some() && socket.lent.as_ref().is_some_and(|lent| lent.mapped > 0)
    {
        return Outcome::Fail(libc::EBUSY);
    }
    if let Err(error) = set(fd, OPTIONS[direction], request) {
        return Err(error).into();
    }
    let released = socket.rings[direction].take();
    if socket.rings == [None, None] {
        sockets.remove(&cookie);
    } else if let (Some(lent), Some(ring)) = (&mut socket.lent, released) {
        // The other ring stays in place and is mapped alone from now on.
        let len = length(&ring).expect("it was lent");
        lent.len -= len;
        if direction == 0 {
            lent.offset += len;
        }
    }
    Outcome::Done
}

/// Sets the rings in memory that is lent to the kernel. After a failure the socket has its old rings, or
/// none.
fn lend(fd: c_int, socket: &mut Socket, rings: &[Option<RingRequest>; 2]) -> io::Result<()> {
    // Lending nothing changes nothing, and tells whether the kernel supports it.
    take_back(fd)?;
    let bytes = |ring: &Option<RingRequest>| ring.as_ref().map_or(Ok(0), |ring| length(ring));
    let (receive, transmit) = (bytes(&rings[0])?, bytes(&rings[1])?);
    if transmit > 0 && !receive.is_multiple_of(huge_page_size()) {
        return Err(io::Error::other(format!(
            "the ring to transmit follows the one that receives, of {receive} bytes, which is not a multiple of the \
             huge page size"
        )));
    }
    let len = receive.checked_add(transmit).ok_or(io::ErrorKind::OutOfMemory)?;
    let memory = Memory::of(len)?;
    let release_all = |rings: &[Option<RingRequest>; 2]| {
        OPTIONS.into_iter().zip(rings).try_for_each(|(option, ring)| {
            ring.as_ref().map_or(Ok(()), |ring| release_ring(fd, option, ring))
        })
    };
    release_all(&socket.rings)?;
    let places = [(0, receive), (receive, transmit)];
    let result = places.into_iter().zip(rings).enumerate().try_for_each(|(at, (place, ring))| {
        let Some(ring) = ring else { return Ok(()) };
        // SAFETY: the memory stays until the ring is gone, and only the program uses it.
        unsafe { Allocation::lend(fd, memory.from(place.0), place.1) }?;
        set(fd, Allocation::HugeTlb.option(at == 1), ring)
    });
    if result.is_err() {
        // Memory that was lent and not used, and rings that were set.
        let _ = take_back(fd);
        let _ = release_all(rings);
        return result;
    }
    socket.lent = Some(LentMemory { memory, offset: 0, len, mapped: 0 });
    Ok(())
}

/// Takes back memory that was lent and is not used.
fn take_back(fd: c_int) -> io::Result<()> {
    // SAFETY: no memory is lent.
    unsafe { Allocation::lend(fd, std::ptr::null(), 0) }
}

/// Checks that a ring fills whole transparent huge pages, as it is mapped whole.
fn whole(request: &[u8]) -> io::Result<()> {
    let len = length(request)?;
    if len.is_multiple_of(huge_page_size()) {
        return Ok(());
    }
    Err(io::Error::other(format!("its {len} bytes are no whole number of huge pages")))
}

/// Bytes of a ring whose blocks divide a huge page.
fn length(request: &[u8]) -> io::Result<usize> {
    let (size, number) = blocks(request);
    if size == 0 || !huge_page_size().is_multiple_of(size) {
        return Err(io::Error::other(format!(
            "its blocks of {size} bytes are no part of a huge page of {}",
            huge_page_size()
        )));
    }
    size.checked_mul(number).ok_or(io::ErrorKind::OutOfMemory.into())
}

/// Warns that a ring of the program does not have the configured memory.
fn warn_about(option: c_int, allocation: Allocation, error: &io::Error) {
    let direction = if option == libc::PACKET_RX_RING { "receive" } else { "transmit" };
    let ring = format_args!("the program's {direction} ring");
    match error.raw_os_error() {
        Some(libc::ENOPROTOOPT) => warn_once(allocation, ring, &Error::RingMemory(allocation)),
        _ => warn_once(allocation, ring, error),
    }
}

/// Warns once that a ring does not have the configured memory.
pub(crate) fn warn_once(allocation: Allocation, ring: fmt::Arguments<'_>, why: &dyn fmt::Display) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        warn(format_args!("--ring-allocation {allocation}: {ring} is of usual memory: {why}"));
    });
}
