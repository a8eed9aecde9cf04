//! Which datapaths the sessions of each port may take: the flags of the map `interfaces` (`bpf/layout.h`).
//!
//! XDP bypasses everything between the driver and the wire, and TC what comes after the start of tc ingress. So both
//! are refused where something has to see a packet that they would take past it:
//!
//! - Filters for what a port receives (`ingress`, `clsact`, other tcx programs): they police, mirror or inspect. The
//!   port's packets stay with the kernel. So it is with such filters of a bridge or VLAN device above the port.
//! - Filters for what a port sends, and a qdisc that somebody attached: its sessions take TC, whose packets pass
//!   both. A qdisc that the kernel attached by default (handle 0, `net.core.default_qdisc`) expresses nobody's wish, and
//!   `noqueue`, `pfifo_fast` and `mq` only hold what waits for the driver: there is nothing to obey.
//! - Receive packet steering (RPS) of a port: packets that wait for another CPU would be overtaken by what XDP sends
//!   at once. Its sessions take TC, which runs on that CPU behind them.
//! - nftables chains that hook an interface: TC runs before those at ingress, and the kernel spares what tc has
//!   redirected those at egress (`nf_skip_egress`). The kernel forwards.
//! - Qdiscs, classifiers and actions that look at what only the stack knows (route, connection, socket), there or on an
//!   interface below: the kernel forwards.
//! - A device that XDP cannot serve, or whose frames need several buffers: TC. What leaves by a VLAN device on a port
//!   takes XDP, which adds the tag and sends by the port below: for both, nothing may be there to obey.

use std::collections::BTreeMap;

use libbpf_rs::{MapCore, MapFlags};
use linerate_bpf::link::{TcxPrograms, tcx_programs};
use linerate_net::link::Link;
use linerate_net::qdisc::{EGRESS_FILTERS, Filter, INGRESS_FILTERS, Qdisc};
use linerate_net::ruleset::DeviceChain;
use linerate_net::{Connection, Steering, ethtool, link};
use zerocopy::{FromBytes, IntoBytes};

use crate::datapath::Mode;
use crate::maps::Maps;
use crate::runtime::clsact::PRIORITY;
use crate::runtime::link::{longest_in_one_buffer, lower_devices, name_of, vlan_of, why_no_xdp};
use crate::runtime::program::{egress_enabled, send_by};
use crate::runtime::upper_devices;
use crate::table::layout::{self, interface};
use crate::{Error, Result};

/// Qdiscs that decide nothing about packets.
const TRIVIAL_QDISCS: [&str; 3] = ["noqueue", "pfifo_fast", "mq"];
/// Classifiers that look at the packet and at what TC keeps of it: mark and priority.
const PACKET_CLASSIFIERS: [&str; 5] = ["u32", "matchall", "fw", "flower", "bpf"];
/// Actions that look at no more than that. `ct`, `connmark` and `ctinfo` look at the connection, and `xt` may be any target
/// of iptables.
const PACKET_ACTIONS: [&str; 15] = [
    "bpf", "csum", "gact", "gate", "ife", "mirred", "mpls", "nat", "pedit", "police", "sample",
    "simple", "skbedit", "skbmod", "vlan",
];

/// What must see the packets of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Obstacles {
    /// Why what comes in stays with the kernel.
    pub(crate) ingress: Option<String>,
    /// Why what comes in does not take XDP.
    pub(crate) ingress_xdp: Option<String>,
    /// Why what leaves does not take XDP.
    pub(crate) egress_xdp: Option<String>,
    /// Why what leaves stays with the kernel.
    pub(crate) egress: Option<String>,
}

/// A port of the programs, and what is on its interface.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) index: u32,
    pub(crate) interface: layout::Interface,
    /// Its upper devices.
    pub(crate) uppers: Vec<u32>,
    pub(crate) obstacles: Obstacles,
    /// Of a VLAN device: the port below it, and its tag as in a frame.
    lower: Option<(u32, [u8; 4])>,
}

