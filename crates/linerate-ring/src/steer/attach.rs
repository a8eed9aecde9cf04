//! Attaching an XDP program to an interface by a BPF link, which detaches it when the last
//! descriptor closes: at drop, at exit, after `kill -9`.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::holder::Holder;
use super::program::{PREFIX, refusal};
use crate::{Error, Result};

/// Name of the root program of a tee; `TEE_ROOT` in `bpf/tee.h`.
pub(crate) const TEE: &str = "linerate_tee";

/// Where in the kernel an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attach {
    /// In the driver, before a socket buffer is made.
    Native,
    /// In the stack, after it: works on every interface, at the cost of the socket buffer.
    Generic,
}

impl fmt::Display for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

impl Attach {
    pub(crate) fn flags(self) -> u32 {
        match self {
            Self::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
            Self::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
        }
    }
}

/// An XDP program that is on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its id, as `bpftool prog` shows.
    pub id: u32,
    /// Its name, up to 15 characters; empty where this process may not know it, see
    /// [`Attached::is_hidden`].
    pub name: String,
    /// Where it runs.
    pub attach: Attach,
}

impl Attached {
    /// Whether it is of Linerate, this process's or another's: a capture, a receiver, an uplink or the
    /// accelerator.
    pub fn is_ours(&self) -> bool {
        self.name.starts_with(PREFIX)
    }

    /// Whether it is the root of a tee, which lets every frame go on.
    pub fn is_tee(&self) -> bool {
        self.name == TEE
    }

    /// Whether this process lacks the privilege to look at it (CAP_SYS_ADMIN).
    pub fn is_hidden(&self) -> bool {
        program(self.id).is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
    }

    /// What keeps it there.
    pub fn holder(&self) -> Holder {
        Holder::of(self.id)
    }
}

/// An attached program; detached when this is dropped, unless somebody else holds the link too.
#[derive(Debug)]
pub(crate) struct Link {
    fd: OwnedFd,
    pub(crate) attach: Attach,
    /// Why not native, where it is generic.
    pub(crate) why: Option<String>,
}

impl Link {
    /// Attaches `program` to the interface in the driver, or where that is refused in the stack.
    ///
    /// # Errors
    /// [`Error::ForeignProgram`] when there is a program already.
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        interface: &str,
        ifindex: u32,
        only: Option<Attach>,
    ) -> Result<Self> {
        let modes: &[Attach] = match only {
            Some(Attach::Native) => &[Attach::Native],
            Some(Attach::Generic) => &[Attach::Generic],
            None => &[Attach::Native, Attach::Generic],
        };
        let mut why = None;
        for &attach in modes {
            let error = match create(program, ifindex, attach) {
                Ok(fd) => return Ok(Self { fd, attach, why }),
                Err(error) => error,
            };
            if let Some(errno @ (libc::EBUSY | libc::EEXIST)) = error.raw_os_error() {
                let Some(found) = attached(ifindex)? else {
                    return Err(refusal(attach_action(interface, attach), errno));
                };
                return Err(foreign(interface, &found));
            }
            if attach == Attach::Generic || only.is_some() || !says_unsupported(&error) {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                return Err(refusal(attach_action(interface, attach), errno));
            }
            why = Some(format!("the driver refuses native XDP: {error}"));
        }
        unreachable!("the last mode returns")
    }

    /// Takes part in the link that holds program `id` on an interface: the program then stays until
    /// the last of all participants has gone. `None` when the link has gone in the meantime.
    pub(crate) fn join(id: u32, attach: Attach) -> Result<Option<Self>> {
        Ok(link_of(id)?.map(|(fd, _)| Self { fd, attach, why: None }))
    }

    /// Puts `program` in place of the one attached. No frame sees both or neither.
    pub(crate) fn replace(&self, program: BorrowedFd<'_>, interface: &str) -> Result<()> {
        // SAFETY: two live descriptors, default options.
        let answer = unsafe {
            libbpf_sys::bpf_link_update(
                self.fd.as_raw_fd(),
                program.as_raw_fd(),
                std::ptr::null_mut(),
            )
        };
        if answer < 0 {
            return Err(refusal(format!("replace the XDP program on {interface}"), -answer));
        }
        Ok(())
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The link that holds XDP program `program` on an interface, and its id; `None` when none does.
pub(crate) fn link_of(program: u32) -> Result<Option<(OwnedFd, u32)>> {
    let mut id = 0;
    loop {
        // SAFETY: writes the next id to our variable.
        if unsafe { libbpf_sys::bpf_link_get_next_id(id, &mut id) } < 0 {
            return match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
                error if error.raw_os_error() == Some(libc::EPERM) => Err(Error::Privilege {
                    action: "join the captures of other processes on an interface".into(),
                    capability: "CAP_SYS_ADMIN",
                }),
                error => Err(refusal("list BPF links", error.raw_os_error().unwrap_or(0))),
            };
        }
        // SAFETY: no memory involved.
        let fd = unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) };
        if fd < 0 {
            // Gone between the two calls, or not ours to see.
            continue;
        }
        // SAFETY: a descriptor just made for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut info = libbpf_sys::bpf_link_info::default();
        let mut len = size_of_val(&info) as u32;
        // SAFETY: `info` is writable and `len` its size.
        let answer =
            unsafe { libbpf_sys::bpf_link_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut len) };
        if answer == 0 && info.type_ == libbpf_sys::BPF_LINK_TYPE_XDP && info.prog_id == program {
            return Ok(Some((fd, id)));
        }
    }
}

