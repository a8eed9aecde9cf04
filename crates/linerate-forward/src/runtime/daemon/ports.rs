//! [`Ports`]: the configured interfaces by name. One that disappears and comes back becomes a port again.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use linerate_bpf::link::has_tcx_ingress_program;
use linerate_bpf::rcu::RcuSynchronizer;
use linerate_net::NoInterface;
use linerate_net::link::Link;
use linerate_net::text::list;

use super::handle::InstanceHandle;
use super::setup;
use crate::config::Config;
use crate::datapath::Mode;
use crate::maps::Maps;
use crate::runtime::link::{dst_mac, why_no_xdp};
use crate::runtime::pins::PortState;
use crate::runtime::preflight::{Outcome, Report};
use crate::runtime::program::{
    PortOptions, PortPrograms, Programs, egress_enabled, enable_egress, register, unregister,
};
use crate::table::control::Control;
use crate::table::layout::interface;
use crate::{Error, Result};

/// The interfaces that a configuration names.
#[derive(Debug, Default)]
pub(super) struct Ports(BTreeMap<String, PortSlot>);

/// A configured interface. It keeps its number for as long as it is configured.
#[derive(Debug)]
struct PortSlot {
    number: u32,
    attached: Option<Attached>,
}

/// An interface that is a port.
#[derive(Debug)]
struct Attached {
    index: u32,
    mac: [u8; 6],
    /// The programs send frames out of it, since it was verified that it transmits.
    egress_enabled: bool,
    /// Why they do not, as logged.
    refusal: Option<String>,
    /// What may be done with its packets, as it was attached.
    flags: u16,
    /// Its programs.
    _port: PortPrograms,
}

impl Attached {
    /// Whether the programs are still on this interface: another may have the same name and index.
    fn is_on(&self, link: &Link) -> bool {
        let has_programs = || match self.flags & interface::XDP {
            0 => has_tcx_ingress_program(link.index).unwrap_or(true),
            _ => link.xdp.is_some(),
        };
        self.index == link.index && has_programs()
    }
}

impl Ports {
    /// Those that were adopted, with these maps.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub(super) fn adopted(ports: Vec<(PortState, PortPrograms)>, maps: &Maps) -> Result<Self> {
        let slot = |(state, port): (PortState, PortPrograms)| {
            let egress_enabled = egress_enabled(maps, state.port, state.ifindex)?;
            let attached = Attached {
                index: state.ifindex,
                mac: state.mac,
                egress_enabled,
                refusal: None,
                flags: state.flags,
                _port: port,
            };
            Ok((state.name, PortSlot { number: state.port, attached: Some(attached) }))
        };
        ports.into_iter().map(slot).collect::<Result<_>>().map(Self)
    }

    /// Names of those that are attached, for a message.
    pub(super) fn names(&self) -> String {
        list(&self.attached().map(|(name, _)| name).collect::<Vec<_>>())
    }

    /// Indices of those that are attached.
    pub(super) fn indices(&self) -> Vec<u32> {
        self.attached().map(|(_, attached)| attached.index).collect()
    }

    fn attached(&self) -> impl Iterator<Item = (&str, &Attached)> {
        self.0.iter().filter_map(|(name, slot)| Some((name.as_str(), slot.attached.as_ref()?)))
    }

    /// Configures these names, and detaches the programs from all others.
    pub(super) fn configure(&mut self, names: &[String], handle: &mut InstanceHandle) {
        let gone: Vec<_> = self.0.keys().filter(|name| !names.contains(name)).cloned().collect();
        for name in gone {
            if let Some(mut slot) = self.0.remove(&name) {
                slot.detach(handle);
                tracing::info!(interface = name, "port removed");
            }
        }
        for name in names {
            let taken: Vec<_> = self.0.values().map(|slot| slot.number).collect();
            let free = (0..).find(|number| !taken.contains(number)).unwrap_or(u32::MAX);
            self.0.entry(name.clone()).or_insert(PortSlot { number: free, attached: None });
        }
    }

    /// Attaches interfaces that have appeared, drops those that are gone, and updates MAC addresses. Returns whether
    /// anything changed, and why interfaces could not be attached. Calls `alive`, which sends heartbeats,
    /// between steps, none of which takes long.
    ///
    /// # Errors
    /// When the preflight cannot check the interfaces.
    pub(super) fn follow(
        &mut self,
        links: &[Link],
        config: &Config,
        handle: &mut InstanceHandle,
        alive: &mut dyn FnMut(&Programs) -> Result<()>,
    ) -> Result<(bool, Vec<Error>)> {
        let mut changed = false;
        // First: an index may belong to another interface now.
        for (name, slot) in &mut self.0 {
            alive(&handle.programs)?;
            changed |= slot.drop_if_gone(name, found(links, name), handle);
        }
        let names: Vec<_> = self.0.keys().cloned().collect();
        let is_new = |name: &&String| self.0[*name].attached.is_none();
        let is_there = names.iter().filter(is_new).any(|name| found(links, name).is_some());
        let report = if is_there {
            setup::prepare(&names, self.indices(), config, handle)?
        } else {
            Report::default()
        };
        let mut failures = Vec::new();
        for (name, slot) in &mut self.0 {
            alive(&handle.programs)?;
            match slot.follow(name, links, &report, config, handle) {
                Ok(now) => changed |= now,
                Err(error) => failures.push(error),
            }
        }
        for (name, slot) in &mut self.0 {
            let is_up = found(links, name).is_some_and(Link::is_up);
            if is_up && let Err(error) = slot.open(name, config, handle, alive) {
                failures.push(error);
            }
        }
        Ok((changed, failures))
    }
}

