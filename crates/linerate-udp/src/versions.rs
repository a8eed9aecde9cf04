//! [`Versions`]: which versions of IP a socket has.

use std::net::IpAddr;

/// The versions of IP of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

impl Versions {
    pub(crate) fn include(self, ip: IpAddr) -> bool {
        if ip.is_ipv4() { self.v4 } else { self.v6 }
    }
}
