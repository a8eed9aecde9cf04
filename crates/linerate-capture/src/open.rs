//! Opening the sources of one interface as a capture wants them.

use std::time::Duration;

use linerate_ring::filter::Instruction;
use linerate_ring::packet::{Allocation, Fanout, Mode, Ring, Traffic};
use linerate_ring::region::Pages;
pub use linerate_ring::xdp::Through;
use linerate_ring::{packet, tee, xdp};

use crate::choose::{Choice, Kind, Wish, choose};
use crate::filter::{Filter, Placement, Side};
use crate::interface::Interface;
use crate::source::Source;
use crate::{Error, Result};

/// Whose clock stamps the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamps {
    /// Nobody's: nothing looks at the time.
    None,
    /// The kernel's, frame by frame.
    #[default]
    Host,
    /// The host's, once for all frames that the reader of an XDP source or a tee takes at a time;
    /// packet sockets stamp each frame all the same.
    Batch,
    /// The network card's, where it stamps.
    Adapter,
}

/// What to open; everything but the interface has a default that fits.
#[derive(Clone, Debug)]
pub struct Request {
    /// Source, direction and the like.
    pub wish: Wish,
    /// How frames that an XDP program takes reach the reader.
    pub through: Through,
    /// Longest piece of a frame to keep, in bytes.
    pub snaplen: u32,
    /// Bytes of buffer between the kernel and all readers; `None` takes each source's own default.
    pub buffer: Option<u64>,
    /// Pages of an AF_XDP buffer.
    pub pages: Pages,
    /// What a packet ring is made of.
    pub ring_allocation: Allocation,
    /// Also receive what is addressed to others.
    pub promiscuous: bool,
    /// Hand over each frame at once.
    pub immediate: bool,
    /// How long the kernel may gather frames in a block of a packet ring; `None` takes the ring's own
    /// default.
    pub retire: Option<Duration>,
    /// Poll the driver for so long before sleeping.
    pub busy_poll: Option<Duration>,
    /// Readers that share the interface.
    pub threads: usize,
    /// How packet rings share it.
    pub fanout: Mode,
    /// For one reader: a group of packet rings, of others too, that it is to join or begin.
    pub group: Option<Fanout>,
    /// The filter expression; `None` or empty takes everything.
    pub filter: Option<String>,
    /// Where the filter is to run; `None` prefers the kernel.
    pub filter_in: Option<Side>,
    /// Time stamps.
    pub stamps: Stamps,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            wish: Wish::default(),
            through: Through::Auto,
            snaplen: 262_144,
            buffer: None,
            pages: Pages::Auto,
            ring_allocation: Allocation::Any,
            promiscuous: true,
            immediate: false,
            retire: None,
            busy_poll: None,
            threads: 1,
            fanout: Mode::Hash,
            group: None,
            filter: None,
            filter_in: None,
            stamps: Stamps::Host,
        }
    }
}

impl Request {
    /// Whether the choice of the source depends on what else uses the interface.
    pub(crate) fn asks_for_uses(&self) -> bool {
        match self.wish.source {
            None => true,
            Some(Kind::Xdp) => !self.wish.take_over,
            Some(Kind::Packet | Kind::Tee) => false,
        }
    }
}

/// An interface with its sources, receiving.
#[derive(Debug)]
pub struct Opened {
    /// The interface as it was found. What uses it is known only where the choice depends on that.
    pub interface: Interface,
    /// One source for each reader.
    pub sources: Vec<Source>,
    /// Which and why.
    pub choice: Choice,
    /// The filter, where there is one.
    pub filter: Option<Filter>,
    /// Whether each frame has to pass [`Filter::matches`].
    pub filter_in_user: bool,
    /// Where the filter runs, and why there.
    pub filter_why: String,
    /// The kind of pages that the buffer got. The rings of packet sockets and of the tee are the
    /// kernel's own, which maps them page by page.
    pub pages: String,
    /// How the source runs (native or generic, zero-copy or not), and why not better.
    pub notes: Vec<String>,
    /// What the user should know before waiting for frames: who takes them away, and what was asked
    /// for that this source does not have. A sentence each.
    pub warnings: Vec<String>,
}

impl Opened {
    /// Opens the interface of this name as `request` wants it.
    ///
    /// # Errors
    ///
    /// [`Error::NoInterface`], and everything that [`choose`], [`Filter`] and the rings refuse.
    pub fn named(name: &str, request: &Request) -> Result<Self> {
        let interface = if request.asks_for_uses() {
            Interface::named(name)?
        } else {
            Interface::find(&Interface::all_but_listeners()?, name)?.clone()
        };
        Self::open(interface, request)
    }

