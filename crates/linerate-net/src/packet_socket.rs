//! [`PacketSocket`]: packet sockets that receive, of any process, as `/proc/net/packet` lists them.

use std::fs;

use crate::Result;
use crate::error::Context;
use crate::process::{self, Process};

/// A packet socket of this network namespace that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSocket {
    /// Index of the interface that it is bound to; `None` where it receives from all.
    pub interface: Option<u32>,
    /// EtherType that it receives (`ETH_P_ALL`, 3, for all).
    pub protocol: u16,
    inode: u64,
}

/// All packet sockets that receive in the network namespace of the calling thread.
///
/// # Errors
/// [`crate::Error::System`] where `/proc` is not mounted.
pub fn all() -> Result<Vec<PacketSocket>> {
    let table = fs::read_to_string("/proc/thread-self/net/packet")
        .context(|| "list the packet sockets in /proc/net/packet".to_owned())?;
    Ok(table.lines().skip(1).filter_map(PacketSocket::parse).collect())
}

/// The processes that hold each of `sockets`, as far as this process may see. Scans `/proc` once.
pub fn processes_with_socket(sockets: &[PacketSocket]) -> Vec<Vec<Process>> {
    process::holders(sockets.len(), |descriptor| {
        let inode = descriptor.socket_inode()?;
        sockets.iter().position(|socket| socket.inode == inode)
    })
}

impl PacketSocket {
    /// Whether it receives from this interface.
    pub fn receives_from(&self, interface: u32) -> bool {
        self.interface.is_none_or(|bound| bound == interface)
    }

    /// A line of the table: address, references, type, protocol, interface, running, memory, user, inode. A
    /// socket without a protocol receives nothing; one whose interface is down will receive once it is up.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().skip(3);
        let protocol = u16::from_str_radix(words.next()?, 16).ok().filter(|number| *number != 0)?;
        let interface: u32 = words.next()?.parse().ok()?;
        let inode = words.nth(3)?.parse().ok()?;
        Some(Self { interface: (interface != 0).then_some(interface), protocol, inode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_understood() {
        let line = "00000000a2ffca1b 3      3    0003   2     1 0      0      84211 ";
        let expected = PacketSocket { interface: Some(2), protocol: 3, inode: 84211 };
        assert_eq!(PacketSocket::parse(line), Some(expected));
        assert!(expected.receives_from(2) && !expected.receives_from(3));
        let any = PacketSocket::parse("0 3 3 0003 0 1 0 0 84212").expect("a socket");
        assert!(any.receives_from(2) && any.receives_from(3));
        assert_eq!(PacketSocket::parse("0 3 3 0000 2 0 0 0 84213"), None, "it receives nothing");
        assert_eq!(PacketSocket::parse("sk RefCnt Type Proto Iface R Rmem User Inode"), None);
    }
}
