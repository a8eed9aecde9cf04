//! [`LoadableProgram`]: a program that libbpf has relocated, with its maps created, but not loaded. It is
//! loaded here, any number of times, each time with another filter in place of its last subprogram.
//!
//! This gives two things that `bpf_object__load` does not: the filter can change while the maps stay, and the
//! verifier's log becomes a part of the error. Line information is left out, since it describes the stub and not
//! the filter that replaces it.

use std::ffi::{CStr, CString, c_void};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Once;

use flate2::read::ZlibDecoder;
use libbpf_rs::{AsRawLibbpf, OpenObject, PrintLevel};
use linerate_net::namespace::Namespace;
use linerate_net::privilege;

use crate::filter::Instruction;
use crate::sys::{self, check, options};
use crate::{Error, Result, verifier};

/// Name of the subprogram that a filter replaces.
const FILTER_STUB: &str = "filter";
/// What a program loads to know whether there is a filter: `HAS_FILTER` in `bpf/filter.h`.
const HAS_FILTER: i32 = 0x4c46_494c;
/// Prefix of the names of all programs.
pub(crate) const PREFIX: &str = "linerate_";
/// Bytes of verifier log kept when a program is rejected.
const LOG_SIZE: usize = 1 << 20;
/// `dst = immediate`, in 64 bits.
const MOVE_IMMEDIATE: u8 = 0xb7;
/// The filter that rejects everything: `r0 = 0; exit`.
pub(crate) const REJECT_ALL: [Instruction; 2] =
    [Instruction::new(MOVE_IMMEDIATE, 0, 0, 0, 0), Instruction::new(0x95, 0, 0, 0, 0)];

/// Decompresses a BPF object that the build script has compressed.
///
/// # Panics
/// If `object` is not zlib data.
#[must_use]
pub fn decompress(object: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    ZlibDecoder::new(object).read_to_end(&mut all).expect("the build script has compressed it");
    all
}

/// A relocated program and the maps that its instructions name.
#[derive(Debug)]
pub(crate) struct LoadableProgram {
    /// The kernel keeps 15 characters of it.
    name: CString,
    instructions: Vec<Instruction>,
    /// `(instruction, BTF type)` of each function, in order.
    functions: Vec<libbpf_sys::bpf_func_info>,
    /// Where the stub begins; `None` for a program without a filter.
    stub: Option<usize>,
    btf: OwnedFd,
    /// Every map of the object by name; the instructions refer to them by these descriptors.
    maps: Vec<(String, OwnedFd)>,
}

/// A program that is loaded with a filter, to take the place of the attached one at any time: that needs no
/// privilege.
#[derive(Debug)]
pub struct LoadedProgram(pub(crate) OwnedFd);

/// Options for loading a [`LoadableProgram`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadOptions<'a> {
    /// Takes the place of the stub; with `None` there is no call, and everything is accepted.
    pub(crate) filter: Option<&'a [Instruction]>,
    /// Binds the program to this interface, so that it may call the receive metadata kfuncs.
    pub(crate) device: Option<&'a Device>,
    /// What a tracing program is for; `None` loads an XDP program.
    pub(crate) trace: Option<TracePoint<'a>>,
}

/// An interface of the network namespace of the thread that made this. The kernel looks for it in that of the thread
/// that loads a program.
#[derive(Debug)]
pub(crate) struct Device {
    index: u32,
    namespace: Option<Namespace>,
}

impl Device {
    pub(crate) fn new(index: u32) -> Self {
        Self { index, namespace: Namespace::current().ok() }
    }

    /// Its namespace, if the calling thread is in another one.
    fn elsewhere(&self) -> Option<&Namespace> {
        let own = Namespace::current().ok()?.inode();
        self.namespace.as_ref().filter(|namespace| namespace.inode() != own)
    }
}

/// Where a tracing program attaches, which the kernel wants to know when it loads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracePoint<'a> {
    /// `BPF_TRACE_*`.
    pub(crate) attach_type: u32,
    /// The traced function, a type in the BTF of `program`, or the tracepoint, a type in the kernel's.
    pub(crate) btf_id: u32,
    /// The traced program.
    pub(crate) program: Option<BorrowedFd<'a>>,
}

impl LoadableProgram {
    /// Prepares `object` (creates its maps, relocates) and keeps a copy of its program `name`.
    /// Read-only data and map sizes must have been set.
    pub(crate) fn prepare(object: &OpenObject, name: &str) -> Result<Self> {
        Self::prepare_all(object, &[name]).map(|mut all| all.remove(0))
    }

    /// As [`LoadableProgram::prepare`] for several programs of one object; they share its maps.
    pub(crate) fn prepare_all(object: &OpenObject, names: &[&str]) -> Result<Vec<Self>> {
        let raw = object.as_libbpf_object();
        // SAFETY: a live object, opened and not prepared yet.
        let answer = unsafe { libbpf_sys::bpf_object__prepare(raw.as_ptr()) };
        check(answer, "create the maps of the BPF programs")?;
        names.iter().map(|name| Self::copy(raw, name)).collect()
    }

