//! The programs: opened with [`Options`], loaded with their maps, and attached to interfaces.
//!
//! Nothing here outlives the process by itself: links are guards, and maps and programs live as long as a
//! descriptor refers to them. Objects that must persist are pinned ([`linerate_bpf::link::pin`]).

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::btf::{Btf, types::Func};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapHandle, MapType};
use linerate_bpf::{flags, test_run};
use zerocopy::IntoBytes;

use crate::config::Statistics;
use crate::maps::Maps;
use crate::table::clock::Clock;
use crate::table::layout::{self, Heartbeat, WAYS};
use crate::{Error, Result};

mod port;

pub use port::{
    PortOptions, PortPrograms, TC_ONLY, TcAttachment, XDP_ONLY, egress_enabled, enable_egress,
    register,
};
pub(crate) use port::{send_by, unregister};

include!(concat!(env!("OUT_DIR"), "/accelerator.rs"));

/// The part of its slots that a table may have taken: five sixths. More would leave more sessions without a slot.
const FULL: (u64, u64) = (5, 6);

/// `BPF_F_XDP_HAS_FRAGS`: the program accepts frames in several buffers.
const HAS_FRAGS: u32 = flags::BPF_F_XDP_HAS_FRAGS;

/// The kfunc from a program's context to the kernel's (`bpf/kernel.h`).
const CAST: &str = "bpf_cast_to_kern_ctx";

/// What is decided before the programs are loaded.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where packets are counted.
    pub statistics: Statistics,
    /// Capacity in sessions, in the range [`crate::config::MAX_SESSIONS_RANGE`].
    pub max_sessions: u64,
    /// Accept frames in several buffers, which some drivers require for a large MTU. The programs then query
    /// the length of each frame, on all ports.
    pub multi_buffer: bool,
    /// Packets of a session that the kernel sees before it is learned: 1 or more.
    pub admission: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            statistics: Statistics::default(),
            max_sessions: 1_000_000,
            multi_buffer: false,
            admission: 2,
        }
    }
}

/// Sizes of the maps for these options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Buckets of eight sessions, five sixths full at most.
    pub buckets: u32,
    /// Hops, which sessions share: a power of two.
    pub hops: u32,
    /// Entries of `looked`: a power of two.
    pub looked: u32,
    /// Entries of `candidates`: a power of two.
    pub candidates: u32,
}

impl Sizes {
    /// For this many sessions.
    pub fn of(max_sessions: u64) -> Self {
        let sessions = max_sessions.clamp(1, 1 << 31);
        let power = |least: u64| least.next_power_of_two().min(1 << 31) as u32;
        Self {
            buckets: (sessions * FULL.1).div_ceil(FULL.0 * WAYS as u64) as u32,
            hops: power(sessions / 32).clamp(1 << 10, 1 << 16),
            looked: power(sessions / 32).clamp(1 << 10, 1 << 16),
            candidates: power(sessions).max(1 << 16),
        }
    }
}

/// A map before it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapSpec {
    pub(crate) kind: MapType,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) entries: u32,
    flags: u32,
}

impl MapSpec {
    /// Bytes of all its values.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.entries) * u64::from(self.value_size).next_multiple_of(8)
    }

    /// User space can map it.
    pub(crate) fn is_mapped(&self) -> bool {
        self.flags & flags::BPF_F_MMAPABLE != 0
    }

    /// Its entries are allocated on demand.
    pub(crate) fn is_not_preallocated(&self) -> bool {
        self.flags & flags::BPF_F_NO_PREALLOC != 0
    }
}

/// All maps that programs with these options will have.
///
/// # Errors
/// As [`Programs::load`].
pub(crate) fn map_specs(options: &Options) -> Result<Vec<MapSpec>> {
    let mut storage = MaybeUninit::uninit();
    let open = open(options, &mut storage)?;
    let spec = |map: libbpf_rs::OpenMap<'_>| MapSpec {
        kind: map.map_type(),
        key_size: map.key_size(),
        value_size: map.value_size(),
        entries: map.max_entries(),
        flags: map.map_flags(),
    };
    Ok(open.open_object().maps().map(spec).collect())
}