/// The XDP program on an interface of this network namespace, if any.
pub(crate) fn attached(ifindex: u32) -> Result<Option<Attached>> {
    let mut query = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: `query` is writable and carries its size.
    let answer = unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &mut query) };
    if answer < 0 {
        return Err(refusal(format!("ask interface {ifindex} for its XDP program"), -answer));
    }
    let (id, attach) = match (query.drv_prog_id, query.skb_prog_id, query.hw_prog_id) {
        (0, 0, 0) => return Ok(None),
        (0, 0, hardware) => (hardware, Attach::Native),
        (0, generic, _) => (generic, Attach::Generic),
        (native, _, _) => (native, Attach::Native),
    };
    let name = program(id).map(|fd| program_name(fd.as_fd())).unwrap_or_default();
    Ok(Some(Attached { id, name, attach }))
}

/// Whether BPF programs judge at the stack's entrance what the interface of this index receives (tcx).
///
/// # Errors
/// [`Error::Privilege`], [`Error::System`].
pub fn has_ingress_program(ifindex: u32) -> Result<bool> {
    let mut query = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: `query` is writable and carries its size; its array pointers are null.
    let answer = unsafe {
        libbpf_sys::bpf_prog_query_opts(ifindex as i32, libbpf_sys::BPF_TCX_INGRESS, &mut query)
    };
    // SAFETY: plain numbers in all members of the union.
    let count = unsafe { query.__bindgen_anon_1.count };
    match -answer {
        0 => Ok(count > 0),
        // Nothing there, or a kernel without tcx (before Linux 6.6).
        libc::ENOENT | libc::EINVAL => Ok(false),
        errno => Err(refusal(format!("ask interface {ifindex} for its tcx programs"), errno)),
    }
}

/// The loaded program with this id.
pub(crate) fn program(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no memory involved.
    let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a descriptor just made for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The maps of a loaded program that have these names and `entries` entries.
pub(crate) fn maps_of<const N: usize>(
    program: BorrowedFd<'_>,
    names: [&str; N],
    entries: u32,
) -> [Option<OwnedFd>; N] {
    let mut found = [const { None }; N];
    let mut ids = [0u32; 64];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: ids.len() as u32,
        map_ids: ids.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` is writable and `len` its size; `ids` has the room that it says.
    let answer =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut len) };
    if answer < 0 {
        return found;
    }
    for &id in ids.iter().take(info.nr_map_ids as usize) {
        // SAFETY: no memory involved.
        let fd = unsafe { libbpf_sys::bpf_map_get_fd_by_id(id) };
        if fd < 0 {
            continue;
        }
        // SAFETY: a descriptor just made for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut info = libbpf_sys::bpf_map_info::default();
        let mut len = size_of_val(&info) as u32;
        // SAFETY: `info` is writable and `len` its size.
        let answer =
            unsafe { libbpf_sys::bpf_map_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut len) };
        // SAFETY: the kernel ends the name with a NUL within the array.
        let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
        let place = names.iter().position(|wanted| wanted.as_bytes() == name.to_bytes());
        if let (0, Some(place)) = (answer, place)
            && info.max_entries == entries
        {
            found[place] = Some(fd);
        }
    }
    found
}

/// What the kernel knows of a loaded program.
fn program_info(program: BorrowedFd<'_>) -> Option<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` is writable and `len` its size; its array pointers are null, so none is filled.
    let answer =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut len) };
    (answer == 0).then_some(info)
}

/// The error for a program that may be a tee to join, where this process may not look at it.
pub(crate) fn join_refused(interface: &str) -> Error {
    Error::Privilege {
        action: format!(
            "see whether the XDP program on interface {interface} is another capture's tee, to join it"
        ),
        capability: "CAP_SYS_ADMIN",
    }
}

/// The error for a program that somebody else attached.
pub(crate) fn foreign(interface: &str, found: &Attached) -> Error {
    Error::ForeignProgram {
        interface: interface.to_owned(),
        id: found.id,
        name: found.name.clone(),
        attach: found.attach,
        tee: found.is_tee(),
        ours: found.is_ours(),
        holder: found.holder(),
    }
}

