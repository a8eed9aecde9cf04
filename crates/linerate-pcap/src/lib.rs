//! libpcap's live-capture interface on Linerate's sources, for unmodified programs.
//!
//! The program preloads this library, or finds it under libpcap's own name. What it gets from
//! `pcap_create` is a handle of the system's library, and stays one: every function that is not about
//! frames of a live interface goes to the system's libpcap with that handle.
//! When such a handle is activated on an Ethernet interface, one of Linerate's sources is opened beside
//! it. The functions that wait, read, filter and count (module `calls`) then work on the source, and
//! the system's socket is bound so that it receives no frame.
//!
//! ```text
//!   program ── pcap_create ───────────> system's libpcap: settings, error texts, link types, compiler
//!           ── pcap_activate ─────────> both: the source opens, the system's handle says what it would
//!           ── pcap_dispatch, next ──> source: packet ring, tee, BPF ring buffer, AF_XDP sockets
//!           ── all the rest ──────────> system's libpcap
//! ```
//!
//! Nothing here allocates, copies, locks or calls the kernel for a packet.

mod abi;
mod activate;
mod calls;
mod config;
mod environment;
mod fanout;
mod filter;
mod forward;
mod geterr;
mod handles;
mod live;
mod metrics;
mod reader;
mod select;
mod shared;
mod socket_option;
mod system;
mod system_socket;
mod wait;
mod warn;
