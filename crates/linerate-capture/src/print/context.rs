//! What the lines of upper protocols say of the IP packet.

use std::net::IpAddr;

/// What the transport layer needs to know of the packet around it.
#[derive(Clone, Copy)]
pub(super) struct PacketContext {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// The addresses are on the line already, as behind IPv6 extension headers.
    pub(super) named: bool,
    /// More fragments follow: lengths go beyond this packet.
    pub(super) fragment: bool,
}
