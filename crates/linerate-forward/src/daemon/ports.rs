//! [`Ports`]: the interfaces by name, whatever becomes of them: one that goes and comes back is taken up again.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use libbpf_rs::MapCore;
use linerate_ring::steer::grace::Grace;

use super::ground;
use super::owned::Owned;
use crate::config::Config;
use crate::control::Control;
use crate::link::Link;
use crate::pins::PortState;
use crate::preflight::Report;
use crate::program::{Port, PortOptions, Programs, introduce};
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
    /// Its programs.
    _port: Port,
}

impl Ports {
    /// Those that were adopted.
    pub(super) fn adopted(ports: Vec<(PortState, Port)>) -> Self {
        let slot = |(state, port): (PortState, Port)| {
            let attached = Attached { index: state.ifindex, mac: state.mac, _port: port };
            (state.name, Slot { number: state.port, attached: Some(attached) })
        };
        Self(ports.into_iter().map(slot).collect())
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
        let names: Vec<_> = self.0.keys().cloned().collect();
        let is_new = |name: &String| {
            let index = links.iter().find(|link| link.name == **name).map(|link| link.index);
            let known = self.0[name].attached.as_ref().map(|attached| attached.index);
            index.is_some() && index != known
        };
        let new: Vec<_> = names.iter().filter(|name| is_new(name)).cloned().collect();
        let report = match new[..] {
            [] => Report::default(),
            _ => ground::prepare(&names, self.indices(), config.mend, owned)?,
        };
        let (mut changed, mut failures) = (false, Vec::new());
        for (name, slot) in &mut self.0 {
            alive(&owned.programs)?;
            match slot.follow(name, links, &report, owned) {
                Ok(now) => changed |= now,
                Err(error) => failures.push(error),
            }
        }
        let attached = |name: &&String| self.0[*name].attached.is_some();
        let attached: Vec<_> = new.iter().filter(attached).cloned().collect();
        if let Err(error) = ground::prove(&attached, config.probe, &mut || alive(&owned.programs)) {
            failures.push(error);
        }
        Ok((changed, failures))
    }
}

impl Slot {
    fn follow(
        &mut self,
        name: &str,
        links: &[Link],
        report: &Report,
        owned: &mut Owned,
    ) -> Result<bool> {
        let link = links.iter().find(|link| link.name == *name);
        let known = self.attached.as_ref().map(|attached| (attached.index, attached.mac));
        let link = match link {
            None if known.is_some() => {
                self.let_go(owned);
                tracing::warn!(interface = name, "gone: it is taken up again when it comes back");
                return Ok(true);
            }
            None => return Err(Error::Invalid(format!("there is no interface {name}"))),
            Some(link) => link,
        };
        let Some(mac) = link.station(links) else {
            return Err(Error::Invalid(format!(
                "interface {name} has no Ethernet address: only Ethernet interfaces can be ports"
            )));
        };
        if known == Some((link.index, mac)) {
            return Ok(false);
        }
        let options = PortOptions {
            name: name.to_owned(),
            ifindex: link.index,
            mac,
            port: self.number,
            attach: None,
        };
        match &mut self.attached {
            Some(attached) if attached.index == link.index => {
                introduce(&owned.programs, &options)?;
                attached.mac = mac;
                tracing::info!(interface = name, "has another MAC address");
            }
            _ => {
                self.let_go(owned);
                ground::refuse(report, Some(name))?;
                // Its number may have been another's, and sessions that left by that must not leave by this: they
                // are out of date before the number means anything again, and no program goes by them any more.
                let maps = &owned.programs.maps;
                Control::open(maps)?.bump();
                Grace::new(maps.get("table")?.as_fd())?.wait()?;
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
                self.attached = Some(Attached { index: link.index, mac, _port: port });
            }
        }
        Ok(true)
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
