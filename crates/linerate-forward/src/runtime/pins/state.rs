//! [`InstanceState`]: the record of an instance, which the next daemon adopts.

use std::collections::BTreeMap;

use linerate_bpf::xdp::AttachMode;
use serde::{Deserialize, Serialize};

use super::Namespace;
use crate::config::Statistics;
use crate::datapath::Mode;
use crate::runtime::conntrack::SavedSysctls;
use crate::runtime::program::{Options, PortOptions, PortPrograms, Programs, TcAttachment};
use crate::table::layout;

/// Changes when older records cannot be read.
const FORMAT: u32 = 1;

/// The record of an instance, as JSON in a pinned map. Later versions may add fields, which earlier ones
/// ignore.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceState {
    format: u32,
    /// The layout of the maps: programs of the same layout keep the sessions.
    pub abi: u32,
    /// The build of the programs: those of another build are replaced.
    pub build: String,
    /// The last daemon's process.
    pub process: u32,
    /// It has attached the programs to the interfaces that there were.
    #[serde(default = "is_ready")]
    pub is_ready: bool,
    /// The network namespace of its interfaces.
    #[serde(flatten)]
    pub namespace: Namespace,
    /// Where packets are counted.
    pub statistics: Statistics,
    /// The capacity in sessions.
    pub max_sessions: u64,
    /// The programs accept frames in several buffers.
    pub multi_buffer: bool,
    /// The datapaths that the ports were attached for.
    #[serde(default)]
    pub datapath: Mode,
    /// The former settings of window tracking.
    #[serde(flatten)]
    pub windows: SavedSysctls,
    /// The ports.
    pub ports: Vec<PortState>,
    /// Additional data by name, for instance how to undo fixes.
    #[serde(default)]
    pub others: BTreeMap<String, serde_json::Value>,
}

/// Daemons of versions that did not record it count as ready.
fn is_ready() -> bool {
    true
}

/// A port in the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortState {
    /// The interface's name when it became a port.
    pub name: String,
    /// Its index.
    pub ifindex: u32,
    /// Its MAC address then.
    pub mac: [u8; 6],
    /// Its number.
    pub port: u32,
    /// What may be done with its packets, `interface.flags` of `bpf/layout.h`.
    #[serde(default)]
    pub flags: u16,
    /// XDP is in the driver, not in the stack.
    pub native: bool,
    /// Why it is not.
    pub generic_reason: Option<String>,
    /// `learn` is attached by clsact because the kernel has no tcx; true if we created the clsact.
    pub clsact: Option<bool>,
}

impl PortState {
    /// The record of a port that was attached with `options`.
    pub(super) fn new(options: &PortOptions, port: &PortPrograms) -> Self {
        let made = port.tc_attachments.iter().filter_map(|attachment| match attachment {
            TcAttachment::Clsact(filter) => Some(filter.made),
            TcAttachment::Tcx(_) => None,
        });
        Self {
            name: options.name.clone(),
            ifindex: options.ifindex,
            mac: options.mac,
            port: options.port,
            flags: match port.xdp {
                Some(_) => options.flags,
                None => options.without_xdp().flags,
            },
            native: port.attach == AttachMode::Native,
            generic_reason: port.generic_reason.clone(),
            clsact: made.reduce(|one, other| one | other),
        }
    }

    /// The options to attach the port with again.
    pub fn options(&self) -> PortOptions {
        PortOptions {
            name: self.name.clone(),
            ifindex: self.ifindex,
            mac: self.mac,
            port: self.port,
            attach: Some(self.attach()),
            flags: self.flags,
        }
    }

    /// Where the fast path runs.
    pub fn attach(&self) -> AttachMode {
        if self.native { AttachMode::Native } else { AttachMode::Generic }
    }
}

/// The pinned objects of an instance, opened.
#[derive(Debug)]
pub struct PinnedInstance {
    /// Its record.
    pub state: InstanceState,
    /// Its programs and maps.
    pub programs: Programs,
    /// The ports whose interfaces exist, with their links.
    pub ports: Vec<(PortState, PortPrograms)>,
    /// Those whose interfaces are gone: [`super::Pins::remove_port`] forgets them.
    pub gone: Vec<PortState>,
}

impl InstanceState {
    /// The record of programs that were loaded with `options` by this process, in `namespace`, no port yet.
    pub fn new(options: &Options, namespace: Namespace) -> Self {
        Self {
            format: FORMAT,
            abi: layout::ABI,
            build: BUILD.to_owned(),
            process: std::process::id(),
            is_ready: false,
            namespace,
            statistics: options.statistics,
            max_sessions: options.max_sessions,
            multi_buffer: options.multi_buffer,
            datapath: Mode::default(),
            windows: SavedSysctls::default(),
            ports: Vec::new(),
            others: BTreeMap::new(),
        }
    }

    /// The port at interface `ifindex`.
    pub fn port(&self, ifindex: u32) -> Option<&PortState> {
        self.ports.iter().find(|one| one.ifindex == ifindex)
    }

    /// Whether the programs are those that this process would load.
    pub fn is_this_build(&self) -> bool {
        self.build == BUILD
    }

    /// Whether programs with these options can keep the sessions; if not, what differs.
    pub fn check_compatible(&self, options: &Options) -> Result<(), String> {
        self.check_layout()?;
        let same = |what: &str, here: String, there: String| {
            if here == there {
                return Ok(());
            }
            Err(format!("{what} is {here} now and was {there}"))
        };
        same("statistics", options.statistics.to_string(), self.statistics.to_string())?;
        let (here, there) = (options.max_sessions, self.max_sessions);
        same("max-sessions", here.to_string(), there.to_string())
    }

    /// Whether the maps have the layout of this version.
    pub(super) fn check_layout(&self) -> Result<(), String> {
        if self.abi == layout::ABI {
            return Ok(());
        }
        Err(format!(
            "the tables are of layout {}, those of this version of layout {}; `linerate forward detach` \
             removes them, `linerate forward run` replaces them",
            self.abi,
            layout::ABI
        ))
    }

    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        /// The part that every format has.
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let broken = |error: serde_json::Error| format!("the record cannot be read ({error})");
        let Head { format } = serde_json::from_slice(text).map_err(broken)?;
        if format != FORMAT {
            return Err(format!(
                "the record is of format {format}, this version's of {FORMAT}; `linerate forward detach` \
                 removes the instance"
            ));
        }
        serde_json::from_slice(text).map_err(broken)
    }

    pub(super) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record has a form in JSON")
    }
}

/// The programs in this executable.
const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "-", env!("ACCELERATOR_HASH"));

#[cfg(test)]
mod tests;