/// The names of the maps that are kept.
///
/// # Errors
/// As [`Programs::load`].
pub(crate) fn map_names() -> Result<Vec<String>> {
    let mut storage = MaybeUninit::uninit();
    let open = open(&Options::default(), &mut storage)?;
    let names = open.open_object().maps();
    Ok(names.filter_map(|map| name_of(&map.name().to_string_lossy())).collect())
}

/// The programs as these options want them, with the maps in their sizes.
fn open<'o>(
    options: &Options,
    storage: &'o mut MaybeUninit<libbpf_rs::OpenObject>,
) -> Result<skeleton::OpenAcceleratorSkel<'o>> {
    linerate_bpf::log_to_tracing();
    let sizes = Sizes::of(options.max_sessions);
    let mut open = skeleton::AcceleratorSkelBuilder::default()
        .open(storage)
        .map_err(|error| Error::bpf("read the forwarding programs", &error))?;
    if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
        constants.statistics = options.statistics.number();
        constants.buckets = sizes.buckets;
        constants.hop_mask = sizes.hops - 1;
        constants.looked_mask = sizes.looked - 1;
        constants.candidate_mask = sizes.candidates - 1;
        constants.multi_buffer = options.multi_buffer.into();
        constants.hz = Clock::from_boot_time().hz();
    }
    let refused = |error| Error::bpf("size the maps of the forwarding programs", &error);
    let maps = &mut open.maps;
    maps.table.set_max_entries(sizes.buckets).map_err(refused)?;
    maps.table6.set_max_entries(sizes.buckets).map_err(refused)?;
    maps.cold.set_max_entries(sizes.buckets).map_err(refused)?;
    maps.looked.set_max_entries(sizes.looked).map_err(refused)?;
    let hop = size_of::<layout::Hop>() as u32;
    maps.data_hops.set_value_size(sizes.hops * hop).map_err(refused)?;
    maps.candidates.set_max_entries(sizes.candidates).map_err(refused)?;
    Ok(open)
}

/// Why no session can be learned on this kernel, if none can.
pub fn unavailable() -> Option<&'static str> {
    let has = |kernel: Btf<'_>| kernel.type_by_name::<Func<'_>>(CAST).is_some();
    (!Btf::from_vmlinux().is_ok_and(has)).then_some(
        "the kernel does not let programs read its packets (it has no bpf_cast_to_kern_ctx)",
    )
}

/// Programs in the kernel, with their maps.
#[derive(Debug)]
pub struct Programs {
    programs: BTreeMap<String, OwnedFd>,
    /// Their maps.
    pub maps: Maps,
}

impl Programs {
    /// Loads the programs and creates their maps, with new random hash keys. Nothing is attached, the
    /// generation is 1, and there is no heartbeat yet, so everything goes to the kernel.
    ///
    /// # Errors
    /// [`Error::Kernel`] if sessions cannot be learned ([`unavailable`]); [`Error::Privilege`];
    /// [`Error::System`] if memory is short or the verifier refuses a program.
    pub fn load(options: &Options) -> Result<Self> {
        Self::load_with(options, None)
    }

    /// Loads programs that reuse the maps of others with the same layout, mode, statistics and size.
    ///
    /// # Errors
    /// As [`Programs::load`]; [`Error::Invalid`] when the maps do not fit.
    pub fn load_with_maps(options: &Options, maps: &Maps) -> Result<Self> {
        Self::load_with(options, Some(maps))
    }

    /// Programs and maps that were loaded and pinned before.
    pub fn adopted(programs: impl IntoIterator<Item = (String, OwnedFd)>, maps: Maps) -> Self {
        Self { programs: programs.into_iter().collect(), maps }
    }

