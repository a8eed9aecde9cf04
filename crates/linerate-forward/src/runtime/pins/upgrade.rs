//! [`Pins::upgrade`]: replaces the running programs atomically, between two frames.

use std::fs;

use libbpf_rs::{TC_EGRESS, TC_INGRESS};

use super::{Lock, PinnedInstance, Pins, remove_directory};
use crate::runtime::clsact;
use crate::runtime::memory::Memory;
use crate::runtime::program::{
    Options, Programs, TcAttachment, egress_enabled, enable_egress, register,
};
use crate::table::layout;
use crate::{Error, Result};

impl Pins {
    /// Replaces the running programs by programs of this build with these options. No frame is lost: each
    /// link changes atomically, between two frames. Programs of the same layout, mode, statistics and size
    /// keep the maps. Others start with empty ones: the result says why the sessions, their counters and the deny list
    /// could not be kept.
    ///
    /// # Errors
    /// [`Error::Bpf`], [`Error::System`] if the programs do not load, and [`Error::Invalid`] if there is no
    /// memory for new tables beside the former; the former programs then still run. After the first link has
    /// changed all others are tried, and the first error is returned.
    pub fn upgrade(
        &self,
        lock: &Lock,
        pinned: &mut PinnedInstance,
        options: &Options,
    ) -> Result<Option<String>> {
        let lost = pinned.state.check_compatible(options).err();
        let programs = match lost {
            None => Programs::load_with_maps(options, &pinned.programs.maps)?,
            Some(_) => {
                // The former tables exist until the new ones replace them.
                Memory::of(options)?.check()?;
                Programs::load(options)?
            }
        };
        for (one, _) in &pinned.ports {
            register(&programs, &one.options())?;
            if egress_enabled(&pinned.programs.maps, one.port, one.ifindex)? {
                enable_egress(&programs, &one.options())?;
            }
        }
        let mut first = Ok(());
        for (one, port) in &pinned.ports {
            let mut keep = |result: Result<()>| {
                if let Err(error) = result {
                    tracing::warn!(%error, interface = %one.name, "cannot upgrade a port");
                    if first.is_ok() {
                        first = Err(error);
                    }
                }
            };
            // `learn` first: packets that the new fast path misses then reach the new learner.
            for attachment in &port.tc_attachments {
                let TcAttachment::Tcx(link) = attachment else { continue };
                let name =
                    if super::ports::file_of(link)? == "egress" { "learn" } else { "forward_tc" };
                keep(programs.get(name).and_then(|program| Ok(link.replace(program)?)));
            }
            if one.clsact.is_some() {
                for (name, point) in [("learn", TC_EGRESS), ("forward_tc", TC_INGRESS)] {
                    let replaced = programs.get(name).and_then(|program| {
                        let mut filter = clsact::attach(program, one.ifindex, point)
                            .map_err(|error| Error::bpf("replace a clsact filter", &error))?;
                        filter.keep();
                        Ok(())
                    });
                    keep(replaced);
                }
            }
            if let Some(xdp) = &port.xdp {
                keep(programs.xdp().and_then(|program| Ok(xdp.replace(program)?)));
            }
        }
        first?;
        // Programs of another version may have other names.
        let known: Vec<_> = programs.iter().map(|(name, _)| name.to_owned()).collect();
        self.pin_programs(lock, &programs)?;
        for old in super::bpffs::names(&self.directory.join("programs"))? {
            if !known.contains(&old) {
                super::bpffs::remove_file(&self.directory.join("programs").join(old))?;
            }
        }
        if lost.is_some() {
            let maps = self.directory.join("maps");
            let old = self.directory.join("maps-old");
            remove_directory(&old)?;
            fs::rename(&maps, &old)
                .map_err(|error| Error::system(format!("replace {}", maps.display()), error))?;
            self.pin_maps(lock, &programs.maps)?;
            remove_directory(&old)?;
        } else {
            // A map that is new in this version.
            self.pin_maps(lock, &programs.maps)?;
        }
        let state = &mut pinned.state;
        let new = super::InstanceState::new(options, state.namespace);
        (state.abi, state.build, state.process) = (layout::ABI, new.build, new.process);
        state.statistics = new.statistics;
        (state.max_sessions, state.multi_buffer) = (new.max_sessions, new.multi_buffer);
        self.save_state(lock, state)?;
        pinned.programs = programs;
        Ok(lost)
    }
}
