//! [`NetfilterLinks`]: the BPF programs that are attached to the hooks of netfilter (`BPF_LINK_TYPE_NETFILTER`,
//! Linux 6.4). nftables does not list them, and the kernel does not announce them.

use std::io::Read;
use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link};
use linerate_net::namespace::Namespace;

use crate::error::cause;
use crate::program::log_to_tracing;
use crate::{Error, Result};

include!(concat!(env!("OUT_DIR"), "/netfilter.rs"));

/// Bytes of a program's name, with the zero at its end (`BPF_OBJ_NAME_LEN`).
const NAME: usize = 16;
/// Bytes of `struct record` of `bpf/netfilter.bpf.c`.
const RECORD: usize = 16 + NAME;

/// A program at a hook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NetfilterLink {
    /// The kernel's number of the link.
    pub id: u32,
    /// `NFPROTO_IPV4` or `NFPROTO_IPV6`.
    pub family: u8,
    /// One of `enum nf_inet_hooks`.
    pub hook: u32,
    /// Hooks of lower priority come first.
    pub priority: i32,
    /// The name of the program.
    pub program: String,
}

/// Lists the programs of one network namespace, by an iterator over all links.
#[derive(Debug)]
pub struct NetfilterLinks {
    iterator: Link,
}

impl NetfilterLinks {
    /// Prepares to list those of the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`Error::System`] on a kernel that has no iterator over links (before Linux 5.19), or does not allow it.
    pub fn open() -> Result<Self> {
        log_to_tracing();
        let mut storage = MaybeUninit::uninit();
        let mut open =
            skeleton::NetfilterSkelBuilder::default().open(&mut storage).map_err(failed)?;
        if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
            constants.netns = Namespace::current()?.inode() as u32;
        }
        let skeleton = open.load().map_err(failed)?;
        Ok(Self { iterator: skeleton.progs.linerate_links.attach().map_err(failed)? })
    }

    /// Those that exist now, by their numbers.
    pub fn list(&self) -> Result<Vec<NetfilterLink>> {
        let mut bytes = Vec::new();
        let mut records = Iter::new(&self.iterator).map_err(failed)?;
        records.read_to_end(&mut bytes).map_err(|error| Error::system(LIST, error))?;
        let mut links: Vec<_> = bytes.chunks_exact(RECORD).map(link).collect();
        links.sort_unstable_by_key(|link| link.id);
        Ok(links)
    }
}

const LIST: &str = "list the BPF programs at the hooks of netfilter";

fn failed(error: libbpf_rs::Error) -> Error {
    Error::system(LIST, cause(&error))
}

fn link(record: &[u8]) -> NetfilterLink {
    let word = |at: usize| {
        u32::from_ne_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
    };
    let name = record[RECORD - NAME..].split(|byte| *byte == 0).next().unwrap_or_default();
    NetfilterLink {
        id: word(0),
        family: word(4) as u8,
        hook: word(8),
        priority: word(12).cast_signed(),
        program: String::from_utf8_lossy(name).into_owned(),
    }
}

#[cfg(test)]
mod tests;