    fn load_with(options: &Options, former: Option<&Maps>) -> Result<Self> {
        if let Some(reason) = unavailable() {
            let reason = format!("{reason}; use Linux 6.2 or newer with CONFIG_DEBUG_INFO_BTF");
            return Err(Error::Kernel { action: "learn sessions", reason });
        }
        let mut storage = MaybeUninit::uninit();
        let mut open = open(options, &mut storage)?;
        if former.is_none()
            && let Some(control) = open.maps.data_control_data.as_deref_mut()
        {
            let control = &mut control.control;
            control.generation = 1;
            control.admission = options.admission.max(1);
            control.seeds = fresh_seeds()?;
            control.abi = layout::ABI;
            control.statistics = options.statistics.number();
            control.multi_buffer = options.multi_buffer.into();
            control.room = options.max_sessions.try_into().unwrap_or(u32::MAX);
        }
        let object = open.open_object_mut();
        for mut program in object.progs_mut() {
            let is_xdp = program.name() == "forward";
            if is_xdp && options.multi_buffer {
                program.set_flags(HAS_FRAGS);
            }
        }
        if let Some(former) = former {
            for mut map in object.maps_mut() {
                let name = name_of(&map.name().to_string_lossy());
                if let Some(old) = name.and_then(|name| former.get(&name).ok()) {
                    map.reuse_fd(old.as_fd())
                        .map_err(|error| Error::bpf("go on with the former maps", &error))?;
                }
            }
        }
        let loaded =
            open.load().map_err(|error| Error::load("load the forwarding programs", &error))?;
        Self::of_object(loaded.object())
    }

    /// The programs and maps of a loaded object, kept beyond it.
    pub fn of_object(object: &libbpf_rs::Object) -> Result<Self> {
        let mut programs = BTreeMap::new();
        for program in object.progs() {
            let fd = program
                .as_fd()
                .try_clone_to_owned()
                .map_err(|error| Error::system("keep a BPF program", error))?;
            programs.insert(program.name().to_string_lossy().into_owned(), fd);
        }
        let maps = object.maps().filter_map(|map| {
            let name = name_of(&map.name().to_string_lossy())?;
            Some(
                MapHandle::try_from(&map)
                    .map(|map| (name, map))
                    .map_err(|error| Error::bpf("keep a BPF map", &error)),
            )
        });
        let maps = maps.collect::<Result<_>>()?;
        Ok(Self { programs, maps })
    }

    /// The program of this name: `forward`, `forward_tc`, `learn` or `heartbeat`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none of this name.
    pub fn get(&self, name: &str) -> Result<BorrowedFd<'_>> {
        match self.programs.get(name) {
            Some(program) => Ok(program.as_fd()),
            None => Err(Error::Invalid(format!("there is no program {name}"))),
        }
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.programs.iter().map(|(name, program)| (name.as_str(), program.as_fd()))
    }

    /// The XDP program.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it was not adopted.
    pub fn xdp(&self) -> Result<BorrowedFd<'_>> {
        self.get("forward")
    }

    /// Sends a heartbeat. Returns the kernel's jiffies.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn heartbeat(&self) -> Result<u64> {
        let mut context = Heartbeat::default();
        test_run::run_syscall(self.get("heartbeat")?, context.as_mut_bytes())?;
        Ok(context.jiffies)
    }
}

/// The name of a map here; `None` if only the programs use it.
fn name_of(name: &str) -> Option<String> {
    match name {
        _ if name.ends_with(".rodata") || name.ends_with(".bss") || name.ends_with(".kconfig") => {
            None
        }
        _ => Some(name.trim_start_matches(".data.").to_owned()),
    }
}

impl Statistics {
    /// Its number in `enum statistics`.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Slot => 1,
        }
    }
}

/// Random, odd factors for the hash and the signature.
pub fn fresh_seeds() -> Result<[u64; 9]> {
    let mut seeds = [0_u64; 9];
    let got = rustix::rand::getrandom(seeds.as_mut_bytes(), rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::system("draw random numbers", errno.into()))?;
    if got < size_of_val(&seeds) {
        return Err(Error::Invalid("the kernel gave too few random numbers".into()));
    }
    Ok(seeds.map(|seed| seed | 1))
}

#[cfg(test)]
mod tests;