/// What a port has while it is attached; the rest is decided by what is on the interface ([`datapath::refresh`]).
///
/// [`datapath::refresh`]: crate::runtime::datapath::refresh
fn base_flags(link: &Link, mode: Mode, multi_buffer: bool) -> u16 {
    let ethernet = if link.is_ethernet() { interface::ETHERNET } else { 0 };
    match mode {
        _ if why_no_xdp(link, multi_buffer).is_some() => ethernet,
        Mode::Auto => ethernet | interface::XDP | interface::TC_IN,
        Mode::Xdp => ethernet | interface::XDP,
        Mode::Tc => ethernet,
    }
}

/// The interface of this name.
fn found<'l>(links: &'l [Link], name: &str) -> Option<&'l Link> {
    links.iter().find(|link| link.name == name)
}

impl PortSlot {
    /// Drops an interface that no longer is the one of this name. Returns whether there was one.
    fn drop_if_gone(
        &mut self,
        name: &str,
        link: Option<&Link>,
        handle: &mut InstanceHandle,
    ) -> bool {
        let Some(attached) = &self.attached else { return false };
        if link.is_some_and(|link| attached.is_on(link)) {
            return false;
        }
        self.detach(handle);
        tracing::warn!(
            interface = name,
            "interface gone; it becomes a port again when it comes back"
        );
        true
    }

