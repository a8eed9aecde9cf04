//! The programs that trace an XDP program: `bpf/trace.bpf.c`.

use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::target::Target;
use super::{Interface, LoadableProgram, Options, Program, Setup};
use crate::{Error, Result};

include!(concat!(env!("OUT_DIR"), "/trace.rs"));

/// Where an XDP program is traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Points {
    /// Before it runs (fentry): frames as they came.
    Entry,
    /// When it has returned (fexit): frames as they left, with the verdict.
    Exit,
    /// Both: two records of each frame.
    #[default]
    Both,
}

impl Points {
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Entry => &["trace_entry"],
            Self::Exit => &["trace_exit"],
            Self::Both => &["trace_entry", "trace_exit"],
        }
    }

    /// The attach types, in the order of the programs.
    pub(super) fn attach_types(self) -> impl Iterator<Item = u32> {
        self.programs().iter().map(|name| match *name {
            "trace_entry" => libbpf_sys::BPF_TRACE_FENTRY,
            _ => libbpf_sys::BPF_TRACE_FEXIT,
        })
    }
}

impl Program {
    /// Traces the XDP program that `interface` has now. Frames are copied from then on.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is none, or it has no BTF; [`Error::Privilege`], [`Error::Verifier`],
    /// [`Error::System`].
    pub fn xdp(interface: &Interface, points: Points, options: &Options<'_>) -> Result<Self> {
        let target = Target::find(interface, points)?;
        let setup = Setup::new(options)?;
        let loadables = open(&setup, interface.index(), points)?;
        let mut program = Self::new(loadables, options, setup.rings, None)?;
        target.trace(|points| program.attach(points))?;
        program.target = Some(target);
        Ok(program)
    }
}

fn open(setup: &Setup, ifindex: u32, points: Points) -> Result<Vec<LoadableProgram>> {
    let mut storage = MaybeUninit::uninit();
    let invalid = |error| Error::Invalid(format!("cannot prepare the tracing programs: {error}"));
    let mut object = skeleton::TraceSkelBuilder::default().open(&mut storage).map_err(invalid)?;
    object.maps.rings.set_inner_map_fd(setup.rings.template()).map_err(invalid)?;
    object.maps.heads.set_max_entries(2 * setup.cpus).map_err(invalid)?;
    object.maps.heads.set_value_size(setup.reach.max(1)).map_err(invalid)?;
    if let Some(constants) = object.maps.rodata_data.as_deref_mut() {
        constants.timestamps = setup.timestamps;
        constants.snaplen = setup.snaplen;
        constants.ifindex = ifindex;
        constants.netns = setup.netns;
        constants.head_len = setup.reach;
        constants.entry_numbers = u32::from(points != Points::Exit);
    }
    LoadableProgram::prepare_all(object.open_object(), points.programs())
}
