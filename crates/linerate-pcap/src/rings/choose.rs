//! What a request for a ring becomes.

use std::ffi::c_int;
use std::io;
use std::sync::{LazyLock, Once};

use linerate_ring::packet::Allocation;
use linerate_ring::region::huge_page_size;

use super::kernel::{self, set};
use super::memory::Memory;
use super::sockets::{self, Asked, Lent, Socket, Sockets};
use crate::say::say;

/// What `LINERATE_RING_ALLOCATION` has; a word that makes no sense is named when a handle is activated.
pub(super) static CHOSEN: LazyLock<Allocation> = LazyLock::new(|| {
    let word = std::env::var("LINERATE_RING_ALLOCATION").ok();
    word.and_then(|word| word.parse().ok()).unwrap_or_default()
});

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has been done.
    Done,
    /// The kernel gets it as it is.
    Pass,
    /// It fails, with this in `errno`.
    Fail(c_int),
}

impl From<io::Result<()>> for Verdict {
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
fn blocks(asked: &[u8]) -> (usize, usize) {
    let word = |at: usize| u32::from_ne_bytes(asked[at..at + 4].try_into().expect("four")) as usize;
    (word(0), word(4))
}

/// A ring of this kind, at least as long as `struct tpacket_req`.
pub(super) fn ring(sockets: &mut Sockets, fd: c_int, option: c_int, asked: &[u8]) -> Verdict {
    let Some(cookie) = kernel::cookie(fd) else { return Verdict::Pass };
    let direction = usize::from(option == libc::PACKET_TX_RING);
    if blocks(asked).1 == 0 {
        return release(sockets, fd, cookie, direction, asked);
    }
    let allocation = *CHOSEN;
    if !allocation.is_huge() {
        let Err(error) = set(fd, allocation.option(direction == 1), asked) else {
            return Verdict::Done;
        };
        // A ring that is there already, or mapped: no memory would help.
        if error.raw_os_error() == Some(libc::EBUSY) {
            return Err(error).into();
        }
        tell(option, allocation, &error);
        return Verdict::Pass;
    }
    sockets.sweep();
    sockets::outlive_forks();
    let known = sockets.open.get(&cookie);
    if known.is_some_and(|socket| socket.rings[direction].is_some()) {
        return Verdict::Pass; // which the kernel refuses
    }
    if known.and_then(|socket| socket.lent.as_ref()).is_some_and(|lent| lent.mapped > 0) {
        return Verdict::Fail(libc::EBUSY); // as the kernel answers for a ring of its own
    }
    let mut socket = sockets.open.remove(&cookie).unwrap_or_default();
    socket.descriptor = fd;
    let verdict = huge(&mut socket, direction, asked, allocation);
    if verdict == Verdict::Done {
        socket.rings[direction] = Some(asked.to_vec());
    }
    if socket.rings != [None, None] {
        sockets.open.insert(cookie, socket);
    }
    verdict
}

/// A ring of huge pages, or one of any. Both rings of a socket are of huge pages, or none is: they are mapped
/// as one.
fn huge(socket: &mut Socket, direction: usize, asked: &[u8], allocation: Allocation) -> Verdict {
    let fd = socket.descriptor;
    if !socket.is_plain {
        let result = match allocation {
            Allocation::HugeTlb => lend(socket, direction, asked),
            _ => whole(asked).and_then(|()| set(fd, allocation.option(direction == 1), asked)),
        };
        let Err(error) = result else { return Verdict::Done };
        tell(OPTIONS[direction], allocation, &error);
        socket.is_plain = true;
        socket.lent = None;
        let other = OPTIONS[1 - direction];
        if let Some(its) = &socket.rings[1 - direction]
            && let Err(error) =
                set(fd, other, &vec![0; its.len()]).and_then(|()| set(fd, other, its))
        {
            socket.rings[1 - direction] = None;
            return Err(error).into();
        }
    }
    set(fd, OPTIONS[direction], asked).into()
}

/// A ring is given up.
fn release(
    sockets: &mut Sockets,
    fd: c_int,
    cookie: u64,
    direction: usize,
    asked: &[u8],
) -> Verdict {
    let Some(socket) = sockets.open.get_mut(&cookie) else { return Verdict::Pass };
    if socket.rings[direction].is_some() && socket.lent.as_ref().is_some_and(|lent| lent.mapped > 0)
    {
        return Verdict::Fail(libc::EBUSY);
    }
    let verdict = set(fd, OPTIONS[direction], asked).into();
    if verdict == Verdict::Done {
        socket.rings[direction] = None;
        if socket.rings == [None, None] {
            sockets.open.remove(&cookie);
        }
    }
    verdict
}

/// Makes a ring in memory that is lent to the kernel, with the other ring of the socket, if it has one, in the
/// same. Where that fails the other ring is as it was, or there is none.
fn lend(socket: &mut Socket, direction: usize, asked: &[u8]) -> io::Result<()> {
    let fd = socket.descriptor;
    // Nothing lent changes nothing, and tells whether there is a choice.
    take_back(fd)?;
    let mut rings = socket.rings.clone();
    rings[direction] = Some(asked.to_vec());
    let bytes = |ring: &Option<Asked>| ring.as_ref().map_or(Ok(0), |ring| length(ring));
    let (receive, transmit) = (bytes(&rings[0])?, bytes(&rings[1])?);
    if transmit > 0 && !receive.is_multiple_of(huge_page_size()) {
        return Err(io::Error::other(format!(
            "the ring to transmit follows the one that receives, of {receive} bytes, which is no whole number of \
             huge pages"
        )));
    }
    let len = receive.checked_add(transmit).ok_or(io::ErrorKind::OutOfMemory)?;
    let memory = Memory::of(len)?;
    if let Some(other) = &rings[1 - direction] {
        set(fd, OPTIONS[1 - direction], &vec![0; other.len()])?;
    }
    let places = [(0, receive, &rings[0]), (receive, transmit, &rings[1])];
    let result = places.into_iter().enumerate().try_for_each(|(at, (offset, len, ring))| {
        let Some(ring) = ring else { return Ok(()) };
        // SAFETY: the memory stays until the ring is gone, and only the program uses it.
        unsafe { Allocation::lend(fd, memory.from(offset), len) }?;
        set(fd, Allocation::HugeTlb.option(at == 1), ring)
    });
    match result {
        Ok(()) => {
            socket.lent = Some(Lent { memory, len, mapped: 0 });
            Ok(())
        }
        Err(error) => {
            // What was lent and not used; and this ring has not been set, or was the second of them.
            let _ = take_back(fd);
            let _ = set(fd, OPTIONS[direction], &vec![0; asked.len()]);
            Err(error)
        }
    }
}

/// What has been lent and is not used is the program's again.
fn take_back(fd: c_int) -> io::Result<()> {
    // SAFETY: that is no memory.
    unsafe { Allocation::lend(fd, std::ptr::null(), 0) }
}

/// A ring of transparent huge pages fills them: it is mapped as it is.
fn whole(asked: &[u8]) -> io::Result<()> {
    let len = length(asked)?;
    if len.is_multiple_of(huge_page_size()) {
        return Ok(());
    }
    Err(io::Error::other(format!("its {len} bytes are no whole number of huge pages")))
}

/// Bytes of a ring whose blocks are parts of huge pages.
fn length(asked: &[u8]) -> io::Result<usize> {
    let (size, number) = blocks(asked);
    if size == 0 || !huge_page_size().is_multiple_of(size) {
        return Err(io::Error::other(format!(
            "its blocks of {size} bytes are no part of a huge page of {}",
            huge_page_size()
        )));
    }
    size.checked_mul(number).ok_or(io::ErrorKind::OutOfMemory.into())
}

/// Says once why a ring is not of the memory that was chosen.
fn tell(option: c_int, allocation: Allocation, error: &io::Error) {
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
