//! All interfaces by one packet socket, with the frames as they are.

use std::sync::Arc;

use linerate_bpf::filter::{ClassicInstruction, ClassicProgram};
use linerate_net::link::Link;
use linerate_ring::TimestampSource;
use linerate_ring::packet;

use super::open::{OpenInterface, Opener, TakenFrames, hidden_by_xdp, unused};
use super::select::Selection;
use super::{Source, SourceKind, SourceOptions};
use crate::Result;
use crate::filter::{ETHERNET, Filter, FilterCache, FilterLocation, TagReading};
use crate::interface::{self, RAW};
use crate::interface::{ANY, ARPHRD_ETHER, ARPHRD_LOOPBACK, ARPHRD_NONE, ARPHRD_RAWIP};

/// Opens one socket for all interfaces: the first of the result, [`ANY`], has it, and what the kernel loses. Those that
/// follow have no source. `None` if an option needs a socket for each, or the kernel cannot run the filter.
///
/// # Errors
///
/// As [`OpenInterface::by_name`].
pub(crate) fn open(
    interfaces: Vec<Link>,
    options: &SourceOptions,
    filters: &mut FilterCache,
) -> Result<Option<Vec<OpenInterface>>> {
    let one_for_each = options.threads != 1
        || options.split
        || options.linktype.is_some()
        || options.timestamps == TimestampSource::Hardware
        || options.filter_in == Some(FilterLocation::User)
        || options.filter_vlan == TagReading::File;
    if one_for_each || options.cooked.is_some() {
        return Ok(None);
    }
    if filters.text().is_some() {
        packet::probe()?;
    }
    let of = |linktype| {
        let has = move |one: &&Link| interface::linktype(one).is_ok_and(|found| found == linktype);
        interfaces.iter().find(has)
    };
    let mut compiled: [Option<(Option<Arc<Filter>>, ClassicProgram)>; 2] = [None, None];
    for (compiled, linktype) in compiled.iter_mut().zip(LINK_TYPES) {
        if let Some(first) = of(linktype) {
            let filter = filters.of_interface(&first.name, linktype)?.cloned();
            let Some(program) = on_socket(filter.as_deref(), options)? else { return Ok(None) };
            *compiled = Some((filter, program));
        }
    }
    let mut warnings = Vec::new();
    for number in 0..LINK_TYPES.len() {
        // For those that come later, if libpcap needs no long time for it.
        let is_short = compiled.iter().flatten().all(|(_, program)| is_short(program));
        let mut later = || {
            let filter = filters.of_host(LINK_TYPES[number]).ok()?.cloned();
            let program = on_socket(filter.as_deref(), options).ok()??;
            Some((filter, program))
        };
        if compiled[number].is_none() {
            compiled[number] = if is_short { later() } else { None };
            // An expression for Ethernet frames may mean nothing for bare packets.
            if compiled[number].is_none() && (number == 0 || !is_short) {
                let what = ["Ethernet frames", "bare IP packets"][number];
                warnings.push(format!(
                    "interfaces with {what} that come later are not captured: the filter is not compiled for them"
                ));
            }
        }
    }
    let compiled = compiled.map(|one| one.unwrap_or_else(|| (None, ClassicProgram::accept_all(0))));
    let Some(program) = by_link_layer(&compiled[0].1, &compiled[1].1) else { return Ok(None) };
    let opener = Opener { name: ANY, options, threads: 1, filter: None };
    // The kernel may have too little memory for the filter of a socket.
    let of = packet::Options { filter: Some(program), ..opener.packet_options() };
    let Ok(ring) = packet::Ring::open(of) else { return Ok(None) };
    let selection = Selection::new(SourceKind::Packet, "one socket for all interfaces");
    let open = |interface: Link| {
        let linktype = interface::linktype(&interface)?;
        let filter = compiled[usize::from(linktype != ETHERNET)].0.clone();
        Ok(OpenInterface {
            label: interface.name.clone(),
            namespace: None,
            sources: Vec::new(),
            cpus: Vec::new(),
            selection: selection.clone(),
            taken: TakenFrames::None,
            bypassed: Vec::new(),
            filter_in_user: false,
            filter_reason: filter
                .as_ref()
                .map_or(String::new(), |_| "classic BPF on the packet socket".to_owned()),
            filter,
            pages: linerate_ring::region::Pages::Small.to_string(),
            notes: Vec::new(),
            linktype,
            unused: Vec::new(),
            warnings: hidden_by_xdp(&interface.name).into_iter().collect(),
            interface,
        })
    };
    let mut any = open(interface::any())?;
    any.sources.push(Source::Packet(Box::new(ring)));
    any.unused = unused(options, &selection, false);
    any.warnings = warnings;
    let all = std::iter::once(Ok(any)).chain(interfaces.into_iter().map(open));
    all.collect::<Result<_>>().map(Some)
}

/// The link types whose frames the socket tells apart.
const LINK_TYPES: [u16; 2] = [ETHERNET, RAW];

/// The program of the filter for the socket; `None` if the filter does not run there.
fn on_socket(filter: Option<&Filter>, options: &SourceOptions) -> Result<Option<ClassicProgram>> {
    let Some(filter) = filter else {
        return Ok(Some(ClassicProgram::accept_all(options.snaplen)));
    };
    let placement = filter.place_on_socket(options.filter_in)?;
    Ok(placement.kernel.filter(|_| !placement.user))
}

fn is_short(program: &ClassicProgram) -> bool {
    program.instructions().len() < 1000
}

/// One program from two, for frames with an Ethernet header and for bare packets. It rejects other link layers.
fn by_link_layer(ethernet: &ClassicProgram, bare: &ClassicProgram) -> Option<ClassicProgram> {
    // `linux/bpf_common.h`, and `SKF_AD_HATYPE` of `linux/filter.h`.
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const JUMP: u16 = 0x05;
    const RETURN: u16 = 0x06;
    const LINK_LAYER: u32 = (-0x1000_i32 + 28).cast_unsigned();
    let instruction = |code, jt, k| ClassicInstruction { code, jt, jf: 0, k };
    let equal = |layer: u16, jt| instruction(EQUAL, jt, u32::from(layer));
    let length = ethernet.instructions().len() as u32;
    let mut all = vec![
        instruction(LOAD, 0, LINK_LAYER),
        equal(ARPHRD_ETHER, 4),
        equal(ARPHRD_LOOPBACK, 3),
        equal(ARPHRD_NONE, 3),
        equal(ARPHRD_RAWIP, 2),
        instruction(RETURN, 0, 0),
        instruction(JUMP, 0, 1),
        instruction(JUMP, 0, length),
    ];
    all.extend_from_slice(ethernet.instructions());
    all.extend_from_slice(bare.instructions());
    ClassicProgram::new(all).ok()
}
