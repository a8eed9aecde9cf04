use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip, skip};

use super::*;
use crate::filter::{self, Instruction};

/// A program that answers `verdict`.
pub(crate) fn load(kind: libbpf_sys::bpf_prog_type, verdict: i32) -> Result<OwnedFd> {
    let code = [Instruction::new(0xb7, 0, 0, 0, verdict), Instruction::new(0x95, 0, 0, 0, 0)];
    filter::load(kind, c"go_on", "load a program", &code)
}

/// Attaches a program to what `ifindex` receives, which lets everything go on.
fn tcx(ifindex: u32) -> Result<Link> {
    const GO_ON: i32 = -1;
    let program = load(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, GO_ON)?;
    Link::attach(program.as_fd(), "a", ifindex, Hook::TcxIngress)
}

#[test]
fn a_tcx_program_is_seen() {
    root_or_skip!();
    let (a, b) = (Namespace::create("tcx-a").unwrap(), Namespace::create("tcx-b").unwrap());
    let cable = Veth::create(&a, "a", &b, "b", VethOptions::default()).unwrap();
    let index = cable.a.index();
    let has = || a.run(|| has_tcx_ingress_program(index).unwrap()).unwrap();
    assert!(!has());
    let link = match a.run(|| tcx(index)).unwrap() {
        Ok(link) => link,
        Err(error) => {
            skip!(&format!("no tcx: {error}"));
        }
    };
    assert!(has());
    drop(link);
    // A program that another test starts may hold a copy of the descriptor for a moment.
    linerate_testkit::wait_for("the end of the link", || !has());
}
