//! [`InstanceReader`]: reads an instance from its maps, with or without a daemon.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use linerate_bpf::xdp::AttachMode;
use linerate_net::link;

use crate::datapath::Datapath;
use crate::maps::Maps;
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::runtime::datapath::{self, Examined};
use crate::runtime::heartbeat;
use crate::runtime::link::name_of;
use crate::runtime::memory;
use crate::snapshot::{Counter, Port, Sessions, Side, Snapshot};
use crate::table::Table;
use crate::table::clock::Clock;
use crate::table::control::Control;
use crate::table::layout::interface;
use crate::table::rules::Rules;
use crate::table::session::Decoder;
use crate::{Error, Result};

/// An instance opened for reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct InstanceReader<'a> {
    pub(super) name: &'a str,
    pub(super) maps: &'a Maps,
    pub(super) control: &'a Control,
    pub(super) table: &'a Table,
    pub(super) clock: Clock,
}

impl InstanceReader<'_> {
    /// The instance now. `process` is its daemon, `active` the number of its sessions, which [`Table::count`] finds.
    pub(super) fn snapshot(
        &self,
        process: Option<u32>,
        active: u64,
        blocked: u64,
    ) -> Result<Snapshot> {
        let (age, timeout) = heartbeat::age_and_timeout(self.control, &self.clock);
        let reasons = Reason::ALL.iter().map(|one| (one.name(), one.description()));
        let refusals = Refusal::ALL.iter().map(|one| (one.name(), one.description()));
        Ok(Snapshot {
            instance: self.name.to_owned(),
            statistics: self.control.statistics().name(),
            state: heartbeat::state(self.control, &self.clock),
            process,
            heartbeat_age: age.as_secs_f64(),
            heartbeat_timeout: timeout.as_secs_f64(),
            generation: self.control.generation(),
            sessions: Sessions {
                active,
                capacity: self.table.capacity() as u64,
                memory_bytes: memory::of_maps(self.maps)?,
            },
            reasons: self.counters("reasons", reasons)?,
            refusals: self.counters("refusals", refusals)?,
            rules: Rules::new(self.maps)?.kept()?,
            blocked,
            ports: self.ports()?,
        })
    }

    /// Decodes its sessions, with the reasons for their datapath.
    pub(super) fn decoder(&self) -> Result<Decoder> {
        let ports = self.ports()?;
        let not_xdp = |side: fn(&Port) -> &Side| {
            let ports = ports.iter().filter(|port| side(port).datapath != Some(Datapath::Xdp));
            let reason = |port: &Port| {
                let reason = side(port).reason.as_deref().unwrap_or_default();
                (port.index, format!("{}: {reason}", port.interface).into())
            };
            ports.map(reason).collect()
        };
        let not_xdp = [not_xdp(|port| &port.ingress), not_xdp(|port| &port.egress)];
        Ok(self.table.decoder(self.clock).with_reasons(not_xdp))
    }

    /// The counters of a map, which have these names and descriptions.
    fn counters(
        &self,
        map: &str,
        names: impl Iterator<Item = (&'static str, &'static str)>,
    ) -> Result<Vec<Counter>> {
        let map = self.maps.get(map)?;
        let counted = |(index, (name, description))| {
            Ok(Counter { name, description, packets: sum(map, index)? })
        };
        (0..).zip(names).map(counted).collect()
    }

    /// Ports with their counters, in the order of their numbers.
    fn ports(&self) -> Result<Vec<Port>> {
        let mut ports = datapath::examine(self.maps)?;
        ports.sort_by_key(|port| port.interface.port);
        let links = link::all()
            .map_err(|error| Error::system("read the counters of the interfaces", error.into()))?;
        let port = |port: Examined| {
            let Examined { index, interface: entry, uppers, obstacles, .. } = port;
            let interface = name_of(index);
            let link = links.iter().find(|link| link.index == index);
            let xdp_mode = xdp_mode(&interface);
            let fastest = |xdp: u16, tc: u16| match entry.flags {
                flags if flags & xdp != 0 => Some(Datapath::Xdp),
                flags if flags & tc != 0 => Some(Datapath::Tc),
                _ => None,
            };
            let no_xdp = || (xdp_mode == "none").then(|| "no XDP program on it".to_owned());
            // XDP sends by the port below a VLAN device.
            let no_xdp_out = || no_xdp().filter(|_| entry.flags & interface::XDP_OUT == 0);
            Port {
                ingress: Side {
                    datapath: fastest(interface::XDP_IN, interface::TC_IN),
                    reason: obstacles.ingress.or(obstacles.ingress_xdp).or_else(no_xdp),
                },
                egress: Side {
                    datapath: fastest(interface::XDP_OUT, interface::TC_OUT),
                    reason: obstacles.egress.or(obstacles.egress_xdp).or_else(no_xdp_out).or_else(
                        || {
                            let may_send = entry.flags & interface::XDP_OUT != 0;
                            (!may_send).then(|| "not verified that it transmits".to_owned())
                        },
                    ),
                },
                xdp_mode,
                interface,
                index,
                upper_devices: uppers.into_iter().map(name_of).collect(),
                traffic: link.map(|link| link.statistics.into()).unwrap_or_default(),
            }
        };
        Ok(ports.into_iter().map(port).collect())
    }
}

/// The sum over all CPUs of a counter.
fn sum(map: &MapHandle, index: u32) -> Result<u64> {
    let failed = |error| Error::bpf("read a counter of the programs", &error);
    let values = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
    let number = |value: &Vec<u8>| value.as_slice().try_into().map_or(0, u64::from_ne_bytes);
    Ok(values.iter().flatten().map(number).sum())
}

/// How our XDP program is attached to an interface; `none` if it is not, `unknown` where this process may not know.
fn xdp_mode(interface: &str) -> &'static str {
    match linerate_bpf::xdp::attached(interface) {
        Err(linerate_bpf::Error::NoInterface(_)) | Ok(None) => "none",
        Err(_) => "unknown",
        Ok(Some(found)) if found.name.is_empty() => "unknown",
        Ok(Some(found)) if found.name != "forward" => "none",
        Ok(Some(found)) if found.mode == AttachMode::Generic => "generic",
        Ok(Some(_)) => "native",
    }
}