    /// Attaches an interface that has appeared, or updates its MAC address. Returns whether anything changed.
    fn follow(
        &mut self,
        name: &str,
        links: &[Link],
        report: &Report,
        config: &Config,
        handle: &mut InstanceHandle,
    ) -> Result<bool> {
        let Some(link) = found(links, name) else {
            return Err(Error::Invalid(NoInterface::new(name).to_string()));
        };
        let mac = if link.is_ethernet() { dst_mac(link, links) } else { Some([0; 6]) };
        let Some(mac) = mac else {
            return Err(Error::Invalid(format!("interface {name} has no Ethernet address")));
        };
        let options = self.options(
            name,
            link.index,
            mac,
            base_flags(link, config.datapath, handle.state.multi_buffer),
        );
        if let Some(attached) = &mut self.attached {
            let differs = attached.mac != mac;
            if differs {
                let options = PortOptions { flags: attached.flags, ..options };
                register(&handle.programs, &options)?;
                attached.mac = mac;
                tracing::info!(interface = name, "MAC address changed");
            }
            return Ok(differs);
        }
        setup::refuse(report, Some(name))?;
        // Another interface may have had its number. Sessions that left by that one must not leave by this one: the
        // bump makes them stale, and after a grace period no program uses them.
        let maps = &handle.programs.maps;
        Control::open(maps)?.bump_generation();
        RcuSynchronizer::new(maps.get("table")?.as_fd())?.wait()?;
        let mut port = PortPrograms::attach(&handle.programs, &options)?;
        match &port.generic_reason {
            None if port.xdp.is_none() => {
                let reason = why_no_xdp(link, handle.state.multi_buffer);
                tracing::info!(interface = name, reason, "port added, without XDP");
            }
            None => tracing::info!(interface = name, xdp_mode = %port.attach, "port added"),
            Some(reason) if port.xdp.is_none() => tracing::warn!(
                interface = name,
                reason,
                "port added, but without native XDP in its driver: TC forwards its packets"
            ),
            Some(reason) => tracing::warn!(
                interface = name,
                xdp_mode = %port.attach,
                reason,
                "port added, but without native XDP in its driver: the fast path saves less"
            ),
        }
        let InstanceHandle { pins, lock, state, .. } = handle;
        pins.add_port(lock, state, &options, &mut port)?;
        let index = link.index;
        let flags = if port.xdp.is_some() { options.flags } else { options.without_xdp().flags };
        self.attached =
            Some(Attached { index, mac, egress_enabled: false, refusal: None, flags, _port: port });
        Ok(true)
    }

    /// Lets the programs send frames out of it, once it is verified that it transmits. Until then the kernel
    /// forwards what leaves by it, or TC where it may.
    fn open(
        &mut self,
        name: &str,
        config: &Config,
        handle: &InstanceHandle,
        alive: &mut dyn FnMut(&Programs) -> Result<()>,
    ) -> Result<()> {
        let Some(Attached { index, mac, egress_enabled: false, flags, .. }) = self.attached else {
            return Ok(());
        };
        if flags & interface::XDP == 0 {
            return Ok(());
        }
        let report = setup::verify_transmit(name, config.probe, &mut || alive(&handle.programs))?;
        if config.datapath == Mode::Xdp {
            setup::refuse(&report, None)?;
        }
        let refused = report.refusals().find_map(|finding| match &finding.outcome {
            Outcome::Refused { reason, .. } => Some(reason),
            _ => None,
        });
        if let (Some(reason), Some(attached)) = (refused, &mut self.attached) {
            if attached.refusal.as_ref() != Some(reason) {
                tracing::warn!("{name}: {reason}: what leaves by it takes TC");
                attached.refusal = Some(reason.clone());
            }
            return Ok(());
        }
        enable_egress(&handle.programs, &self.options(name, index, mac, flags))?;
        tracing::info!(interface = name, "egress enabled");
        if let Some(attached) = &mut self.attached {
            attached.egress_enabled = true;
        }
        Ok(())
    }

    fn options(&self, name: &str, ifindex: u32, mac: [u8; 6], flags: u16) -> PortOptions {
        PortOptions { name: name.to_owned(), ifindex, mac, port: self.number, attach: None, flags }
    }

    /// Detaches the programs, removes the interface from the maps, and makes the sessions stale.
    fn detach(&mut self, handle: &mut InstanceHandle) {
        let Some(attached) = self.attached.take() else { return };
        let (number, index) = (self.number, attached.index);
        let InstanceHandle { pins, lock, state, programs, .. } = handle;
        if let Err(error) = pins.remove_port(lock, state, index) {
            tracing::warn!(%error, "cannot remove a port completely");
        }
        unregister(&programs.maps, number, index);
        // Sessions that use it, also those that were learned since the kernel reported a change.
        if let Ok(control) = Control::open(&programs.maps) {
            control.bump_generation();
        }
    }
}
