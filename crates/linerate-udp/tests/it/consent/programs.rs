//! BPF programs of an administrator on the receiving host.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use libbpf_rs::{NF_INET_PRE_ROUTING, NFPROTO_IPV4, NetfilterOpts};
use libbpf_rs::{Object, ObjectBuilder};
use linerate_bpf::link::{Hook, Link};

use super::Kept;
use crate::support::Cable;

/// Attaches the program with this name; it is detached when what this returns is dropped.
pub(super) fn attach(cable: &Cable, name: &str) -> Result<Kept, String> {
    let attach = || {
        let object = load(name)?;
        let program = object.progs_mut().find(|program| program.name() == name).expect("loaded");
        let text = |error: libbpf_rs::Error| format!("{name}: {error}");
        let tcx = |end: &linerate_testkit::Interface, hook| {
            let link = Link::attach(program.as_fd(), end.name(), end.index(), hook);
            link.map(|link| Box::new(link) as Kept).map_err(|error| error.to_string())
        };
        let link = match name {
            "drop_at_ingress" => return tcx(&cable.veth.b, Hook::TcxIngress),
            name if name.starts_with("push_") => return tcx(&cable.veth.a, Hook::TcxEgress),
            "drop_at_lookup" => {
                let own = File::open("/proc/thread-self/ns/net");
                program.attach_netns(own.map_err(|error| error.to_string())?.as_raw_fd())
            }
            "drop_at_hook" => program.attach_netfilter_with_opts(NetfilterOpts {
                protocol_family: NFPROTO_IPV4,
                hooknum: NF_INET_PRE_ROUTING,
                priority: -300,
                ..NetfilterOpts::default()
            }),
            _ => {
                let group = own_group().ok_or("no control group of version 2")?;
                program.attach_cgroup(group.as_raw_fd())
            }
        };
        link.map(|link| Box::new(link) as Kept).map_err(text)
    };
    let host = if name.starts_with("push_") { &cable.there } else { &cable.here };
    host.run(attach).expect("the namespace")
}

/// Loads the program with this name, of an object that is compiled once.
fn load(name: &str) -> Result<Object, String> {
    static OBJECT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let compile = || {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/consent/programs.bpf.c");
        let mut clang = Command::new("clang");
        let output = clang.args(["-O2", "-target", "bpf", "-c", source, "-o", "-"]).output();
        output.ok().filter(|output| output.status.success()).map(|output| output.stdout)
    };
    let object = OBJECT.get_or_init(compile).as_ref().ok_or("needs clang")?;
    let text = |error: libbpf_rs::Error| format!("{name}: {error}");
    let mut open = ObjectBuilder::default().open_memory(object).map_err(text)?;
    for mut program in open.progs_mut() {
        let wanted = program.name() == name;
        program.set_autoload(wanted);
    }
    open.load().map_err(text)
}

/// The control group of this process, which its sockets are in.
fn own_group() -> Option<File> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    File::open(PathBuf::from(mount.split(' ').nth(1)?).join(own)).ok()
}
