//! [`probe`]: whether a tee would work on an interface, without touching its traffic.

use linerate_net::Interface;

use super::{Builder, Role, Tee, root, template};
use crate::steer::attach::{self, attached};
use crate::steer::program::{self, Load};
use crate::{Error, Result};

/// What a tee would give on an interface.
#[derive(Debug)]
#[non_exhaustive]
pub struct Probe {
    /// Why it does not work, if it does not: a missing privilege (with how to grant it), a foreign
    /// XDP program, no such interface, a kernel without what it needs.
    pub obstacle: Option<Error>,
    /// Another capture is there already, which this one would join.
    pub joins: bool,
}

impl Probe {
    /// Whether a [`Tee`] can be expected to open.
    pub fn works(&self) -> bool {
        self.obstacle.is_none()
    }
}

/// Tries what can be tried without attaching: makes the maps and loads the root program.
pub fn probe(interface: &str) -> Probe {
    match attempt(interface) {
        Ok(joins) => Probe { obstacle: None, joins },
        Err(error) => Probe { obstacle: Some(error), joins: false },
    }
}

fn attempt(name: &str) -> Result<bool> {
    program::quiet_libbpf();
    let interface = Interface::open(name)?;
    let found = attached(interface.index())?;
    let joins = match &found {
        Some(found) if found.name == root::NAME => true,
        Some(found) => return Err(attach::foreign(name, found)),
        None => false,
    };
    let wanted: Builder<'_> = Tee::builder(name);
    template(&wanted, 0, Role::Root)?.load(Load::default())?;
    Ok(joins)
}
