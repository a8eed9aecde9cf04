#![doc = include_str!("../README.md")]
//!
//! A query goes to the network namespace of the calling thread. A [`Connection`] and an [`Interface`] stay in
//! the namespace that they were opened in, for all threads that use them.
//!
//! Netlink messages are read in place ([`netlink`]), attribute by attribute. A library that parses whole
//! messages would refuse a link for one attribute that it misunderstands, and the accelerator's change
//! detector must compare attributes that no library knows.
//!
//! # `ioctl`
//! One file, `ioctl.rs`, calls `ioctl(2)`, which needs `unsafe`. Netlink has no driver name, and before
//! Linux 6.14 no hardware timestamps. Interface flags are read there too: readers of rings poll them, and
//! `RTM_GETLINK` would make those wait for the kernel's RTNL lock. It also calls `getsockopt(2)` for the tables of
//! iptables-legacy, which only that option has.
#![deny(unsafe_code)]

mod address;
pub mod change;
mod connection;
pub mod cpu;
mod error;
pub mod ethtool;
mod interface;
pub mod interrupts;
#[allow(unsafe_code)]
mod ioctl;
pub mod link;
pub mod lock;
pub mod namespace;
pub mod neighbour;
pub mod netlink;
pub mod packet_socket;
pub mod privilege;
pub mod process;
pub mod qdisc;
pub mod route;
mod rule;
pub mod ruleset;
mod steering;
pub mod text;
pub mod unit;

pub use address::{Address, addresses};
pub use connection::Connection;
pub use error::{Error, NoInterface, Result};
pub use interface::Interface;
pub use rule::RoutingRule;
pub use steering::Steering;

/// Implements `+=` for structures of counts, field by field.
#[macro_export]
macro_rules! sums {
    ($($kind:ident { $($field:ident),* $(,)? })*) => {$(
        impl std::ops::AddAssign for $kind {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
    )*};
}
