//! Packet sockets that a program makes itself: a ring that one asks for is made of the memory that
//! `linerate run --ring-allocation` names, on a kernel that lets programs choose. Where it cannot be, the
//! ring is what the program asked for, and one line says why. Everything else goes to the kernel as it is.
//!
//! ```text
//!   program ── setsockopt(PACKET_RX_RING) ──> choose: an option of the patches in its place
//!           ── mmap, munmap of such a socket ─> sockets: memory that was lent is there already
//!           ── close ───────────────────────> sockets: and goes with the last descriptor
//!           ── all the rest ────────────────> kernel
//! ```
//!
//! A ring that the kernel allocates needs the first only. A HugeTLB ring is in memory of the program's, which
//! is lent to the kernel before (seed 000, 5.4), and the kernel does not map it: so that memory is kept here,
//! for each socket, by the number that is its own whatever descriptors it has. `socket` need not be taken over
//! for that. A descriptor that goes without `close` (`dup2`, `close_range`) is found when the next ring is set.

mod calls;
mod choose;
mod descriptors;
mod kernel;
mod memory;
mod sockets;

pub(crate) use choose::{own, tell};
