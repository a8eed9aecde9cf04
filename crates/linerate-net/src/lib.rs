//! What the kernel knows of the network, asked in one place: links, addresses, routes, neighbours, queueing
//! disciplines, ethtool's settings, change notifications, network namespaces; and the processes, CPUs and
//! capabilities that go with them.
//!
//! A question goes to the network namespace of the calling thread. A [`Connection`] and an [`Interface`] stay
//! in the namespace that they were opened in, whichever thread uses them later.
//!
//! ```
//! let loopback = linerate_net::link::by_name("lo")?;
//! assert!(loopback.is_loopback() && loopback.kind.is_empty());
//! # Ok::<(), linerate_net::Error>(())
//! ```
//!
//! Netlink messages are read where they lie ([`netlink`]), attribute by attribute. A library that parses whole
//! messages would refuse a link for one attribute that it misunderstands, and the change detector of the
//! accelerator has to compare attributes that no library knows.
//!
//! # `ioctl`
//! One file, `ioctl.rs`, calls `ioctl(2)`, which needs `unsafe`. Netlink has no driver name, and before
//! Linux 6.14 no hardware timestamps. Interface flags are read there too: readers of rings poll them, and
//! `RTM_GETLINK` would make those wait for the kernel's RTNL lock.
#![deny(unsafe_code)]

mod address;
pub mod change;
mod connection;
pub mod cpu;
mod error;
pub mod ethtool;
mod interface;
#[allow(unsafe_code)]
mod ioctl;
pub mod link;
pub mod namespace;
pub mod neighbour;
pub mod netlink;
pub mod packet_socket;
pub mod privilege;
pub mod process;
pub mod qdisc;
pub mod route;

pub use address::{Address, addresses};
pub use connection::Connection;
pub use error::{Error, Result};
pub use interface::Interface;
pub use ioctl::HardwareTimestamps;
