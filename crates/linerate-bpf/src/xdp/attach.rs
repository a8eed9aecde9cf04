//! [`XdpLink`]: an XDP program attached by a BPF link, which the kernel detaches when the last descriptor
//! closes: at drop, at exit, after `kill -9`.

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use super::mode::AttachMode;
use super::query;
use crate::link::{Hook, Link};
use crate::{Error, Result};

/// A process that was just forked has the descriptors of its parent until it executes its program. So long the link of
/// a program stays, also if its owner has closed it.
const MAX_HELD: Duration = Duration::from_millis(100);

/// An attached program; detached when this is dropped, unless another process holds the link too.
#[derive(Debug)]
pub(crate) struct XdpLink {
    link: Link,
    pub(crate) mode: AttachMode,
    /// Why not native, where it is generic.
    pub(crate) generic_reason: Option<String>,
}

impl XdpLink {
    /// Attaches `program` to the interface in the driver, or in the stack if that is refused.
    ///
    /// # Errors
    /// [`Error::ForeignProgram`] when there is a program already.
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        interface: &str,
        ifindex: u32,
        only: Option<AttachMode>,
    ) -> Result<Self> {
        let end = Instant::now() + MAX_HELD;
        let attach = |mode| loop {
            match Link::attach(program, interface, ifindex, Hook::Xdp(mode)) {
                Err(Error::ForeignProgram { tee: false, .. }) if Instant::now() < end => {
                    thread::sleep(Duration::from_millis(1));
                }
                // It was closed before it could be named.
                Err(Error::System { ref source, .. })
                    if source.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end =>
                {
                    thread::sleep(Duration::from_millis(1));
                }
                attached => return attached,
            }
        };
        let first = only.unwrap_or(AttachMode::Native);
        match attach(first) {
            Ok(link) => Ok(Self { link, mode: first, generic_reason: None }),
            Err(Error::System { source, .. }) if only.is_none() && is_unsupported(&source) => {
                let mode = AttachMode::Generic;
                let generic_reason = Some(format!("the driver refuses native XDP: {source}"));
                Ok(Self { link: attach(mode)?, mode, generic_reason })
            }
            Err(error) => Err(error),
        }
    }

    /// Shares the link that holds program `id` on an interface: the program then stays until the last
    /// of all processes that share it has gone. `None` when the link has gone in the meantime.
    pub(crate) fn open_shared_link(id: u32, mode: AttachMode) -> Result<Option<Self>> {
        let found = query::link_of_program(id)?;
        Ok(found.map(|(fd, _)| Self { link: fd.into(), mode, generic_reason: None }))
    }

    /// Replaces the attached program. No frame meets both or neither.
    pub(crate) fn replace(&self, program: BorrowedFd<'_>) -> Result<()> {
        self.link.replace(program)
    }
}

/// Whether it failed because of the driver, and not of the caller.
fn is_unsupported(error: &std::io::Error) -> bool {
    !matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST | libc::ENODEV | libc::EBADF))
}

#[cfg(test)]
mod tests {
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
}
