//! [`Ports`]: the interfaces by name, whatever becomes of them: one that goes and comes back is taken up again.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use libbpf_rs::MapCore;
use linerate_bpf::rcu::RcuBarrier;
use linerate_net::link::Link;

use super::ground;
use super::owned::Owned;
use crate::config::Config;
use crate::control::Control;
use crate::link::station;
use crate::pins::PortState;
use crate::preflight::Report;
use crate::program::{Maps, Port, PortOptions, Programs, introduce, is_open, open_exit};
use crate::{Error, Result};

/// The interfaces that a configuration names.
#[derive(Debug, Default)]
pub(super) struct Ports(BTreeMap<String, Slot>);

/// The place of an interface. It has its number for as long as it is configured.
#[derive(Debug)]
struct Slot {
    number: u32,
    attached: Option<Attached>,
}

/// An interface that is a port.
#[derive(Debug)]
struct Attached {
    index: u32,
    mac: [u8; 6],
    /// The programs send frames out of it: it was proven that it can.
    is_open: bool,
    /// Its programs.
    _port: Port,
}

impl Attached {
    /// Whether the programs are still on this interface: one of the same name and index may be another.
    fn is_on(&self, link: &Link) -> bool {
        self.index == link.index && link.xdp.is_some()
    }
}

impl Ports {
    /// Those that were adopted, with these maps.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub(super) fn adopted(ports: Vec<(PortState, Port)>, maps: &Maps) -> Result<Self> {
        let slot = |(state, port): (PortState, Port)| {
            let is_open = is_open(maps, state.port, state.ifindex)?;
            let attached = Attached { index: state.ifindex, mac: state.mac, is_open, _port: port };
            Ok((state.name, Slot { number: state.port, attached: Some(attached) }))
        };
        ports.into_iter().map(slot).collect::<Result<_>>().map(Self)
    }

    /// Names of those that are attached, with commas between.
    pub(super) fn names(&self) -> String {
        self.attached().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
    }

    /// Indices of those that are attached.
    pub(super) fn indices(&self) -> Vec<u32> {
        self.attached().map(|(_, attached)| attached.index).collect()
    }

    fn attached(&self) -> impl Iterator<Item = (&str, &Attached)> {
        self.0.iter().filter_map(|(name, slot)| Some((name.as_str(), slot.attached.as_ref()?)))
    }

    /// Makes these names the ones that are configured, and takes the programs off others.
    pub(super) fn configure(&mut self, names: &[String], owned: &mut Owned) {
        let gone: Vec<_> = self.0.keys().filter(|name| !names.contains(name)).cloned().collect();
        for name in gone {
            if let Some(mut slot) = self.0.remove(&name) {
                slot.let_go(owned);
                tracing::info!(interface = name, "no longer a port");
            }
        }
        for name in names {
            let taken: Vec<_> = self.0.values().map(|slot| slot.number).collect();
            let free = (0..).find(|number| !taken.contains(number)).unwrap_or(u32::MAX);
            self.0.entry(name.clone()).or_insert(Slot { number: free, attached: None });
        }
    }

    /// Takes up interfaces that have come, lets go of those that have gone, and learns new MAC addresses. Says
    /// what could not be taken up, and why. Whether anything is otherwise than before. `alive` is called
    /// between steps, none of which takes long: it beats for the programs.
    ///
    /// # Errors
    /// When the preflight cannot look at the interfaces.
    pub(super) fn follow(
        &mut self,
        links: &[Link],
        config: &Config,
        owned: &mut Owned,
        alive: &mut dyn FnMut(&Programs) -> Result<()>,
    ) -> Result<(bool, Vec<Error>)> {
        let mut changed = false;
        // First of all: what one was may be another's now.
        for (name, slot) in &mut self.0 {
            alive(&owned.programs)?;
            changed |= slot.leave(name, found(links, name), owned);
        }
        let names: Vec<_> = self.0.keys().cloned().collect();
        let is_new = |name: &&String| self.0[*name].attached.is_none();
        let is_there = names.iter().filter(is_new).any(|name| found(links, name).is_some());
        let report = if is_there {
            ground::prepare(&names, self.indices(), config.mend, owned)?
        } else {
            Report::default()
        };
        let mut failures = Vec::new();
        for (name, slot) in &mut self.0 {
            alive(&owned.programs)?;
            match slot.follow(name, links, &report, owned) {
                Ok(now) => changed |= now,
                Err(error) => failures.push(error),
            }
        }
        for (name, slot) in &mut self.0 {
            let is_up = found(links, name).is_some_and(Link::is_up);
            if is_up && let Err(error) = slot.open(name, config.probe, owned, alive) {
                failures.push(error);
            }
        }
        Ok((changed, failures))
    }
}