    /// Opens `interface` as `request` wants it; its uses have to be known where
    /// [`Request::asks_for_uses`].
    ///
    /// # Errors
    ///
    /// Everything that [`choose`], [`Filter`] and the rings refuse.
    pub(crate) fn open(interface: Interface, request: &Request) -> Result<Self> {
        let name = interface.name.as_str();
        let linktype = interface.linktype()?;
        let wish = Wish { several_readers: request.threads > 1, ..request.wish };
        if wish.source == Some(Kind::Xdp) {
            // Somebody who takes the frames uses the interface, too: --take-over is no way past that.
            linerate_ring::steer::require_free(name)?;
        }
        let mut choice = choose(&interface, wish)?;
        if request.threads > 1 && choice.source != Kind::Packet {
            return Err(Error::Threads { kind: choice.source });
        }
        let text = request.filter.as_deref().filter(|text| !text.trim().is_empty());
        let filter = match text {
            None => None,
            Some(text) if choice.source == Kind::Packet => {
                // libpcap's word for a missing privilege says neither which nor how to grant it.
                packet::probe()?;
                Some(Filter::compile_live(name, text, request.snaplen)?)
            }
            Some(text) => Some(Filter::compile(text, linktype, request.snaplen, true)?),
        };
        let opener = Opener { name, request, filter: filter.as_ref() };
        let (mut sources, filter_in_user, filter_why, pages, mut notes) = match opener
            .open(choice.source)
        {
            // A driver may promise more than it holds; what was not asked for by name gives way.
            Err(Error::Ring(error)) if wish.source.is_none() && choice.source != Kind::Packet => {
                let reason = format!("{} does not open here: {error}", choice.source);
                choice = Choice { source: Kind::Packet, reason };
                opener.open(Kind::Packet)?
            }
            result => result?,
        };
        notes.retain(|note| !note.is_empty());
        sources.shrink_to_fit();
        let sockets = matches!(sources.first(), Some(Source::Xdp(..)));
        let mut warnings = without_effect(request, choice.source, sockets);
        if choice.source == Kind::Packet {
            warnings.extend(bypassed(name));
        } else if !sources.iter().any(Source::has_stripped_tags)
            && linerate_net::ethtool::strips_vlan_tags(name)?
        {
            warnings.push(stripped(name, interface.kind.as_deref()));
        }
        Ok(Self {
            interface,
            sources,
            choice,
            filter,
            filter_in_user,
            filter_why,
            pages,
            notes,
            warnings,
        })
    }
}

/// What a packet socket on `name` does not get to see because of an XDP program, if there is one.
fn bypassed(name: &str) -> Option<String> {
    // A tee lets every frame go on; who cannot ask is not told.
    let found = linerate_ring::steer::attached(name).ok()?.filter(|found| !found.is_tee())?;
    let by = found.holder().names();
    Some(match found.is_ours() {
        true => format!(
            "another linerate ({by}) takes frames of {name} by XDP: those do not come here; end it, or, if \
             it is a capture, start both with --source tee"
        ),
        false => format!(
            "{name} has an XDP program (id {}, name \"{}\", held by: {by}): frames that it drops or \
             redirects do not come here",
            found.id, found.name
        ),
    })
}

/// That VLAN tags are missing, and what helps. A veth only passes on what the other end has put
/// beside the frame.
fn stripped(name: &str, kind: Option<&str>) -> String {
    let (who, remedy) = match kind {
        Some("veth") => ("the other end of", "ethtool -K OTHER-END txvlan off".to_owned()),
        _ => ("the driver of", format!("ethtool -K {name} rxvlan off")),
    };
    format!(
        "{who} {name} takes VLAN tags out of frames (rx-vlan-offload) before XDP sees them: they will \
         be missing, and `vlan` filters will not match; `{remedy}` keeps them in, and --source packet \
         puts them back"
    )
}

/// What was asked for and this source does not have.
fn without_effect(request: &Request, kind: Kind, sockets: bool) -> Vec<String> {
    let mut idle = Vec::new();
    if request.pages != Pages::Auto && !sockets {
        idle.push(format!(
            "--pages {} has no effect: the buffer is the kernel's own, in small pages; only AF_XDP \
             sockets (--source xdp --xdp-through socket) have a choice",
            request.pages
        ));
    }
    if request.ring_allocation != Allocation::Any && kind != Kind::Packet {
        idle.push(format!("--ring-allocation has no effect on --source {kind}"));
    }
    let in_ring_buffer = kind != Kind::Packet && !sockets;
    if request.busy_poll.is_some() && in_ring_buffer {
        idle.push("--busy-poll has no effect on a BPF ring buffer".to_owned());
    }
    if request.stamps == Stamps::Adapter && in_ring_buffer {
        idle.push(
            "-j adapter has no effect: the program of a BPF ring buffer stamps with the host's clock"
                .to_owned(),
        );
    }
    if request.wish.take_over && kind != Kind::Xdp {
        idle.push(format!(
            "--take-over has no effect on --source {kind}, which takes no frames from the host"
        ));
    }
    if request.through != Through::Auto && kind != Kind::Xdp {
        idle.push(format!("--xdp-through has no effect on --source {kind}"));
    }
    idle
}

