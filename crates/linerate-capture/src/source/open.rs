//! [`OpenInterface`]: opens the sources of one interface.

use std::sync::Arc;
use std::time::Duration;

use linerate_bpf::filter::{CookedHeader, Instruction};
use linerate_net::cpu;
use linerate_net::link::Link;
use linerate_net::namespace::Namespace;
use linerate_net::text::plural;
use linerate_ring::packet::{self, Fanout, Ring};
use linerate_ring::region::Pages;
use linerate_ring::trace::Points;
use linerate_ring::{Action, Delivery, Receiver, TimestampSource, WaitStrategy};

use super::kind::SourceKind;
use super::options::SourceOptions;
use super::select::{Selection, select};
use super::{Source, affinity};
use crate::filter::{
    ETHERNET, Filter, FilterCache, FilterLocation, LINUX_SLL, LINUX_SLL2, Placement, TagReading,
    cooked_header,
};
use crate::interface::{self, ANY};
use crate::{Error, Result};

/// Which frames a source takes from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenFrames {
    /// None.
    None,
    /// Those that the filter accepts.
    Accepted,
    /// All, as the filter runs in user space.
    All,
}

/// An interface with its open sources.
#[derive(Debug)]
pub struct OpenInterface {
    /// The interface as it was found.
    pub interface: Link,
    /// What reports and files call it: its name, and that of its namespace where there are several.
    pub label: String,
    /// Its network namespace, where that is not the one of the process.
    pub namespace: Option<Arc<Namespace>>,
    /// One source for each reader.
    pub sources: Vec<Source>,
    /// The CPUs for each of several readers; empty where the kernel shall choose.
    pub cpus: Vec<Vec<usize>>,
    /// Which kind of source, and why.
    pub selection: Selection,
    /// Which frames the host does not get.
    pub taken: TakenFrames,
    /// What exists on this host that taken frames pass by; empty where none are taken.
    pub bypassed: Vec<String>,
    /// The filter, where there is one.
    pub filter: Option<Arc<Filter>>,
    /// Whether each frame has to pass [`Filter::matches`].
    pub filter_in_user: bool,
    /// Where the filter runs, and why there.
    pub filter_reason: String,
    /// The pages that the buffer actually has. The kernel allocates the rings of packet sockets and of the tee
    /// page by page.
    pub pages: String,
    /// How the source runs (native or generic, zero-copy or not), and why not better.
    pub notes: Vec<String>,
    /// The link type of the frames (LINKTYPE registry).
    pub linktype: u16,
    /// The settings that have no effect.
    pub unused: Vec<UnusedSetting>,
    /// Warnings before the capture: who takes frames away. A sentence each.
    pub warnings: Vec<String>,
}

impl OpenInterface {
    /// Opens the interface of this name as `options` say.
    ///
    /// # Errors
    ///
    /// [`Error::NoInterface`], and everything that [`select`], [`Filter`] and the rings refuse.
    pub fn by_name(name: &str, options: &SourceOptions) -> Result<Self> {
        Self::open(interface::by_name(name)?, options, &mut options.filters(Arc::default()))
    }

    /// Whether its one source has the frames of all interfaces as they are, of those that follow and of later ones.
    pub(crate) fn is_any(&self) -> bool {
        let is_packet = self.selection.kind == SourceKind::Packet;
        is_packet && self.interface.index == 0 && cooked_header(self.linktype).is_none()
    }

