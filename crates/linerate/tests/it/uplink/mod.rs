//! `linerate uplink` as a user runs it: the kernel's stack on both sides judges what crosses.

mod attached;
mod ends;
mod modes;
mod support;
mod traffic;
mod tun;
mod wire;