/// Examines all ports. The kernel forwards for one that cannot be examined, as it has gone meanwhile, or is hidden.
///
/// # Errors
/// [`Error::Bpf`] where the ports are unknown.
pub(crate) fn examine(maps: &Maps) -> Result<Vec<Examined>> {
    let mut uppers = BTreeMap::<u32, Vec<u32>>::new();
    for (upper, port) in upper_devices::pairs_in(maps)? {
        uppers.entry(port).or_default().push(upper);
    }
    let interfaces = interfaces(maps)?;
    let reader = ObstacleReader::open(interfaces.clone());
    let examine = |(index, interface): (u32, layout::Interface)| {
        let uppers = uppers.remove(&index).unwrap_or_default();
        let read = match &reader {
            Ok(reader) => {
                reader.read(index, interface.flags, &uppers).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        let obstacles = read.unwrap_or_else(|error| {
            tracing::debug!(%error, "datapath");
            let unknown = || Some("unknown".to_owned());
            Obstacles { ingress: unknown(), egress: unknown(), ..Obstacles::default() }
        });
        let lower = reader.as_ref().ok().and_then(|reader| reader.lower(index));
        Examined { index, interface, uppers, obstacles, lower }
    };
    Ok(interfaces.into_iter().map(examine).collect())
}

/// Reads what must see packets, in one pass over the ports.
struct ObstacleReader {
    connection: Connection,
    links: Vec<Link>,
    /// Interfaces with programs of ours.
    ports: Vec<(u32, layout::Interface)>,
    chains: Vec<DeviceChain>,
    /// A daemon says at its start that it cannot tell.
    steering: Option<Steering>,
}

impl ObstacleReader {
    fn open(ports: Vec<(u32, layout::Interface)>) -> Result<Self> {
        let failed = |error| Error::system("list the filters of the interfaces", error);
        let connection = Connection::open().map_err(|error| failed(error.into()))?;
        let links = link::all().map_err(|error| failed(error.into()))?;
        let chains = DeviceChain::all().map_err(failed)?;
        Ok(Self { connection, links, ports, chains, steering: Steering::open().ok() })
    }

    /// Of a port with these flags, below `uppers`.
    fn read(&self, ifindex: u32, flags: u16, uppers: &[u32]) -> Result<Obstacles> {
        let mut found = self.own(ifindex)?;
        found.ingress_xdp = self.steers(ifindex);
        for upper in uppers {
            let above = self.own(*upper)?;
            let on = |what: String| format!("{what} of the interface above");
            // A bridge hands packets to the stack anew; a VLAN device does not.
            let is_bridge =
                self.links.iter().any(|link| link.index == *upper && link.kind == "bridge");
            let steers = || self.steers(*upper).filter(|_| is_bridge);
            found.ingress = found.ingress.or(above.ingress.or_else(steers).map(on));
            // What is sent below it would pass neither.
            found.egress = found.egress.or(above.egress.or(above.egress_xdp).map(on));
        }
        // TC passes what is below, as it came from the stack.
        let mut below_xdp = None;
        for lower in lower_devices(&self.links, ifindex) {
            let on = |what: String| format!("{what} of the interface below");
            let below = self.own(lower)?;
            found.egress = found.egress.or(below.egress.map(on));
            below_xdp = below_xdp.or(below.egress_xdp.map(on));
        }
        let Some(link) = self.link(ifindex) else { return Ok(found) };
        // With XDP it has room for the frames.
        let has_room = flags & interface::XDP != 0;
        if let Some(reason) = why_no_xdp(link, has_room) {
            found.ingress_xdp = Some(reason.clone());
            match self.lower(ifindex) {
                None => found.egress_xdp = Some(reason),
                Some(_) if link.vlan.is_some_and(|vlan| vlan.maps_priority) => {
                    found.egress_xdp = Some("its egress-qos-map".into());
                }
                Some((lower, _)) => {
                    let single = self.why_single_buffer(lower)?;
                    found.egress_xdp = found.egress_xdp.or(below_xdp).or(single);
                }
            }
        } else if let Some(reason) = self.why_single_buffer(ifindex)? {
            found.egress_xdp = Some(reason);
        }
        Ok(found)
    }

    fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// The port below this VLAN device that XDP may send by, and the tag.
    fn lower(&self, ifindex: u32) -> Option<(u32, [u8; 4])> {
        let link = self.link(ifindex)?;
        let (vlan, lower) = (link.vlan?, vlan_of(link)?);
        let is_port = |(index, port): &(u32, layout::Interface)| {
            *index == lower && port.flags & interface::XDP != 0
        };
        let [tpid, tci] = [vlan.protocol, vlan.id].map(u16::to_be_bytes);
        self.ports.iter().any(is_port).then_some((lower, [tpid[0], tpid[1], tci[0], tci[1]]))
    }

    /// Why XDP does not send the longest frames of this interface, if that is so.
    fn why_single_buffer(&self, ifindex: u32) -> Result<Option<String>> {
        let is_long = self.link(ifindex).is_some_and(|link| link.mtu > longest_in_one_buffer());
        let no = is_long && !sends_multi_buffer(ifindex)?;
        Ok(no.then(|| "its driver sends no frames of several buffers".to_owned()))
    }

    /// Whether what the interface receives waits for other CPUs.
    fn steers(&self, ifindex: u32) -> Option<String> {
        let is_on = self.steering.as_ref()?.is_on(&name_of(ifindex)).unwrap_or(false);
        is_on.then(|| "receive packet steering (RPS)".to_owned())
    }

    /// Of the interface itself.
    fn own(&self, ifindex: u32) -> Result<Obstacles> {
        let is_port = self.ports.iter().any(|(index, _)| *index == ifindex);
        let mut found = filters_and_qdiscs(&self.connection, ifindex, is_port)?;
        let name = name_of(ifindex);
        let chain = |is_egress: bool| {
            let mut chains = self.chains.iter();
            let chain = chains.find(|one| one.is_egress == is_egress && one.is_on(&name))?;
            Some(format!("nftables chain {} of table {}", chain.name, chain.table))
        };
        found.ingress = found.ingress.or_else(|| chain(false));
        found.egress = found.egress.or_else(|| chain(true));
        Ok(found)
    }
}

fn sends_multi_buffer(ifindex: u32) -> Result<bool> {
    let xdp = ethtool::xdp_features(ifindex);
    let xdp = xdp.map_err(|error| Error::system("ask what a driver can", error.into()))?;
    Ok(xdp.is_some_and(|xdp| xdp.sends_multi_buffer()))
}

/// Tc filters, tcx programs and qdiscs of the interface itself; on a port there is one program of ours in each
/// direction.
fn filters_and_qdiscs(connection: &Connection, ifindex: u32, is_port: bool) -> Result<Obstacles> {
    let failed = |error: linerate_net::Error| {
        Error::system(format!("list the filters of interface {ifindex}"), error.into())
    };
    let ours = u32::from(is_port);
    let [ingress_tcx, egress_tcx] = tcx_programs(ifindex)?.map(|programs| programs.count > ours);
    let qdiscs = connection.qdiscs(ifindex).map_err(failed)?;
    let filters = |parent| -> Result<Vec<Filter>> {
        let mut all = connection.filters(ifindex, parent).map_err(failed)?;
        all.retain(|filter| !is_port || filter.priority != PRIORITY);
        Ok(all)
    };
    let mut obstacles = Obstacles::default();
    if ingress_tcx {
        obstacles.ingress = Some("another tcx ingress program".into());
    } else if let Some(filter) = filters(INGRESS_FILTERS)?.first() {
        obstacles.ingress = Some(format!("ingress filter {}", filter.kind));
    }
    // An `ingress` qdisc would name its own.
    let has_egress = qdiscs.iter().any(|qdisc| qdisc.kind == "clsact");
    let egress = if has_egress { filters(EGRESS_FILTERS)? } else { Vec::new() };
    let obeyed = || qdiscs.iter().filter(|qdisc| is_obeyed(qdisc));
    obstacles.egress_xdp = match (obeyed().next(), egress.first()) {
        (Some(qdisc), _) => Some(format!("qdisc {}", qdisc.kind)),
        (_, Some(filter)) => Some(format!("egress filter {}", filter.kind)),
        _ if egress_tcx => Some("another tcx egress program".into()),
        _ => None,
    };
    let mut all = egress;
    for qdisc in obeyed() {
        all.extend(filters(qdisc.handle)?);
    }
    if obeyed().next().is_some() {
        for class in connection.inner_classes(ifindex).map_err(failed)? {
            all.extend(filters(class)?);
        }
    }
    let of_stack =
        obeyed().filter_map(qdisc_of_stack).chain(all.iter().filter_map(filter_of_stack));
    obstacles.egress = of_stack.map(|what| format!("{what}, which needs the stack")).next();
    Ok(obstacles)
}

/// The qdisc, if it looks at more than the packet and what TC keeps of it.
fn qdisc_of_stack(qdisc: &Qdisc) -> Option<String> {
    match qdisc.kind.as_str() {
        "cake" if qdisc.reads_connection => Some("qdisc cake with nat".into()),
        // They read `tc_index`, by which `learn` knows a packet of TC.
        "gred" | "dsmark" => Some(format!("qdisc {}", qdisc.kind)),
        _ => None,
    }
}

/// The filter, or its action, if it looks at more than the packet and what TC keeps of it.
fn filter_of_stack(filter: &Filter) -> Option<String> {
    if !PACKET_CLASSIFIERS.contains(&filter.kind.as_str()) {
        return Some(format!("filter {}", filter.kind));
    }
    if filter.matches_connection {
        return Some(format!("filter {} by connection", filter.kind));
    }
    let action = filter.actions.iter().find(|kind| !PACKET_ACTIONS.contains(&kind.as_str()))?;
    Some(format!("action {action}"))
}

/// Whether packets have to go through it.
fn is_obeyed(qdisc: &Qdisc) -> bool {
    !qdisc.is_ingress() && qdisc.handle != 0 && !TRIVIAL_QDISCS.contains(&qdisc.kind.as_str())
}

/// What no message of the kernel tells of an interface: its tcx programs, and whether its packets are steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreported {
    tcx: [TcxPrograms; 2],
    is_steered: bool,
}

/// The same of these ports and the devices above them, by index.
///
/// # Errors
/// [`Error::Bpf`] where the devices are unknown.
pub(crate) fn unreported(
    maps: &Maps,
    ports: &[u32],
    steering: Option<&Steering>,
) -> Result<BTreeMap<u32, Unreported>> {
    let read = |index: u32| {
        let is_steered =
            steering.is_some_and(|steering| steering.is_on(&name_of(index)).unwrap_or(false));
        // One that has gone has none.
        (index, Unreported { tcx: tcx_programs(index).unwrap_or_default(), is_steered })
    };
    let uppers = upper_devices::pairs_in(maps)?.into_iter().map(|(upper, _)| upper);
    Ok(ports.iter().copied().chain(uppers).map(read).collect())
}

/// Sets the flags of all ports by what is there now. Returns whether that made a difference: then a bump has to
/// follow, so that sessions of the former flags are learned again.
///
/// # Errors
/// [`Error::System`] where the kernel does not answer.
pub(crate) fn refresh(maps: &Maps, mode: Mode) -> Result<bool> {
    let map = maps.get("interfaces")?;
    let mut changed = false;
    let all = interfaces(maps)?;
    for Examined { index, interface: before, obstacles, lower, .. } in examine(maps)? {
        let sends = |index: u32| -> Result<bool> {
            let port = all.iter().find(|(other, _)| *other == index).map(|(_, one)| one.port);
            port.map_or(Ok(false), |port| egress_enabled(maps, port, index))
        };
        let (by, tag) = lower.unwrap_or((index, [0; 4]));
        let xdp_sends = sends(by)?;
        if xdp_sends && by != index {
            send_by(maps, before.port, by)?;
        }
        let mut flags = flags(before.flags, mode, xdp_sends, &obstacles);
        if by != index && flags & interface::XDP_OUT != 0 {
            flags |= interface::VLAN;
        }
        let after = layout::Interface { flags, tag, ..before };
        if after != before {
            map.update(&index.to_ne_bytes(), after.as_bytes(), MapFlags::EXIST)
                .map_err(|error| Error::bpf("choose the datapath of an interface", &error))?;
            changed = true;
        }
    }
    Ok(changed)
}

/// The flags of a port that had `before`.
fn flags(before: u16, mode: Mode, xdp_sends: bool, obstacles: &Obstacles) -> u16 {
    let fixed = before & (interface::XDP | interface::ETHERNET);
    let has_xdp = fixed & interface::XDP != 0;
    let when = |is: bool, flag: u16| if is { flag } else { 0 };
    let (comes_in, leaves) = (obstacles.ingress.is_none(), obstacles.egress.is_none());
    let tc = mode != Mode::Xdp;
    fixed
        | when(has_xdp && comes_in && obstacles.ingress_xdp.is_none(), interface::XDP_IN)
        | when(xdp_sends && leaves && obstacles.egress_xdp.is_none(), interface::XDP_OUT)
        | when(tc && comes_in, interface::TC_IN)
        | when(tc && leaves, interface::TC_OUT)
}

/// The interfaces that the programs know, by index.
pub(crate) fn interfaces(maps: &Maps) -> Result<Vec<(u32, layout::Interface)>> {
    let map = maps.get("interfaces")?;
    let mut all = Vec::new();
    for key in map.keys() {
        let value = map
            .lookup(&key, MapFlags::ANY)
            .map_err(|error| Error::bpf("read the interfaces of the programs", &error))?;
        // Without a value it was removed during the listing.
        let interface = value.and_then(|value| layout::Interface::read_from_bytes(&value).ok());
        let index = key.as_slice().try_into().map(u32::from_ne_bytes);
        all.extend(index.ok().zip(interface));
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
