//! The links of ports: `ports/IFINDEX/` of an instance.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use libbpf_rs::ProgramAttachType;
use libbpf_rs::query::{LinkInfo, LinkTypeInfo, TcxLinkInfo};
use linerate_bpf::link::{self, Link};

use super::bpffs::{self, remove_directory, remove_file};
use super::{InstanceState, Lock, Pins, PortState};
use crate::runtime::clsact;
use crate::runtime::program::{PortOptions, PortPrograms, TcAttachment};
use crate::{Error, Result};

/// Files of the links at egress and ingress of the stack: `learn` and `forward_tc`.
const STACK: [&str; 2] = ["egress", "ingress"];
/// Files of all links of a port.
pub(super) const LINKS: [&str; 3] = ["egress", "ingress", "xdp"];

impl Pins {
    /// Pins the links of a port, and adds the port to the record.
    ///
    /// # Errors
    /// [`Error::Bpf`], [`Error::System`]; nothing of the port stays pinned.
    pub fn add_port(
        &self,
        lock: &Lock,
        state: &mut InstanceState,
        options: &PortOptions,
        port: &mut PortPrograms,
    ) -> Result<()> {
        let one = PortState::new(options, port);
        let directory = bpffs::make(self.port(one.ifindex))?;
        let mut new = state.clone();
        new.ports.retain(|other| other.ifindex != one.ifindex);
        new.ports.push(one);
        let pin = || -> Result<()> {
            for attachment in &port.tc_attachments {
                if let TcAttachment::Tcx(link) = attachment {
                    self.put(link.as_fd(), &directory.join(file_of(link)?))?;
                }
            }
            if let Some(xdp) = &port.xdp {
                self.put(xdp.as_fd(), &directory.join("xdp"))?;
            }
            self.save_state(lock, &new)
        };
        if let Err(error) = pin() {
            drop(remove_directory(&directory));
            return Err(error);
        }
        for attachment in &mut port.tc_attachments {
            if let TcAttachment::Clsact(filter) = attachment {
                filter.keep();
            }
        }
        *state = new;
        Ok(())
    }

    /// Removes a port from the record and its programs from the interface, which may be gone.
    ///
    /// # Errors
    /// [`Error::Bpf`], [`Error::System`].
    pub fn remove_port(&self, lock: &Lock, state: &mut InstanceState, ifindex: u32) -> Result<()> {
        let Some(at) = state.ports.iter().position(|one| one.ifindex == ifindex) else {
            return Ok(());
        };
        self.detach_port(ifindex, state.ports[at].clsact)?;
        state.ports.remove(at);
        self.save_state(lock, state)
    }

    /// The links of a port; `None` when its interface is gone.
    pub(super) fn open_port(&self, one: &PortState) -> Result<Option<PortPrograms>> {
        let directory = self.port(one.ifindex);
        // Each of them knows whether the interface is there.
        let links = LINKS.map(|file| directory.join(file)).into_iter();
        let Some(any) = links.rev().find(|path| path.exists()) else { return Ok(None) };
        if interface_of(&any)? == Some(0) {
            return Ok(None);
        }
        let xdp = directory.join("xdp");
        let mut tc_attachments = Vec::new();
        for file in STACK {
            let path = directory.join(file);
            if path.exists() {
                tc_attachments.push(TcAttachment::Tcx(link::open(&path)?.into()));
            }
        }
        Ok(Some(PortPrograms {
            xdp: xdp.exists().then(|| link::open(&xdp)).transpose()?.map(Link::from),
            attach: one.attach(),
            generic_reason: one.generic_reason.clone(),
            tc_attachments,
        }))
    }

    pub(super) fn detach_port(&self, ifindex: u32, clsact: Option<bool>) -> Result<()> {
        let directory = self.port(ifindex);
        // The fast path first: what it forwarded last was learned by programs that are still there.
        for file in ["xdp", "ingress", "egress"] {
            let path = directory.join(file);
            if !path.exists() {
                continue;
            }
            // Others may hold the link; if the interface is gone, it is already detached.
            if let Err(error) = Link::from(link::open(&path)?).detach() {
                tracing::debug!(%error, path = %path.display(), "detach");
            }
            remove_file(&path)?;
        }
        if let Some(made) = clsact {
            clsact::remove(ifindex, made)?;
        }
        remove_directory(&directory)
    }

    fn port(&self, ifindex: u32) -> PathBuf {
        self.directory.join("ports").join(ifindex.to_string())
    }
}

/// The pin file of a link at the stack.
pub(super) fn file_of(link: &Link) -> Result<&'static str> {
    let info = LinkInfo::from_fd(link.as_fd())
        .map_err(|error| Error::bpf("ask for the hook of a link", &error))?;
    Ok(match info.info {
        LinkTypeInfo::Tcx(TcxLinkInfo { attach_type: ProgramAttachType::TcxIngress, .. }) => {
            STACK[1]
        }
        _ => STACK[0],
    })
}

/// The interface of the link pinned at `path`, 0 if it is gone; `None` for a link of another kind.
pub(super) fn interface_of(path: &Path) -> Result<Option<u32>> {
    let failed = |error| Error::bpf(format!("open {}", path.display()), &error);
    let info = libbpf_rs::Link::open(path).and_then(|link| link.info()).map_err(failed)?;
    Ok(match info.info {
        LinkTypeInfo::Xdp(info) => Some(info.ifindex),
        LinkTypeInfo::Tcx(info) => Some(info.ifindex),
        _ => None,
    })
}
