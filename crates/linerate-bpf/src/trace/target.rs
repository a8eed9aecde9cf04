//! [`Target`]: the XDP program that is traced, and what becomes of it.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use linerate_net::Interface;
use linerate_net::privilege::{self, CapabilitySet};

use super::{Points, Program};
use crate::program::TracePoint;
use crate::xdp::query::{self, AttachedProgram, attached_to, program_info};
use crate::{Error, Result};

/// What tracing a program needs.
const WANTED: CapabilitySet =
    CapabilitySet::BPF.union(CapabilitySet::PERFMON).union(CapabilitySet::SYS_ADMIN);

/// What became of the traced XDP program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetChange {
    /// Another program is on the interface, and is traced from now on.
    Replaced {
        /// The one before; `None` where there was none for a while.
        from: Option<AttachedProgram>,
        /// The one that is traced now.
        to: AttachedProgram,
    },
    /// The program has been detached, and the interface has none.
    Detached(AttachedProgram),
}

/// The XDP program of an interface.
#[derive(Debug)]
pub(super) struct Target {
    interface: Interface,
    points: Points,
    program: AttachedProgram,
    attached: bool,
}

impl Target {
    /// The program that `interface` has.
    pub(super) fn find(interface: &Interface, points: Points) -> Result<Self> {
        let none = || {
            Error::Invalid(format!(
                "interface {} has no XDP program to trace; `ip link show dev {}` names one that is attached",
                interface.name(),
                interface.name()
            ))
        };
        let program = attached_to(interface.index())?.ok_or_else(none)?;
        Ok(Self { interface: interface.clone(), points, program, attached: true })
    }

    pub(super) fn program(&self) -> &AttachedProgram {
        &self.program
    }

    /// Calls `attach` with the points at which this target is traced.
    pub(super) fn trace(&self, attach: impl FnOnce(&[TracePoint<'_>]) -> Result<()>) -> Result<()> {
        let traced = Traced::open(&self.program, || self.action())?;
        let point = |attach_type| TracePoint {
            attach_type,
            btf_id: traced.function,
            program: Some(traced.fd.as_fd()),
        };
        let points: Vec<_> = self.points.attach_types().map(point).collect();
        attach(&points).map_err(|error| match error {
            Error::System { source, .. }
                if source.kind() == ErrorKind::PermissionDenied && privilege::has(WANTED) =>
            {
                Error::Invalid(format!(
                    "cannot {}: this kernel refuses programs that trace programs (fentry, fexit), by a security policy",
                    self.action()
                ))
            }
            other => other,
        })
    }

    fn action(&self) -> String {
        format!("trace the XDP program {} of {}", self.program.id, self.interface.name())
    }

    /// Traces the program that the interface has now, if that is another one.
    pub(super) fn update(&mut self, tracing: &mut Program) -> Result<Option<TargetChange>> {
        let found = attached_to(self.interface.index())?;
        let Some(found) = found else {
            if !std::mem::take(&mut self.attached) {
                return Ok(None);
            }
            tracing.detach();
            return Ok(Some(TargetChange::Detached(self.program.clone())));
        };
        if self.attached && found.id == self.program.id {
            return Ok(None);
        }
        let before = std::mem::replace(&mut self.program, found);
        let from = std::mem::replace(&mut self.attached, true).then_some(before);
        self.trace(|points| tracing.attach(points))?;
        Ok(Some(TargetChange::Replaced { from, to: self.program.clone() }))
    }
}

/// A loaded program, opened to be traced.
struct Traced {
    fd: OwnedFd,
    /// Its main function, a type in its BTF.
    function: u32,
}

impl Traced {
    fn open(program: &AttachedProgram, action: impl Fn() -> String) -> Result<Self> {
        let fd = query::program(program.id).map_err(|error| match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied if privilege::lacks("CAP_SYS_ADMIN") => {
                Error::Privilege { action: action(), capability: "CAP_SYS_ADMIN" }
            }
            _ => Error::system(action(), std::io::Error::other(error)),
        })?;
        let function = main_function(fd.as_fd()).ok_or_else(|| {
            Error::Invalid(format!(
                "cannot {}: \"{}\" was loaded without BTF, and the kernel traces only programs that have it \
                 (clang -g)",
                action(),
                program.name
            ))
        })?;
        Ok(Self { fd, function })
    }
}

/// The BTF type of a program's first function.
fn main_function(program: BorrowedFd<'_>) -> Option<u32> {
    let mut function = libbpf_sys::bpf_func_info::default();
    let wanted = libbpf_sys::bpf_prog_info {
        nr_func_info: 1,
        func_info_rec_size: size_of_val(&function) as u32,
        func_info: (&raw mut function) as u64,
        ..Default::default()
    };
    let info = program_info(program, wanted)?;
    (info.btf_id != 0 && info.nr_func_info > 0).then_some(function.type_id)
}