/// Bytes of buffer that each of many readers gets at least, unless somebody says how much there is.
const LEAST_SHARE: u64 = 1 << 20;

/// A source in XDP, its pages, and notes.
type Taken = (Source, String, Vec<String>);
type Parts = (Vec<Source>, bool, String, String, Vec<String>);

struct Opener<'a> {
    name: &'a str,
    request: &'a Request,
    filter: Option<&'a Filter>,
}

impl Opener<'_> {
    fn open(&self, kind: Kind) -> Result<Parts> {
        match kind {
            Kind::Packet => self.packet(),
            Kind::Xdp => {
                let (through, why) = self.through();
                if through != Through::Buffer {
                    return self.in_xdp(|filter| self.sockets(filter, why));
                }
                match self.in_xdp(|filter| self.buffer(filter, true, why)) {
                    // The program needs a newer kernel than AF_XDP does.
                    Err(Error::Ring(error)) if self.request.through == Through::Auto => {
                        let why = format!("a ring buffer does not open here: {error}");
                        self.in_xdp(|filter| self.sockets(filter, &why))
                    }
                    result => result,
                }
            }
            Kind::Tee => self.in_xdp(|filter| self.buffer(filter, false, "")),
        }
    }

    fn packet(&self) -> Result<Parts> {
        let request = self.request;
        let mut builder = Ring::builder(self.name)
            .promiscuous(request.promiscuous)
            .traffic(request.wish.traffic.unwrap_or_default())
            .snaplen(request.snaplen)
            .virtio_header(request.wish.split)
            .stamps(match request.stamps {
                Stamps::Adapter => packet::Stamps::Hardware,
                _ => packet::Stamps::Software,
            })
            .busy_poll(request.busy_poll.unwrap_or_default())
            .allocation(request.ring_allocation);
        if let Some(group) = &request.group {
            builder = builder.fanout(group.clone());
        }
        if request.immediate {
            builder = builder.retire(Duration::from_millis(1));
        } else if let Some(time) = request.retire {
            builder = builder.retire(time);
        }
        if request.buffer.is_some() || request.threads > 1 {
            let readers = request.threads.max(1) as u64;
            let each = match request.buffer {
                Some(bytes) => bytes.div_ceil(readers),
                None => (packet::DEFAULT_BUFFER / readers).max(LEAST_SHARE),
            };
            // The kernel hands over whole blocks: a small buffer needs small ones to have several.
            // A super-packet has to fit into one.
            let least = if request.wish.split { 128 << 10 } else { 64 << 10 };
            let block = (each / 8).next_power_of_two().clamp(least, 512 << 10) as u32;
            builder = builder.block_size(block).buffer(each);
        }
        let build = |placement: &Option<Placement<_>>| {
            let program = placement.as_ref().and_then(|placement| placement.kernel.clone());
            let builder = builder.clone().filter(program);
            if request.threads > 1 {
                let fanout = Fanout::new(request.fanout.clone());
                builder.fanout(fanout).build_group(request.threads)
            } else {
                builder.build().map(|ring| vec![ring])
            }
        };
        let placement = self.filter.map(|f| f.on_socket(request.filter_in)).transpose()?;
        let (rings, placement) = (build(&placement)?, placement);
        let sources = rings.into_iter().map(|ring| Source::Packet(Box::new(ring))).collect();
        let (user, why) = described(placement.as_ref());
        let pages = match request.ring_allocation {
            Allocation::HugeTlb => Pages::Hugetlb,
            Allocation::TransparentHuge => Pages::Transparent,
            _ => Pages::Small,
        };
        Ok((sources, user, why, pages.to_string(), Vec::new()))
    }

    /// The way that frames take out of the XDP program, and why not the other.
    fn through(&self) -> (Through, &'static str) {
        let request = self.request;
        let only = if request.pages != Pages::Auto {
            Some("only a UMEM has a choice of pages")
        } else if request.busy_poll.is_some() {
            Some("only sockets poll the driver")
        } else if request.stamps == Stamps::Adapter {
            Some("only their program asks the card for its stamps")
        } else {
            None
        };
        request.through.decided(self.name, only)
    }

    fn sockets(&self, filter: Option<&[Instruction]>, why: &str) -> Result<Taken> {
        let source = self.xdp(filter)?;
        let mode = source.mode();
        let got = source.region().got();
        let (pages, buffer) = (got.pages.to_string(), format!("buffer: {got}"));
        let how = format!(
            "{} XDP, AF_XDP sockets ({why}), {}, {} queues",
            source.attached(),
            if mode.zero_copy { "zero-copy" } else { "one copy by the kernel" },
            source.queues().count()
        );
        let notes = [how, buffer].into_iter().chain(mode.why).collect();
        Ok((Source::Xdp(Box::new(source), self.promiscuous()?), pages, notes))
    }

    /// A ring buffer that the program copies to, taking the frames or letting them go on.
    fn buffer(&self, filter: Option<&[Instruction]>, take: bool, why: &str) -> Result<Taken> {
        let tee = self.tee(filter, take)?;
        let how = match take {
            true => format!("{} XDP, a ring buffer ({why})", tee.attached()),
            false => format!("{} XDP", tee.attached()),
        };
        let notes = std::iter::once(how).chain(tee.why_generic().map(str::to_owned)).collect();
        let pages = Pages::Small.to_string();
        Ok((Source::Tee(Box::new(tee), self.promiscuous()?), pages, notes))
    }

    /// Opens a source whose filter is eBPF; one that the verifier refuses runs in user space.
    fn in_xdp(&self, open: impl Fn(Option<&[Instruction]>) -> Result<Taken>) -> Result<Parts> {
        let wanted = self.request.filter_in;
        let mut placement = self.filter.map(|filter| filter.in_xdp(wanted)).transpose()?;
        let program = |placement: &Option<Placement<Vec<Instruction>>>| {
            placement.as_ref().and_then(|placement| placement.kernel.clone())
        };
        let (source, pages, notes) = match open(program(&placement).as_deref()) {
            Err(Error::Ring(refusal)) if program(&placement).is_some() => {
                let why = match refusal {
                    linerate_ring::Error::Verifier { why, .. } => why,
                    // It may be the filter alone that needs it.
                    linerate_ring::Error::Privilege { capability: "CAP_PERFMON", .. } => {
                        "without CAP_PERFMON the verifier refuses it".to_owned()
                    }
                    other => return Err(other.into()),
                };
                placement = self.filter.map(|filter| filter.refused(wanted, &why)).transpose()?;
                open(None)?
            }
            result => result?,
        };
        let (user, why) = described(placement.as_ref());
        Ok((vec![source], user, why, pages, notes))
    }

    fn xdp(&self, filter: Option<&[Instruction]>) -> Result<xdp::Source> {
        let request = self.request;
        let mut builder = xdp::Source::builder(self.name)
            .pages(request.pages)
            .filter(filter)
            .stamps(match request.stamps {
                Stamps::None => xdp::Stamps::None,
                Stamps::Host => xdp::Stamps::Kernel,
                Stamps::Batch => xdp::Stamps::Reader,
                Stamps::Adapter => xdp::Stamps::Hardware,
            })
            .busy_poll(request.busy_poll.map(|time| xdp::BusyPoll {
                microseconds: u32::try_from(time.as_micros()).unwrap_or(u32::MAX),
                budget: 64,
            }));
        if request.immediate {
            builder = builder.pace(xdp::Pace::BLOCKING);
        }
        if let Some(bytes) = request.buffer {
            let whole = (bytes as usize).next_multiple_of(2 << 20);
            builder = builder.buffer(whole);
        }
        Ok(builder.build()?)
    }

    fn tee(&self, filter: Option<&[Instruction]>, take: bool) -> Result<tee::Tee> {
        let request = self.request;
        let mut builder = tee::Tee::builder(self.name)
            .filter(filter)
            .take(take)
            .snap(request.snaplen.min(tee::SNAP_MAX))
            .stamps(matches!(request.stamps, Stamps::Host | Stamps::Adapter));
        if request.immediate {
            builder = builder.pace(xdp::Pace::BLOCKING);
        }
        if let Some(bytes) = request.buffer {
            builder = builder.buffer((bytes as usize).next_power_of_two());
        }
        Ok(builder.build()?)
    }

    /// An AF_XDP socket cannot make an interface promiscuous; a packet socket that takes nothing can.
    fn promiscuous(&self) -> Result<Option<Box<Ring>>> {
        if !self.request.promiscuous {
            return Ok(None);
        }
        let mut ring = Ring::builder(self.name)
            .promiscuous(true)
            .traffic(Traffic::In)
            .block_size(4096)
            .snaplen(64)
            .blocks(2)
            .build()?;
        ring.stop()?;
        Ok(Some(Box::new(ring)))
    }
}

fn described<P>(placement: Option<&Placement<P>>) -> (bool, String) {
    placement.map_or((false, String::new()), |p| (p.user, p.why.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tags_are_named_with_the_remedy() {
        assert!(stripped("eth9", None).contains("`ethtool -K eth9 rxvlan off`"));
        assert!(stripped("far", Some("veth")).contains("txvlan off"));
    }
}
