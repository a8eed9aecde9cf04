use std::os::fd::{AsFd, AsRawFd};

use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip};

use super::*;
use crate::link::tests::load;
use crate::xdp::owner::Owner;
use crate::xdp::query::attached_to;

#[test]
fn who_holds_a_program_is_said_with_a_remedy_that_works() {
    root_or_skip!();
    const PASS: i32 = 2;
    let (a, b) = (Namespace::create("hold-a").unwrap(), Namespace::create("hold-b").unwrap());
    let cable = Veth::create(&a, "a", &b, "b", VethOptions::default()).unwrap();
    let index = cable.a.index();
    let found = || a.run(|| attached_to(index).unwrap()).unwrap();
    let program = load(libbpf_sys::BPF_PROG_TYPE_XDP, PASS).unwrap();

    // By a link: who has it open.
    let link = a.run(|| XdpLink::attach(program.as_fd(), "a", index, None).unwrap()).unwrap();
    let by_link = found().unwrap();
    let Owner::Processes(processes) = by_link.owner() else { panic!("{by_link:?}") };
    assert_eq!(processes.iter().map(|one| one.id).collect::<Vec<_>>(), [std::process::id()]);
    let said = by_link.busy_error("a").to_string();
    assert!(said.contains(&format!("(process {})", std::process::id())), "{said}");
    // For a moment a child that is being started has it, too.
    let held = link.link.as_fd().try_clone_to_owned().unwrap();
    drop(link);
    let child = thread::spawn(move || {
        thread::sleep(MAX_HELD / 5);
        drop(held);
    });
    let next = || XdpLink::attach(program.as_fd(), "a", index, None).map(drop);
    a.run(next).unwrap().expect("attached when the child has closed it");
    child.join().unwrap();
    assert_eq!(found(), None);

    // Without one: nobody, until it is detached.
    let flags = AttachMode::Native.flags();
    // SAFETY: a live program, no options.
    let attach = || unsafe {
        libbpf_sys::bpf_xdp_attach(index as i32, program.as_raw_fd(), flags, std::ptr::null())
    };
    assert_eq!(a.run(attach).unwrap(), 0);
    let by_interface = found().unwrap();
    assert_eq!(by_interface.owner(), Owner::Interface);
    let said = by_interface.busy_error("a").to_string();
    let (_, remedy) = said.split_once("`ip ").expect("a command");
    let remedy = remedy.trim_end_matches('`').split(' ');
    assert!(a.command("ip").args(remedy).status().unwrap().success(), "{said}");
    assert_eq!(found(), None);
}