/// The interface of this name.
fn found<'l>(links: &'l [Link], name: &str) -> Option<&'l Link> {
    links.iter().find(|link| link.name == name)
}

impl Slot {
    /// Lets go of an interface that is not the one of this name any more. Whether there was one.
    fn leave(&mut self, name: &str, link: Option<&Link>, owned: &mut Owned) -> bool {
        let Some(attached) = &self.attached else { return false };
        if link.is_some_and(|link| attached.is_on(link)) {
            return false;
        }
        self.let_go(owned);
        tracing::warn!(interface = name, "gone: it is taken up again when it comes back");
        true
    }

    /// Takes up an interface that has come, or learns that its MAC address is another. Whether anything is
    /// otherwise than before.
    fn follow(
        &mut self,
        name: &str,
        links: &[Link],
        report: &Report,
        owned: &mut Owned,
    ) -> Result<bool> {
        let Some(link) = found(links, name) else {
            return Err(Error::Invalid(format!("there is no interface {name}")));
        };
        let Some(mac) = station(link, links) else {
            return Err(Error::Invalid(format!(
                "interface {name} has no Ethernet address: only Ethernet interfaces can be ports"
            )));
        };
        let options = self.options(name, link.index, mac);
        if let Some(attached) = &mut self.attached {
            let differs = attached.mac != mac;
            if differs {
                introduce(&owned.programs, &options)?;
                attached.mac = mac;
                tracing::info!(interface = name, "has another MAC address");
            }
            return Ok(differs);
        }
        ground::refuse(report, Some(name))?;
        // Its number may have been another's, and sessions that left by that must not leave by this: they
        // are out of date before the number means anything again, and no program goes by them any more.
        let maps = &owned.programs.maps;
        Control::open(maps)?.bump();
        RcuBarrier::new(maps.get("table")?.as_fd())?.wait()?;
        let mut port = Port::attach(&owned.programs, &options)?;
        match &port.why_generic {
            None => tracing::info!(interface = name, attached = %port.attach, "a port"),
            Some(why) => tracing::warn!(
                interface = name,
                attached = %port.attach,
                why,
                "a port, but XDP is not in its driver: the fast path saves less"
            ),
        }
        let Owned { pins, lock, state, .. } = owned;
        pins.add_port(lock, state, &options, &mut port)?;
        let index = link.index;
        self.attached = Some(Attached { index, mac, is_open: false, _port: port });
        Ok(true)
    }

    /// Has the programs send frames out of it, once it is proven that it can. Until then what leaves by it is
    /// the kernel's.
    fn open(
        &mut self,
        name: &str,
        probe: bool,
        owned: &Owned,
        alive: &mut dyn FnMut(&Programs) -> Result<()>,
    ) -> Result<()> {
        let Some(Attached { index, mac, is_open: false, .. }) = self.attached else {
            return Ok(());
        };
        ground::prove(name, probe, &mut || alive(&owned.programs))?;
        open_exit(&owned.programs, &self.options(name, index, mac))?;
        tracing::info!(interface = name, "frames leave by it");
        if let Some(attached) = &mut self.attached {
            attached.is_open = true;
        }
        Ok(())
    }

    fn options(&self, name: &str, ifindex: u32, mac: [u8; 6]) -> PortOptions {
        PortOptions { name: name.to_owned(), ifindex, mac, port: self.number, attach: None }
    }

    /// Takes the programs off and the interface out of the maps.
    fn let_go(&mut self, owned: &mut Owned) {
        let Some(attached) = self.attached.take() else { return };
        let (number, index) = (self.number, attached.index);
        let Owned { pins, lock, state, programs, .. } = owned;
        if let Err(error) = pins.remove_port(lock, state, index) {
            tracing::warn!(%error, "a port is not quite gone");
        }
        for (map, key) in [("interfaces", index), ("ports", number), ("exits", index)] {
            if let Ok(map) = programs.maps.get(map) {
                // The kernel takes interfaces that have gone out of devmaps itself.
                let _ = map.delete(&key.to_ne_bytes());
            }
        }
    }
}
