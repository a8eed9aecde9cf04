//! What a request for a ring becomes.

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
use super::sockets::{self, Asked, Lent, Socket, Sockets};
use crate::say::say;

/// What `LINERATE_RING_ALLOCATION` has; a word that makes no sense is named when a handle is activated.
static CHOSEN: LazyLock<Allocation> = LazyLock::new(|| {
    let word = std::env::var("LINERATE_RING_ALLOCATION").ok();
    word.and_then(|word| word.parse().ok()).unwrap_or_default()
});

thread_local! {
    /// Whether the rings that this thread sets are this library's.
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, whose rings are no program's, and of the memory that it asks for.
pub(crate) fn own<T>(work: impl FnOnce() -> T) -> T {
    /// Takes it back, also where the work unwinds.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            OWN.set(self.0);
        }
    }
    let _before = Before(OWN.replace(true));
    work()
}

/// Whether a ring that this thread sets is a program's, to be made of chosen memory.
pub(super) fn is_programs() -> bool {
    *CHOSEN != Allocation::Any && !OWN.get()
}

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
        tell_of(option, allocation, &error);
        return Verdict::Pass;
    }
    sockets::begin();
    sockets::sweep(sockets);
    let known = sockets.get(&cookie);
    if known.is_some_and(|socket| socket.rings[direction].is_some()) {
        return Verdict::Pass; // which the kernel refuses
    }
    if known.and_then(|socket| socket.lent.as_ref()).is_some_and(|lent| lent.mapped > 0) {
        return Verdict::Fail(libc::EBUSY); // as the kernel answers for a ring of its own
    }
    let mut socket = sockets.remove(&cookie).unwrap_or_default();
    socket.descriptor = Some(fd);
    let verdict = huge(fd, &mut socket, direction, asked, allocation);
    if verdict == Verdict::Done {
        socket.rings[direction] = Some(asked.to_vec());
    }
    if socket.rings != [None, None] {
        sockets.insert(cookie, socket);
    }
    verdict
}

/// A ring of huge pages, or one of any. Both rings of a socket are of huge pages, or none is: they are mapped
/// as one.
fn huge(
    fd: c_int,
    socket: &mut Socket,
    direction: usize,
    asked: &[u8],
    allocation: Allocation,
) -> Verdict {
    let option = OPTIONS[direction];
    if socket.is_plain {
        return set(fd, option, asked).into();
    }
    let has_other = socket.rings[1 - direction].is_some();
    let result = match allocation {
        Allocation::HugeTlb => {
            // A request that makes no sense is not to cost the socket the ring that it has.
            if has_other
                && let Err(error) = set(fd, option, asked).and_then(|()| give_up(fd, option, asked))
            {
                return Err(error).into();
            }
            let mut rings = socket.rings.clone();
            rings[direction] = Some(asked.to_vec());
            lend(fd, socket, &rings)
        }
        _ => whole(asked).and_then(|()| set(fd, allocation.option(direction == 1), asked)),
    };
    let Err(error) = result else { return Verdict::Done };
    if let Err(error) = set(fd, option, asked) {
        return Err(error).into();
    }
    tell_of(option, allocation, &error);
    match plain(fd, socket, 1 - direction) {
        Ok(()) => Verdict::Done,
        error => error.into(),
    }
}

/// Makes the ring of this direction, if there is one, what the program asked for, of any memory.
fn plain(fd: c_int, socket: &mut Socket, direction: usize) -> io::Result<()> {
    socket.is_plain = true;
    socket.lent = None;
    let Some(asked) = &socket.rings[direction] else { return Ok(()) };
    let option = OPTIONS[direction];
    let result = give_up(fd, option, asked).and_then(|()| set(fd, option, asked));
    if result.is_err() {
        socket.rings[direction] = None;
    }
    result
}

/// Releases a ring, by a request as long as the one that it was set with.
fn give_up(fd: c_int, option: c_int, asked: &[u8]) -> io::Result<()> {
    set(fd, option, &vec![0; asked.len()])
}

/// A ring is given up.
fn release(
    sockets: &mut Sockets,
    fd: c_int,
    cookie: u64,
    direction: usize,
    asked: &[u8],
) -> Verdict {
    let Some(socket) = sockets.get_mut(&cookie) else { return Verdict::Pass };
    if socket.rings[direction].is_some() && socket.lent.as_ref().is_some_and(|lent| lent.mapped > 0)
    {
        return Verdict::Fail(libc::EBUSY);
    }
    if let Err(error) = set(fd, OPTIONS[direction], asked) {
        return Err(error).into();
    }
    let released = socket.rings[direction].take();
    if socket.rings == [None, None] {
        sockets.remove(&cookie);
    } else if let (Some(lent), Some(ring)) = (&mut socket.lent, released) {
        // The other stays where it is, and is mapped by itself from now on.
        let len = length(&ring).expect("it was lent");
        lent.len -= len;
        if direction == 0 {
            lent.offset += len;
        }
    }
    Verdict::Done
}

/// Makes the rings in memory that is lent to the kernel. Where that fails, those that the socket had are as they
/// were, or there are none.
fn lend(fd: c_int, socket: &mut Socket, rings: &[Option<Asked>; 2]) -> io::Result<()> {
    // Nothing lent changes nothing, and tells whether there is a choice.
    take_back(fd)?;
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
    let give_all_up = |rings: &[Option<Asked>; 2]| {
        OPTIONS.into_iter().zip(rings).try_for_each(|(option, ring)| {
            ring.as_ref().map_or(Ok(()), |ring| give_up(fd, option, ring))
        })
    };
    give_all_up(&socket.rings)?;
    let places = [(0, receive), (receive, transmit)];
    let result = places.into_iter().zip(rings).enumerate().try_for_each(|(at, (place, ring))| {
        let Some(ring) = ring else { return Ok(()) };
        // SAFETY: the memory stays until the ring is gone, and only the program uses it.
        unsafe { Allocation::lend(fd, memory.from(place.0), place.1) }?;
        set(fd, Allocation::HugeTlb.option(at == 1), ring)
    });
    if result.is_err() {
        // What was lent and not used, and what was set.
        let _ = take_back(fd);
        let _ = give_all_up(rings);
        return result;
    }
    socket.lent = Some(Lent { memory, offset: 0, len, mapped: 0 });
    Ok(())
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

/// Says why a ring that the program asked for is not of the memory that was chosen.
fn tell_of(option: c_int, allocation: Allocation, error: &io::Error) {
    let direction = if option == libc::PACKET_RX_RING { "receive" } else { "transmit" };
    let ring = format_args!("the program's {direction} ring");
    match error.raw_os_error() {
        Some(libc::ENOPROTOOPT) => tell(allocation, ring, &Error::RingMemory(allocation)),
        _ => tell(allocation, ring, error),
    }
}

/// Says once that a ring is not of the memory that was chosen.
pub(crate) fn tell(allocation: Allocation, ring: fmt::Arguments<'_>, why: &dyn fmt::Display) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        say(format_args!("--ring-allocation {allocation}: {ring} is of usual memory: {why}"));
    });
}
