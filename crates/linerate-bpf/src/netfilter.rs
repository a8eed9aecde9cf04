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
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};

    use linerate_testkit::{Namespace, probe_or_skip, root_or_skip};

    use super::*;
    use crate::filter::Instruction;
    use crate::sys::{options, owned};

    /// `NF_INET_FORWARD`.
    const FORWARD: u32 = 2;

    /// Attaches a program that accepts everything.
    fn attach(family: i32, priority: i32) -> Result<OwnedFd> {
        let code = [Instruction::new(0xb7, 0, 0, 0, 1), Instruction::new(0x95, 0, 0, 0, 0)];
        let mut options =
            options!(bpf_prog_load_opts { expected_attach_type: libbpf_sys::BPF_NETFILTER });
        // SAFETY: two instructions in the kernel's layout, C strings, options that carry their size; the descriptor is new.
        let program = unsafe {
            let fd = libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_NETFILTER,
                c"accept_all".as_ptr(),
                c"GPL".as_ptr(),
                code.as_ptr().cast(),
                code.len() as libbpf_sys::size_t,
                &mut options,
            );
            owned(fd, "load")?
        };
        let mut options = options!(bpf_link_create_opts {});
        options.__bindgen_anon_1.netfilter.pf = family as u32;
        options.__bindgen_anon_1.netfilter.hooknum = FORWARD;
        options.__bindgen_anon_1.netfilter.priority = priority;
        let (program, kind) = (program.as_raw_fd(), libbpf_sys::BPF_NETFILTER);
        // SAFETY: a live program and options that carry their size; the descriptor is new.
        unsafe { owned(libbpf_sys::bpf_link_create(program, 0, kind, &options), "attach") }
    }

    #[test]
    fn the_links_of_this_namespace_are_listed_while_they_exist() {
        root_or_skip!();
        let (here, there) =
            (Namespace::create("nfl-a").unwrap(), Namespace::create("nfl-b").unwrap());
        let links = here.run(NetfilterLinks::open).unwrap().unwrap();
        let list = || links.list().unwrap();
        assert_eq!(list(), []);
        let first = here.run(|| attach(libc::NFPROTO_IPV4, -7)).unwrap();
        probe_or_skip!(first.as_ref().err());
        let second = here.run(|| attach(libc::NFPROTO_IPV6, 9)).unwrap().unwrap();
        let _other = there.run(|| attach(libc::NFPROTO_IPV4, 0)).unwrap().unwrap();
        let found: Vec<_> = list()
            .into_iter()
            .map(|link| (i32::from(link.family), link.hook, link.priority, link.program))
            .collect();
        let name = || "accept_all".to_owned();
        assert_eq!(
            found,
            [(libc::NFPROTO_IPV4, FORWARD, -7, name()), (libc::NFPROTO_IPV6, FORWARD, 9, name())]
        );
        drop((first, second));
        assert_eq!(list(), []);
    }
}
