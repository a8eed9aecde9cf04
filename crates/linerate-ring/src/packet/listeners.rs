//! [`Listener`]: packet sockets that receive, of any process, as `/proc/net/packet` lists them.

use std::fs;
use std::io;

use crate::process::{self, Process};

/// A packet socket of this network namespace that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Index of the interface that it is bound to; `None` for one that hears all.
    pub interface: Option<u32>,
    /// EtherType that it takes (`ETH_P_ALL`, 3, for all).
    pub protocol: u16,
    inode: u64,
}

impl Listener {
    /// All that there are.
    ///
    /// # Errors
    ///
    /// What reading the table gave.
    pub fn all() -> io::Result<Vec<Self>> {
        let table = fs::read_to_string("/proc/thread-self/net/packet")?;
        Ok(table.lines().skip(1).filter_map(parse).collect())
    }

    /// Whether it hears what this interface receives.
    pub fn hears(&self, interface: u32) -> bool {
        self.interface.is_none_or(|bound| bound == interface)
    }

    /// The processes that hold each of `listeners`, as far as this one may know. Looks through `/proc`,
    /// once.
    pub fn holders(listeners: &[Self]) -> Vec<Vec<Process>> {
        process::holding(listeners.len(), |descriptor| {
            let inode = descriptor.target.strip_prefix("socket:[")?.strip_suffix(']')?;
            let inode: u64 = inode.parse().ok()?;
            listeners.iter().position(|listener| listener.inode == inode)
        })
    }
}

/// A line of the table: address, references, type, protocol, interface, running, memory, user, inode.
/// A socket without a protocol receives nothing; one whose interface is down will, once it is up.
fn parse(line: &str) -> Option<Listener> {
    let mut words = line.split_whitespace().skip(3);
    let protocol = u16::from_str_radix(words.next()?, 16).ok().filter(|protocol| *protocol != 0)?;
    let interface: u32 = words.next()?.parse().ok()?;
    let inode = words.nth(3)?.parse().ok()?;
    Some(Listener { interface: (interface != 0).then_some(interface), protocol, inode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_understood() {
        let line = "00000000a2ffca1b 3      3    0003   2     1 0      0      84211 ";
        let expected = Listener { interface: Some(2), protocol: 3, inode: 84211 };
        assert_eq!(parse(line), Some(expected));
        assert!(expected.hears(2) && !expected.hears(3));
        let anywhere = parse("0 3 3 0003 0 1 0 0 84212").expect("a listener");
        assert!(anywhere.hears(2) && anywhere.hears(3));
        assert_eq!(parse("0 3 3 0000 2 0 0 0 84213"), None, "it receives nothing");
        assert_eq!(parse("sk RefCnt Type Proto Iface R Rmem User Inode"), None);
    }
}
