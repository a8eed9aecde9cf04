//! Generic Segmentation Offload outside the kernel: pure functions on bytes.
//!
//! [`segment`] splits one super-packet into the segments or fragments that go on the wire, and
//! [`coalesce`] makes super-packets of segments.
//! [`Policy`] says per interface and protocol whether that happens and up to which size.
//!
//! Nothing here allocates, and nothing needs the standard library.
//!
//! ```
//! use linerate_segment::segment::{LinkType, Options, Segments, Split};
//! # let mut packet = [0u8; 40 + 3000];
//! # packet[..4].copy_from_slice(&[0x45, 0, 0x0b, 0xe0]);
//! # packet[9] = 6; packet[32] = 0x50; packet[33] = 0x18;
//! // `packet` holds 3000 bytes of TCP payload behind IPv4 and TCP headers.
//! let options = Options { link: LinkType::Ip, ..Options::new(Split::Mtu(1500)) };
//! let mut segments = Segments::new(&packet, &options)?;
//! assert_eq!(segments.len(), 3);
//! let mut frame = [0u8; 2048];
//! while let Some(len) = segments.write_next(&mut frame)? {
//!     assert!(len <= 1500); // send(&frame[..len])
//! }
//! # Ok::<(), linerate_segment::Error>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod coalesce;
mod error;
mod policy;
pub mod segment;

pub use error::{Error, Result};
pub use policy::{ParsePolicyError, Policy};