    /// Opens `interface` as `options` say.
    ///
    /// # Errors
    ///
    /// Everything that [`select`], [`Filter`] and the rings refuse.
    pub(crate) fn open(
        interface: Link,
        options: &SourceOptions,
        filters: &mut FilterCache,
    ) -> Result<Self> {
        let name = interface.name.as_str();
        let linktype = match options.source {
            // Packets of all devices come as Ethernet frames.
            Some(SourceKind::Drops) => ETHERNET,
            _ => match options.cooked {
                Some(CookedHeader::V1) => LINUX_SLL,
                Some(CookedHeader::V2) => LINUX_SLL2,
                None => interface::linktype(&interface)?,
            },
        };
        let linktype = match options.linktype {
            Some(other) if interface::linktypes(&interface)?.contains(&other) => other,
            _ => linktype,
        };
        if options.source == Some(SourceKind::Xdp) {
            linerate_bpf::xdp::require_free(name)?;
        }
        let mut selection = select(&interface, options)?;
        let mut bypassed = match selection.kind {
            SourceKind::Xdp => linerate_bpf::bypassed(&linerate_net::Interface::open(name)?),
            _ => Vec::new(),
        };
        let traces = matches!(selection.kind, SourceKind::Trace | SourceKind::Drops);
        if options.threads > 1 && traces {
            return Err(Error::Threads { kind: selection.kind });
        }
        let threads = match options.threads {
            0 => (interface::rx_queues(&interface)? as usize).min(cpu::online().len()).max(1),
            number => number,
        };
        // Drops are Ethernet frames of devices that may have another link layer. Cooked frames have no tags, and
        // their filter has the same meaning on an interface and on a file.
        let for_file = selection.kind == SourceKind::Drops
            || options.cooked.is_some()
            || options.filter_vlan == TagReading::File;
        let filter = match for_file {
            true => filters.of_host(linktype)?,
            false => {
                if filters.text().is_some() {
                    // libpcap's error for a missing privilege does not say which, nor how to grant it.
                    packet::probe()?;
                }
                filters.of_interface(name, linktype)?
            }
        }
        .cloned();
        let opener = Opener { name, options, threads, filter: filter.as_deref() };
        let (mut sources, filter_in_user, filter_reason, pages, notes) =
            match opener.open(selection.kind) {
                // A driver may claim more than it can do. A source that was selected automatically is replaced.
                Err(Error::Ring(error))
                    if options.source.is_none() && selection.kind != SourceKind::Packet =>
                {
                    let reason = format!("{} does not open here: {error}", selection.kind);
                    selection = Selection::new(SourceKind::Packet, reason);
                    bypassed.clear();
                    opener.open(SourceKind::Packet)?
                }
                result => result?,
            };
        sources.shrink_to_fit();
        let cpus = affinity::of_readers(name, &sources);
        let sockets = are_sockets(&sources);
        let taken = match selection.kind {
            SourceKind::Xdp if !filter_in_user => TakenFrames::Accepted,
            SourceKind::Xdp if sockets => TakenFrames::All,
            _ => TakenFrames::None,
        };
        let unused = unused(options, &selection, sockets);
        let mut warnings = Vec::new();
        if sources.len() < threads {
            let readers = plural(sources.len() as u64, "reader");
            warnings.push(format!(
                "{readers}: the interface has no more receive queues (or CPUs, if they are fewer)"
            ));
        }
        if selection.kind == SourceKind::Packet {
            warnings.extend(hidden_by_xdp(name));
        } else if !sources.iter().any(Source::has_stripped_tags)
            && linerate_net::ethtool::strips_vlan_tags(interface.index)
        {
            warnings.push(stripped(name, &interface.kind));
        }
        Ok(Self {
            label: interface.name.clone(),
            namespace: None,
            interface,
            sources,
            taken,
            cpus,
            bypassed,
            selection,
            filter,
            filter_in_user,
            filter_reason,
            pages,
            notes,
            linktype,
            unused,
            warnings,
        })
    }

    /// The pages of a buffer that has a choice of them: that of AF_XDP sockets.
    pub fn chosen_pages(&self) -> Option<&str> {
        are_sockets(&self.sources).then_some(&*self.pages)
    }
}

/// Whether these are AF_XDP sockets.
fn are_sockets(sources: &[Source]) -> bool {
    matches!(sources.first(), Some(Source::Xdp(receiver))
        if receiver.config().delivery == Delivery::AfXdp)
}

/// Does `work` in a namespace; in that of the caller without one. Threads that it starts stay there.
pub(crate) fn inside<T: Send>(
    namespace: Option<&Namespace>,
    work: impl FnOnce() -> T + Send,
) -> Result<T> {
    match namespace {
        Some(namespace) => Ok(namespace.run(work)?),
        None => Ok(work()),
    }
}

/// The warning that an XDP program hides frames from a packet socket on `name`, if there is one.
pub(super) fn hidden_by_xdp(name: &str) -> Option<String> {
    // A tee passes every frame on. Without the privilege to ask there is no warning.
    let found = linerate_bpf::xdp::attached(name).ok()?.filter(|found| !found.is_tee())?;
    let by = found.owner();
    Some(match found.is_linerate() {
        true => format!(
            "another linerate ({by}) takes frames of {name} by XDP: this capture does not see them; end it, or, if \
             it is a capture, start both with the source tee"
        ),
        false => format!(
            "{name} has an XDP program (id {}, name \"{}\", held by: {by}): frames that it drops or \
             redirects are not captured; the source trace captures them",
            found.id, found.name
        ),
    })
}

/// The warning that VLAN tags are missing, with the remedy. For a veth, the peer strips them.
fn stripped(name: &str, kind: &str) -> String {
    let (who, remedy) = match kind {
        "veth" => ("the peer of", "ethtool -K PEER txvlan off".to_owned()),
        _ => ("the driver of", format!("ethtool -K {name} rxvlan off")),
    };
    format!(
        "{who} {name} takes VLAN tags out of frames (rx-vlan-offload) before XDP sees them: they will \
         be missing, and `vlan` filters will not match; `{remedy}` keeps them in, and the source \
         packet puts them back"
    )
}

