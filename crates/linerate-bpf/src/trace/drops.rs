//! The program that traces what the kernel drops: `bpf/drops.bpf.c`.

use std::mem::MaybeUninit;

use libbpf_rs::ReferencesType;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, FuncProto, Ptr, Typedef};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::{Interface, LoadableProgram, Options, Program, Setup, TracePoint};
use crate::{Error, Result};

include!(concat!(env!("OUT_DIR"), "/drops.rs"));

/// The kernel's type of the tracepoint.
const TRACEPOINT: &str = "btf_trace_kfree_skb";
/// Bytes of room behind a record for what is made and what the stack has passed: `SLACK` in `bpf/drops.bpf.c`.
const SLACK: u32 = 18 + 256;

/// Options of a drop trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct DropOptions<'i> {
    /// Packets of this interface only; `None` takes all of the network namespace.
    pub interface: Option<&'i Interface>,
    /// Packets a second at most; the others are counted.
    pub rate_limit: Option<u32>,
}

impl Program {
    /// Traces what the kernel drops in this network namespace. Packets are copied from then on.
    ///
    /// # Errors
    /// [`Error::Invalid`] on a kernel without the tracepoint, [`Error::Privilege`], [`Error::Verifier`],
    /// [`Error::System`].
    pub fn drops(drops: DropOptions<'_>, options: &Options<'_>) -> Result<Self> {
        let tracepoint = Tracepoint::find()?;
        let point = TracePoint {
            attach_type: libbpf_sys::BPF_TRACE_RAW_TP,
            btf_id: tracepoint.id,
            program: None,
        };
        let start = |reads_pages| {
            let setup = Setup::new(options)?;
            let loadable = open(&setup, drops, &tracepoint, reads_pages)?;
            let mut program = Self::new(vec![loadable], options, setup.rings, None)?;
            program.attach(&[point])?;
            Ok(program)
        };
        match start(true) {
            // Before Linux 6.11 no tracing program reads the paged part of a packet.
            Err(Error::Verifier { reason, .. }) => {
                tracing::debug!(%reason, "the paged part of packets cannot be read");
                start(false)
            }
            result => result,
        }
    }
}

/// The tracepoint as this kernel has it.
struct Tracepoint {
    id: u32,
    /// How many values it passes.
    values: usize,
}

impl Tracepoint {
    fn find() -> Result<Self> {
        let btf = kernel_types()?;
        let find = || {
            let declared: Typedef<'_> = btf.type_by_name(TRACEPOINT)?;
            let pointer: Ptr<'_> = declared.referenced_type().try_into().ok()?;
            let function: FuncProto<'_> = pointer.referenced_type().try_into().ok()?;
            // The first parameter is the tracepoint's own.
            Some(Self { id: declared.type_id().into(), values: function.len().saturating_sub(1) })
        };
        find()
            .ok_or_else(|| Error::Invalid("this kernel has no tracepoint skb:kfree_skb".to_owned()))
    }
}

fn kernel_types() -> Result<Btf<'static>> {
    Btf::from_vmlinux().map_err(|error| {
        Error::Invalid(format!(
            "this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF): {error}"
        ))
    })
}

/// The names of the kernel's drop reasons (`enum skb_drop_reason`), without their common prefix, by their numbers.
///
/// # Errors
/// [`Error::Invalid`] on a kernel without BTF.
pub fn drop_reasons() -> Result<Vec<(u32, String)>> {
    let btf = kernel_types()?;
    let Some(reasons) = btf.type_by_name::<Enum<'_>>("skb_drop_reason") else {
        return Ok(Vec::new());
    };
    let name = |name: &std::ffi::OsStr| {
        let name = name.to_string_lossy();
        name.strip_prefix("SKB_DROP_REASON_").unwrap_or(&name).to_owned()
    };
    Ok(reasons.iter().filter_map(|one| Some((one.value as u32, name(one.name?)))).collect())
}

fn open(
    setup: &Setup,
    drops: DropOptions<'_>,
    tracepoint: &Tracepoint,
    reads_pages: bool,
) -> Result<LoadableProgram> {
    let mut storage = MaybeUninit::uninit();
    let invalid = |error| Error::Invalid(format!("cannot prepare the drop trace: {error}"));
    let mut object = skeleton::DropsSkelBuilder::default().open(&mut storage).map_err(invalid)?;
    object.maps.rings.set_inner_map_fd(setup.rings.template()).map_err(invalid)?;
    object.maps.heads.set_max_entries(setup.cpus).map_err(invalid)?;
    object.maps.heads.set_value_size(setup.reach + SLACK).map_err(invalid)?;
    if let Some(constants) = object.maps.rodata_data.as_deref_mut() {
        constants.timestamps = setup.timestamps;
        constants.snaplen = setup.snaplen;
        constants.ifindex = drops.interface.map_or(0, Interface::index);
        constants.netns = setup.netns;
        constants.head_len = setup.reach;
        constants.has_reason = u32::from(tracepoint.values > 2);
        constants.has_receiver = u32::from(tracepoint.values > 3);
        constants.reads_pages = u32::from(reads_pages);
        constants.rate_limit = drops.rate_limit.unwrap_or(0);
    }
    LoadableProgram::prepare(object.open_object(), "dropped")
}