    fn copy(object: NonNull<libbpf_sys::bpf_object>, name: &str) -> Result<Self> {
        let c_name = CString::new(name).expect("a program name has no NUL");
        // SAFETY: a live object and a C string.
        let program = unsafe {
            libbpf_sys::bpf_object__find_program_by_name(object.as_ptr(), c_name.as_ptr())
        };
        if program.is_null() {
            return Err(Error::Invalid(format!("the BPF object has no program {name}")));
        }
        // SAFETY: a live program; libbpf's arrays are valid until the object is loaded or closed,
        // and both are copied here. `Instruction` has the layout of `bpf_insn`.
        let (mut instructions, functions) = unsafe {
            let count = libbpf_sys::bpf_program__insn_cnt(program) as usize;
            let code = libbpf_sys::bpf_program__insns(program).cast::<Instruction>();
            let infos = libbpf_sys::bpf_program__func_info_cnt(program) as usize;
            let info = libbpf_sys::bpf_program__func_info(program);
            (
                std::slice::from_raw_parts(code, count).to_vec(),
                match info.is_null() {
                    true => Vec::new(),
                    false => std::slice::from_raw_parts(info, infos).to_vec(),
                },
            )
        };
        let maps = own_maps(object, &mut instructions)?;
        // SAFETY: a live object with BTF, which `bpf_object__prepare` has loaded.
        let (btf, btf_fd) = unsafe {
            (
                libbpf_sys::bpf_object__btf(object.as_ptr()),
                libbpf_sys::bpf_object__btf_fd(object.as_ptr()),
            )
        };
        let stub = functions
            .iter()
            .position(|function| btf_name(btf, function.type_id).as_deref() == Some(FILTER_STUB))
            .map(|index| {
                assert_eq!(index, functions.len() - 1, "{name}: the filter is called last");
                functions[index].insn_off as usize
            });
        let asks = instructions.iter().any(loads_has_filter);
        assert_eq!(
            asks,
            stub.is_some(),
            "{name}: a program that calls the filter also loads has_filter"
        );
        let own = CString::new(match name.starts_with(PREFIX) {
            true => name.to_owned(),
            false => format!("{PREFIX}{name}"),
        });
        let own = own.expect("a program name has no NUL");
        Ok(Self { name: own, instructions, functions, stub, btf: duplicate(btf_fd)?, maps })
    }

    /// Loads the program.
    ///
    /// # Errors
    /// [`Error::Privilege`], or [`Error::Verifier`] with the last line of the verifier's log.
    pub(crate) fn load(&self, options: LoadOptions<'_>) -> Result<OwnedFd> {
        match options.device.and_then(Device::elsewhere) {
            Some(namespace) => namespace.run(|| self.load_here(options))?,
            None => self.load_here(options),
        }
    }

    fn load_here(&self, options: LoadOptions<'_>) -> Result<OwnedFd> {
        let instructions = self.with_filter(options.filter);
        let LoadOptions { device, trace, .. } = options;
        let mut options = options!(bpf_prog_load_opts {
            expected_attach_type: libbpf_sys::BPF_XDP,
            prog_btf_fd: self.btf.as_raw_fd() as u32,
            prog_flags: libbpf_sys::BPF_F_XDP_HAS_FRAGS,
            func_info: self.functions.as_ptr().cast::<c_void>(),
            func_info_cnt: self.functions.len() as u32,
            func_info_rec_size: size_of::<libbpf_sys::bpf_func_info>() as u32,
        });
        if let Some(device) = device {
            options.prog_flags |= libbpf_sys::BPF_F_XDP_DEV_BOUND_ONLY;
            options.prog_ifindex = device.index;
        }
        let mut kind = libbpf_sys::BPF_PROG_TYPE_XDP;
        if let Some(TracePoint { attach_type, btf_id, program }) = trace {
            kind = libbpf_sys::BPF_PROG_TYPE_TRACING;
            options.prog_flags = 0;
            options.expected_attach_type = attach_type;
            options.attach_btf_id = btf_id;
            options.attach_prog_fd = program.map_or(0, |program| program.as_raw_fd() as u32);
        }
        match self.submit(kind, &instructions, &mut options) {
            Ok(program) => Ok(program),
            Err(error) => Err(self.explain(error, kind, &instructions, &mut options)),
        }
    }

