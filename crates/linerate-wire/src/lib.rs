#![doc = include_str!("../README.md")]
//!
//! One file a protocol, of one shape: a private `field` module with the byte ranges of the header, a view
//! over bytes (`new_checked`, then accessors that cannot panic), and a plain `Repr` that `emit` writes. A
//! protocol has only the parts that some crate uses. Nothing here allocates, except
//! [`frame::Frame::contiguous`], and nothing needs the standard library.
//!
//! A view asks for a complete *header*. What follows may be cut short, as it is in a capture with a
//! snapshot length: `payload` then gives what is there.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

pub mod arp;
pub mod checksum;
mod error;
pub mod ethernet;
pub mod flow;
pub mod frame;
pub mod geneve;
pub mod gre;
pub mod icmp;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod layers;
pub mod ndp;
pub mod offload;
mod protocol;
mod read;
pub mod tcp;
pub mod udp;
pub mod udp_tunnel;
pub mod virtio;
pub mod vlan;
pub mod vxlan;

pub use error::{Error, Result};
pub use layers::{Layers, parse};