fn program_name(program: BorrowedFd<'_>) -> String {
    let Some(info) = program_info(program) else { return String::new() };
    // SAFETY: the kernel ends the name with a NUL within the array.
    let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
    name.to_string_lossy().into_owned()
}

fn create(program: BorrowedFd<'_>, ifindex: u32, attach: Attach) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags: attach.flags(),
        ..Default::default()
    };
    // SAFETY: a live program and options that carry their size.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            ifindex as i32,
            libbpf_sys::BPF_XDP,
            &options,
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a descriptor just made for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the driver, and not the caller, is why it did not work.
fn says_unsupported(error: &io::Error) -> bool {
    !matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENODEV | libc::EBADF))
}

fn attach_action(interface: &str, attach: Attach) -> String {
    format!("attach an XDP program ({attach}) to interface {interface}")
}

#[cfg(test)]
mod tests {
    use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip, skip};

    use super::*;
    use crate::filter::Instruction;

    fn own(fd: i32) -> io::Result<OwnedFd> {
        match fd {
            // SAFETY: the callers hand over descriptors just made for them alone.
            0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        }
    }

    /// A program that answers `verdict`.
    fn load(kind: libbpf_sys::bpf_prog_type, verdict: i32) -> io::Result<OwnedFd> {
        let code = [Instruction::new(0xb7, 0, 0, 0, verdict), Instruction::new(0x95, 0, 0, 0, 0)];
        // SAFETY: two instructions in the kernel's layout, C strings, no options.
        own(unsafe {
            libbpf_sys::bpf_prog_load(
                kind,
                c"go_on".as_ptr(),
                c"GPL".as_ptr(),
                code.as_ptr().cast(),
                code.len() as libbpf_sys::size_t,
                std::ptr::null_mut(),
            )
        })
    }

    /// Attaches a program to what `ifindex` receives, which lets everything go on.
    fn tcx(ifindex: u32) -> io::Result<OwnedFd> {
        const GO_ON: i32 = -1;
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let program = load(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, GO_ON)?;
        // SAFETY: a live program and options that carry their size.
        own(unsafe {
            libbpf_sys::bpf_link_create(
                program.as_raw_fd(),
                ifindex as i32,
                libbpf_sys::BPF_TCX_INGRESS,
                &options,
            )
        })
    }

    #[test]
    fn who_holds_a_program_is_said_with_a_remedy_that_works() {
        root_or_skip!();
        const PASS: i32 = 2;
        let (a, b) = (Namespace::create("hold-a").unwrap(), Namespace::create("hold-b").unwrap());
        let cable = Veth::create(&a, "a", &b, "b", VethOptions::default()).unwrap();
        let index = cable.a.index();
        let found = || a.run(|| attached(index).unwrap()).unwrap();
        let program = load(libbpf_sys::BPF_PROG_TYPE_XDP, PASS).unwrap();

        // By a link: who has it open.
        let link = a.run(|| Link::attach(program.as_fd(), "a", index, None).unwrap()).unwrap();
        let by_link = found().unwrap();
        let Holder::Processes(processes) = by_link.holder() else { panic!("{by_link:?}") };
        assert_eq!(processes.iter().map(|one| one.id).collect::<Vec<_>>(), [std::process::id()]);
        let said = foreign("a", &by_link).to_string();
        assert!(said.contains(&format!("(process {})", std::process::id())), "{said}");
        drop(link);
        assert_eq!(found(), None);

        // Without one: nobody, until it is detached.
        let flags = Attach::Native.flags();
        // SAFETY: a live program, no options.
        let attach = || unsafe {
            libbpf_sys::bpf_xdp_attach(index as i32, program.as_raw_fd(), flags, std::ptr::null())
        };
        assert_eq!(a.run(attach).unwrap(), 0);
        let by_interface = found().unwrap();
        assert_eq!(by_interface.holder(), Holder::Interface);
        let said = foreign("a", &by_interface).to_string();
        let (_, remedy) = said.split_once("`ip ").expect("a command");
        let remedy = remedy.trim_end_matches('`').split(' ');
        assert!(a.command("ip").args(remedy).status().unwrap().success(), "{said}");
        assert_eq!(found(), None);
    }

    #[test]
    fn a_tcx_program_is_seen() {
        root_or_skip!();
        let (a, b) = (Namespace::create("tcx-a").unwrap(), Namespace::create("tcx-b").unwrap());
        let cable = Veth::create(&a, "a", &b, "b", VethOptions::default()).unwrap();
        let index = cable.a.index();
        let has = || a.run(|| has_ingress_program(index).unwrap()).unwrap();
        assert!(!has());
        let link = match a.run(|| tcx(index)).unwrap() {
            Ok(link) => link,
            Err(error) => {
                skip!(&format!("no tcx: {error}"));
            }
        };
        assert!(has());
        drop(link);
        assert!(!has());
    }
}