    /// The object's map of this name.
    ///
    /// # Panics
    /// When the object has none, which is a defect of the caller.
    pub(crate) fn map(&self, name: &str) -> BorrowedFd<'_> {
        let found = self.maps.iter().find(|(map, _)| map == name);
        found.unwrap_or_else(|| panic!("the BPF object has no map {name}")).1.as_fd()
    }

    fn with_filter(&self, filter: Option<&[Instruction]>) -> Vec<Instruction> {
        match (self.stub, filter) {
            (Some(at), Some(filter)) => [&self.instructions[..at], filter].concat(),
            (Some(_), None) => {
                let mut all = self.instructions.clone();
                all.iter_mut()
                    .filter(|one| loads_has_filter(one))
                    .for_each(|one| one.immediate = 0);
                all
            }
            (None, _) => self.instructions.clone(),
        }
    }

    fn submit(
        &self,
        kind: libbpf_sys::bpf_prog_type,
        instructions: &[Instruction],
        options: &mut libbpf_sys::bpf_prog_load_opts,
    ) -> io::Result<OwnedFd> {
        // SAFETY: every pointer in `options` refers to memory that outlives the call; the
        // instructions have the layout of `bpf_insn`.
        let fd = unsafe {
            libbpf_sys::bpf_prog_load(
                kind,
                self.name.as_ptr(),
                c"Dual MIT/GPL".as_ptr(),
                instructions.as_ptr().cast(),
                instructions.len() as libbpf_sys::size_t,
                options,
            )
        };
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: a new descriptor, which nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Turns a rejection into an error: loads again with a log, since a log costs time on success.
    fn explain(
        &self,
        error: io::Error,
        kind: libbpf_sys::bpf_prog_type,
        instructions: &[Instruction],
        options: &mut libbpf_sys::bpf_prog_load_opts,
    ) -> Error {
        let action = format!("load the BPF program {}", self.name.to_string_lossy());
        let mut log = vec![0u8; LOG_SIZE];
        options.log_level = 1;
        options.log_size = LOG_SIZE as u32;
        options.log_buf = log.as_mut_ptr().cast();
        if self.submit(kind, instructions, options).is_ok() {
            return Error::system(action, error);
        }
        let log = CStr::from_bytes_until_nul(&log).map(CStr::to_string_lossy).unwrap_or_default();
        tracing::debug!(program = %self.name.to_string_lossy(), %log, "the verifier rejects a program");
        // The verifier's log ends with statistics; the reason is before them.
        let last =
            log.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with("processed "));
        let Some(last) = last else {
            return Error::bpf(action, error.raw_os_error().unwrap_or(libc::EIO));
        };
        // Without the capability the verifier applies stricter rules, and names the rule instead.
        if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
            && privilege::lacks("CAP_PERFMON")
        {
            return Error::Privilege { action, capability: "CAP_PERFMON" };
        }
        Error::Verifier { program: action, reason: last.to_owned(), source: error }
    }
}

/// Sends libbpf's messages to tracing instead of standard error, for the whole process.
pub fn log_to_tracing() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Info, |_, message| {
            verifier::observe(&message);
            tracing::debug!(target: "libbpf", "{}", message.trim_end());
        })));
    });
}

/// Whether this is the load in `has_filter` of `bpf/filter.h`.
fn loads_has_filter(instruction: &Instruction) -> bool {
    instruction.code == MOVE_IMMEDIATE && instruction.immediate == HAS_FILTER
}

/// Duplicates every map of the object, and makes the instructions refer to the duplicates.
fn own_maps(
    object: NonNull<libbpf_sys::bpf_object>,
    instructions: &mut [Instruction],
) -> Result<Vec<(String, OwnedFd)>> {
    const LOAD_IMMEDIATE_64: u8 = 0x18;
    let mut maps = Vec::new();
    let mut renamed = Vec::new();
    let mut map = std::ptr::null_mut();
    loop {
        // SAFETY: a live object; iterates over its maps, null ends.
        map = unsafe { libbpf_sys::bpf_object__next_map(object.as_ptr(), map) };
        if map.is_null() {
            break;
        }
        // SAFETY: a live map with a C string for a name.
        let (fd, name) = unsafe {
            let name = CStr::from_ptr(libbpf_sys::bpf_map__name(map));
            (libbpf_sys::bpf_map__fd(map), name.to_string_lossy().into_owned())
        };
        if fd < 0 {
            continue;
        }
        let own = duplicate(fd)?;
        renamed.push((fd, own.as_raw_fd()));
        maps.push((name, own));
    }
    for instruction in instructions {
        let pseudo = u32::from(instruction.source());
        let names_map =
            matches!(pseudo, libbpf_sys::BPF_PSEUDO_MAP_FD | libbpf_sys::BPF_PSEUDO_MAP_VALUE);
        if instruction.code == LOAD_IMMEDIATE_64 && names_map {
            let own = renamed.iter().find(|(old, _)| *old == instruction.immediate);
            instruction.immediate = own.expect("a relocated map is one of the object's").1;
        }
    }
    Ok(maps)
}

fn duplicate(fd: i32) -> Result<OwnedFd> {
    // SAFETY: libbpf holds the descriptor open while its object lives, which it does here.
    sys::duplicate(unsafe { BorrowedFd::borrow_raw(fd) })
}

fn btf_name(btf: *const libbpf_sys::btf, id: u32) -> Option<String> {
    // SAFETY: `btf` is the live object's; an unknown id gives null.
    unsafe {
        let kind = libbpf_sys::btf__type_by_id(btf, id);
        let name = libbpf_sys::btf__name_by_offset(btf, kind.as_ref()?.name_off);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    }
}
