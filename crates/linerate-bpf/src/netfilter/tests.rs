use std::os::fd::{AsRawFd, OwnedFd};

use linerate_testkit::{Namespace, probe_or_skip, root_or_skip, wait_for};

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
    let (here, there) = (Namespace::create("nfl-a").unwrap(), Namespace::create("nfl-b").unwrap());
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
    // Who lists the links of the host holds each for a moment.
    wait_for("the links to go", || list().is_empty());
}
