//! Packet sockets that a program opens itself: their rings get the memory that `linerate run
//! --ring-allocation` names, on a kernel that supports that. Otherwise the ring is in usual memory, and one
//! line says why. Everything else goes to the kernel unchanged.
//!
//! ```text
//!   program ── setsockopt(PACKET_RX_RING) ──> request: an option of the patches instead
//!           ── mmap, munmap of such a socket ─> sockets: lent memory is mapped already
//!           ── close ───────────────────────> sockets: lent memory is freed with the last descriptor
//!           ── all the rest ────────────────> kernel
//! ```
//!
//! A ring that the kernel allocates needs the first only. A HugeTLB ring is in memory of the program, which is
//! lent to the kernel before, and the kernel does not map it. So this
//! module keeps that memory for each socket, by its cookie (`SO_COOKIE`). A descriptor that disappears without
//! `close` (`dup2`, `close_range`) is found when the next ring is set.

mod calls;
mod descriptors;
mod kernel;
mod memory;
mod request;
mod sockets;

pub(crate) use request::{for_library, warn_once};
