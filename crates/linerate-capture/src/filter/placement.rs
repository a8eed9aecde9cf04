//! [`Placement`]: whether a filter runs in the kernel or in user space, and why.

use linerate_bpf::filter::{
    ClassicProgram, Instruction, MemoryFilter, Untranslatable, translate, translate_for_memory,
};

use super::{ETHERNET, Filter, PACKET_HOST, TagReading, cooked_header};
use crate::{Error, Result};

/// One of the two sides of the system call; what `--filter-in` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FilterLocation {
    /// In the kernel, before the frame is copied: a rejected frame costs almost nothing.
    Kernel,
    /// After it was delivered.
    User,
}

linerate_net::named!(FilterLocation, "place of a filter": Kernel = "kernel", User = "user");

/// Where a filter runs, with the program for the kernel if that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement<P> {
    /// The program for the kernel.
    pub kernel: Option<P>,
    /// Whether every frame must pass [`Filter::matches`].
    pub user: bool,
    /// The reason, a clause for the user to read.
    pub reason: String,
}

impl<P> Placement<P> {
    /// The side on which the filter runs.
    pub fn location(&self) -> FilterLocation {
        if self.user { FilterLocation::User } else { FilterLocation::Kernel }
    }

    fn in_kernel(program: P, reason: &str) -> Self {
        Self { kernel: Some(program), user: false, reason: reason.to_owned() }
    }

    fn in_user(reason: impl Into<String>) -> Self {
        Self { kernel: None, user: true, reason: reason.into() }
    }
}

impl Filter {
    /// Places the filter for a packet socket. `wanted` is the user's choice; `None` prefers the
    /// kernel.
    ///
    /// # Errors
    ///
    /// [`Error::Filter`] when the user wants the kernel, which cannot run the expression.
    pub fn place_on_socket(
        &self,
        wanted: Option<FilterLocation>,
    ) -> Result<Placement<ClassicProgram>> {
        let without_tags = self.reading == TagReading::File && self.link_type == ETHERNET;
        let obstacle = match self.program.obstacle() {
            Some(obstacle) => Some(obstacle.to_string()),
            None if without_tags => {
                Some("the kernel takes VLAN tags out of frames before a socket's filter".to_owned())
            }
            None => None,
        };
        let looks_up = self.program.looks_up();
        let program = match looks_up {
            true => self.prefilter.as_ref().filter(|_| !without_tags),
            false => Some(&self.program),
        };
        let program = program.and_then(|program| match cooked_header(self.link_type) {
            Some(header) => program.on_cooked_socket(header),
            None => Some(program.clone()),
        });
        match (obstacle, program) {
            _ if wanted == Some(FilterLocation::User) => Ok(Placement::in_user("requested")),
            (Some(reason), program) if looks_up => {
                let program = program.filter(|program| program.obstacle().is_none());
                Ok(Placement { kernel: program, ..self.instead(wanted, reason)? })
            }
            (Some(reason), _) => self.instead(wanted, reason),
            (None, None) => self
                .instead(wanted, "it reads link-layer addresses, which are beside a frame".into()),
            (None, Some(program)) => {
                Ok(Placement::in_kernel(program, "classic BPF on the packet socket"))
            }
        }
    }

    /// Places the filter for an XDP program, as [`Filter::place_on_socket`] does for a socket. The program gives
    /// the verdict that a packet socket would give.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn place_in_xdp(
        &self,
        wanted: Option<FilterLocation>,
    ) -> Result<Placement<Vec<Instruction>>> {
        self.in_ebpf(wanted, translate, "eBPF inside the XDP program")
    }

    /// Places the filter for a tracing program, with the meaning that it has in XDP.
    ///
    /// # Errors
    ///
    /// As [`Filter::place_on_socket`].
    pub fn place_in_trace(
        &self,
        wanted: Option<FilterLocation>,
    ) -> Result<Placement<MemoryFilter>> {
        self.in_ebpf(wanted, translate_for_memory, "eBPF inside the tracing program")
    }

    fn in_ebpf<P>(
        &self,
        wanted: Option<FilterLocation>,
        translate: impl Fn(&ClassicProgram) -> std::result::Result<P, Untranslatable>,
        place: &str,
    ) -> Result<Placement<P>> {
        if wanted == Some(FilterLocation::User) {
            return Ok(Placement::in_user("requested"));
        }
        if let Err(error) = self.program.load_sets() {
            return self.instead(wanted, error.to_string());
        }
        let in_place = match self.reading {
            TagReading::File => translate(&self.program),
            TagReading::Live => match self.program.with_inline_vlan_tags(PACKET_HOST) {
                Some(program) => translate(&program),
                None => {
                    let reason = match self.program.obstacle() {
                        Some(obstacle) if !self.program.looks_up() => obstacle.to_string(),
                        _ => "it reads around the place of the VLAN tag".to_owned(),
                    };
                    return self.instead(wanted, reason);
                }
            },
        };
        match in_place {
            Ok(program) => Ok(Placement::in_kernel(program, place)),
            Err(reason) => self.instead(wanted, reason.to_string()),
        }
    }

    /// The placement after a kernel refused the program that [`Filter::place_on_socket`] or
    /// [`Filter::place_in_xdp`] returned; `reason` is its error.
    ///
    /// # Errors
    ///
    /// [`Error::Filter`] when the user insists on the kernel (`wanted`).
    pub fn fall_back_to_user<P>(
        &self,
        wanted: Option<FilterLocation>,
        reason: &str,
    ) -> Result<Placement<P>> {
        self.instead(wanted, format!("the kernel refused the program: {reason}"))
    }

    fn instead<P>(&self, wanted: Option<FilterLocation>, reason: String) -> Result<Placement<P>> {
        if wanted == Some(FilterLocation::Kernel) {
            return Err(Error::filter(&self.text, reason, None));
        }
        Ok(Placement::in_user(reason))
    }
}