/// A setting that has no effect on the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedSetting {
    /// Its name.
    pub name: &'static str,
    /// The reason, which follows "has no effect".
    pub reason: String,
}

/// The settings that have no effect on this source.
pub(super) fn unused(
    options: &SourceOptions,
    selection: &Selection,
    sockets: bool,
) -> Vec<UnusedSetting> {
    let kind = selection.kind;
    let in_ring_buffer = kind != SourceKind::Packet && !sockets;
    let hardware = options.timestamps == TimestampSource::Hardware;
    let elsewhere = || format!("on the source {kind}");
    let take_over = || match options.source {
        Some(_) => format!("on the source {kind}, which takes no frames from the host"),
        None => format!("here: {}", selection.reason),
    };
    let cases: [(&'static str, bool, &dyn Fn() -> String); 8] = [
        ("pages", options.pages != Pages::Auto && !sockets, &|| {
            "on the kernel's own buffer, which has small pages; only AF_XDP sockets have a choice"
                .into()
        }),
        ("busy-poll", options.busy_poll.is_some() && in_ring_buffer, &|| {
            "on a BPF ring buffer".into()
        }),
        ("time-stamp-type", hardware && in_ring_buffer, &|| {
            "on a BPF ring buffer, whose program stamps with the host's clock".into()
        }),
        ("time-stamp-type", hardware && options.cooked.is_some(), &|| {
            "on all interfaces at once".into()
        }),
        ("take-over", options.take_over && kind != SourceKind::Xdp, &take_over),
        ("trace-at", options.trace_points != Points::Both && kind != SourceKind::Trace, &elsewhere),
        ("rate-limit", options.rate_limit.is_some() && kind != SourceKind::Drops, &elsewhere),
        ("xdp-delivery", options.delivery != Delivery::Auto && kind != SourceKind::Xdp, &elsewhere),
    ];
    let unused = cases.into_iter().filter(|(_, is_unused, _)| *is_unused);
    unused.map(|(name, _, reason)| UnusedSetting { name, reason: reason() }).collect()
}

/// The least bytes of buffer for each of many readers, unless the user gives a size.
const MIN_READER_BUFFER: u64 = 1 << 20;

/// Sources, their pages, and notes.
pub(super) type Taken = (Vec<Source>, String, Vec<String>);
/// The sources, whether the filter runs in user space and why, pages, and notes.
pub(super) type Parts = (Vec<Source>, bool, String, String, Vec<String>);

pub(super) struct Opener<'a> {
    pub(super) name: &'a str,
    pub(super) options: &'a SourceOptions,
    /// Readers that are wanted.
    pub(super) threads: usize,
    pub(super) filter: Option<&'a Filter>,
}

