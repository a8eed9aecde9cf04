//! IP header fields that the lines of upper protocols print.

use std::net::IpAddr;

/// What the transport layer needs to know of the packet around it.
#[derive(Clone, Copy)]
pub(super) struct PacketContext {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// The addresses are on the line already, as after IPv6 extension headers.
    pub(super) named: bool,
    /// More fragments follow: lengths go beyond this packet.
    pub(super) fragment: bool,
}