impl Opener<'_> {
    fn open(&self, kind: SourceKind) -> Result<Parts> {
        match kind {
            SourceKind::Packet => self.packet(),
            SourceKind::Xdp | SourceKind::Tee => {
                let options = self.xdp_options(match kind {
                    SourceKind::Xdp if self.options.copy_first => Action::CopyThenRedirect,
                    SourceKind::Xdp => Action::Redirect,
                    _ => Action::Copy,
                });
                self.in_ebpf(Filter::place_in_xdp, |filter| self.xdp(&options, filter))
            }
            SourceKind::Trace => self.trace(),
            SourceKind::Drops => self.drops(),
        }
    }

    pub(super) fn packet_options(&self) -> packet::Options {
        let options = self.options;
        let of = match options.cooked {
            Some(header) => packet::Options::cooked(header),
            None if self.name == ANY => packet::Options::any(),
            None => packet::Options::new(self.name),
        };
        let mut of = packet::Options {
            promiscuous: options.promiscuous,
            direction: options.traffic.unwrap_or_default(),
            snaplen: options.snaplen,
            vnet_hdr: options.split,
            timestamps: options.timestamps,
            busy_poll: options.busy_poll.unwrap_or_default(),
            fanout: options.fanout_group.clone(),
            ..of
        };
        if options.immediate {
            of.retire_timeout = Duration::from_millis(1);
        } else if let Some(time) = options.block_timeout {
            of.retire_timeout = time;
        }
        if options.buffer.is_some() || self.threads > 1 {
            let readers = self.threads as u64;
            of.buffer_size = match options.buffer {
                Some(bytes) => bytes.div_ceil(readers),
                None => (packet::DEFAULT_BUFFER / readers).max(MIN_READER_BUFFER),
            };
            // Each retire timeout takes a whole block: a small buffer needs small ones to last. A
            // super-packet has to fit into one.
            let least = if options.split { 128 << 10 } else { 64 << 10 };
            of.block_size =
                (of.buffer_size / 256).next_power_of_two().clamp(least, 128 << 10) as u32;
        }
        if self.threads > 1 {
            of.fanout = Some(Fanout::new(options.fanout));
        }
        of
    }

    fn packet(&self) -> Result<Parts> {
        let options = self.options;
        let of = self.packet_options();
        let build = |placement: &Option<Placement<_>>| {
            let filter = placement.as_ref().and_then(|placement| placement.kernel.clone());
            let of = packet::Options { filter, ..of.clone() };
            if self.threads > 1 {
                Ring::open_group(of, self.threads)
            } else {
                Ring::open(of).map(|ring| vec![ring])
            }
        };
        let mut placement =
            self.filter.map(|f| f.place_on_socket(options.filter_in)).transpose()?;
        let rings = match build(&placement) {
            // It may be the filter: too much memory for the socket, or too long with the direction.
            Err(refusal)
                if placement.as_ref().is_some_and(|placement| placement.kernel.is_some()) =>
            {
                let Ok(rings) = build(&None) else { return Err(refusal.into()) };
                let why = refusal.to_string();
                let refused = |filter: &Filter| filter.fall_back_to_user(options.filter_in, &why);
                placement = self.filter.map(refused).transpose()?;
                rings
            }
            result => result?,
        };
        let sources = rings.into_iter().map(|ring| Source::Packet(Box::new(ring))).collect();
        let (user, why) = described(placement.as_ref());
        Ok((sources, user, why, Pages::Small.to_string(), Vec::new()))
    }

    /// Opens a source whose filter is eBPF; one that the verifier refuses runs in user space.
    pub(super) fn in_ebpf<P>(
        &self,
        place: impl Fn(&Filter, Option<FilterLocation>) -> Result<Placement<P>>,
        open: impl Fn(Option<&P>) -> Result<Taken>,
    ) -> Result<Parts> {
        let wanted = self.options.filter_in;
        let mut placement = self.filter.map(|filter| place(filter, wanted)).transpose()?;
        let program = placement.as_ref().and_then(|placement| placement.kernel.as_ref());
        let (sources, pages, notes) = match open(program) {
            Err(Error::Ring(refusal)) if program.is_some() => {
                let why = match refusal {
                    linerate_ring::Error::Bpf(linerate_bpf::Error::Verifier { reason, .. }) => {
                        reason
                    }
                    // It may be the filter alone that needs it.
                    linerate_ring::Error::Privilege { capability: "CAP_PERFMON", .. } => {
                        "without CAP_PERFMON the verifier refuses it".to_owned()
                    }
                    other => return Err(other.into()),
                };
                placement =
                    self.filter.map(|filter| filter.fall_back_to_user(wanted, &why)).transpose()?;
                open(None)?
            }
            result => result?,
        };
        let (user, why) = described(placement.as_ref());
        Ok((sources, user, why, pages, notes))
    }

    /// An XDP program, which takes the frames or passes them on.
    fn xdp(
        &self,
        options: &linerate_ring::Options,
        filter: Option<&Vec<Instruction>>,
    ) -> Result<Taken> {
        // A program that does not know which frames to take copies them.
        let action = match options.action {
            Action::Redirect if self.filter.is_some() && filter.is_none() => {
                Action::CopyThenRedirect
            }
            action => action,
        };
        let options = &linerate_ring::Options { action, ..options.clone() };
        let filter = |_| Ok::<_, linerate_ring::Error>(filter.cloned());
        let receivers = Receiver::open_group(self.name, options, filter)?;
        let config = receivers[0].config();
        let pages = config.pages.to_string();
        let notes = std::iter::once(config.to_string()).chain(config.notes.iter().cloned());
        let notes = notes.collect();
        let sources = receivers.into_iter().map(|receiver| Source::Xdp(Box::new(receiver)));
        Ok((sources.collect(), pages, notes))
    }

    fn xdp_options(&self, action: Action) -> linerate_ring::Options {
        let options = self.options;
        linerate_ring::Options {
            delivery: options.delivery,
            action,
            buffer: options.buffer.map(|bytes| bytes as usize),
            pages: options.pages,
            snaplen: options.snaplen,
            timestamps: options.timestamps,
            busy_poll: options.busy_poll,
            wait_strategy: match options.immediate {
                true => WaitStrategy::BLOCKING,
                false => WaitStrategy::default(),
            },
            promiscuous: options.promiscuous,
            readers: self.threads,
            ..linerate_ring::Options::default()
        }
    }
}

fn described<P>(placement: Option<&Placement<P>>) -> (bool, String) {
    placement.map_or((false, String::new()), |p| (p.user, p.reason.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tags_are_named_with_the_remedy() {
        assert!(stripped("eth9", "").contains("`ethtool -K eth9 rxvlan off`"));
        assert!(stripped("far", "veth").contains("txvlan off"));
    }
}
