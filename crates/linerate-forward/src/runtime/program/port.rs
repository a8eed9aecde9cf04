//! [`PortPrograms`]: the three programs on one interface.

use std::os::fd::BorrowedFd;

use libbpf_rs::{MapCore, MapFlags, TC_EGRESS, TC_INGRESS};
use linerate_bpf::link::{Hook, Link};
use linerate_bpf::xdp::AttachMode;
use zerocopy::IntoBytes;

use super::Programs;
use crate::maps::Maps;
use crate::runtime::clsact::{self, Clsact};
use crate::table::layout::{Interface, PORTS_MAX, interface};
use crate::{Error, Result};

/// An interface that is to become a port.
#[derive(Clone, Debug)]
pub struct PortOptions {
    /// Its name, for errors.
    pub name: String,
    /// Its index in this network namespace.
    pub ifindex: u32,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its number, below [`PORTS_MAX`]; each port has its own.
    pub port: u32,
    /// XDP native or generic only; `None`: native if the driver supports it.
    pub attach: Option<AttachMode>,
    /// What may be done with its packets, of [`interface`]. Without [`interface::XDP`] no XDP program is put on it.
    pub flags: u16,
}

impl PortOptions {
    /// The same without XDP.
    pub fn without_xdp(&self) -> Self {
        let xdp = interface::XDP | interface::XDP_IN | interface::XDP_OUT;
        Self { flags: self.flags & !xdp, ..self.clone() }
    }
}

/// Flags of an Ethernet interface whose sessions all take XDP.
pub const XDP_ONLY: u16 =
    interface::ETHERNET | interface::XDP | interface::XDP_IN | interface::XDP_OUT;
/// The same where they take TC, and no XDP program is there.
pub const TC_ONLY: u16 = interface::ETHERNET | interface::TC_IN | interface::TC_OUT;

/// A program at the ingress or egress of the stack.
#[derive(Debug)]
pub enum TcAttachment {
    /// By a link.
    Tcx(Link),
    /// In the clsact queueing discipline, if the kernel has no tcx.
    Clsact(Clsact),
}

/// The programs on one interface; detached on drop, unless their links are pinned.
#[derive(Debug)]
pub struct PortPrograms {
    /// The XDP datapath, where it is on the interface.
    pub xdp: Option<Link>,
    /// Where it runs.
    pub attach: AttachMode,
    /// Why XDP does not run in the driver, where it does not: it runs in the stack, or nowhere.
    pub generic_reason: Option<String>,
    /// `forward_tc` and `learn`; none where the programs have neither, as some of the lab's.
    pub tc_attachments: Vec<TcAttachment>,
}

impl PortPrograms {
    /// Makes an interface an ingress port: registers it with the programs, then attaches the learning
    /// programs, then the fast path. The kernel sends what leaves by it until [`enable_egress`].
    ///
    /// # Errors
    /// [`Error::Bpf`] if another XDP program is attached (it stays) or the kernel refuses;
    /// [`Error::Privilege`], [`Error::System`], [`Error::Invalid`].
    pub fn attach(programs: &Programs, options: &PortOptions) -> Result<Self> {
        if options.port >= PORTS_MAX {
            return Err(Error::Invalid(format!(
                "interface {} would be port {}, but there is room for {PORTS_MAX}",
                options.name, options.port
            )));
        }
        register(programs, options)?;
        let mut tc_attachments = Vec::new();
        for (program, hook) in [("learn", Hook::TcxEgress), ("forward_tc", Hook::TcxIngress)] {
            if let Ok(program) = programs.get(program) {
                tc_attachments.push(attach_tc(program, options, hook)?);
            }
        }
        if options.flags & interface::XDP == 0 {
            return Ok(Self {
                xdp: None,
                attach: AttachMode::Native,
                generic_reason: None,
                tc_attachments,
            });
        }
        let xdp = programs.xdp()?;
        let on = |attach| Link::attach(xdp, &options.name, options.ifindex, Hook::Xdp(attach));
        let (xdp, attach, generic_reason) =
            match (options.attach, on(options.attach.unwrap_or(AttachMode::Native))) {
                (Some(attach), link) => (Some(link?), attach, None),
                (None, Ok(link)) => (Some(link), AttachMode::Native, None),
                // TC forwards what the driver cannot, and keeps super-packets whole, which generic XDP does not.
                (None, Err(error @ linerate_bpf::Error::System { .. }))
                    if options.flags & interface::TC_IN != 0 =>
                {
                    register(programs, &options.without_xdp())?;
                    (None, AttachMode::Native, Some(error.to_string()))
                }
                (None, Err(error @ linerate_bpf::Error::System { .. })) => {
                    (Some(on(AttachMode::Generic)?), AttachMode::Generic, Some(error.to_string()))
                }
                (None, Err(error)) => return Err(error.into()),
            };
        Ok(Self { xdp, attach, generic_reason, tc_attachments })
    }
}

/// Registers the interface with the programs: packets received on it are parsed, and packets sent on it are
/// learned.
///
/// # Errors
/// [`Error::System`], [`Error::Privilege`].
pub fn register(programs: &Programs, options: &PortOptions) -> Result<()> {
    let PortOptions { port, mac, flags, .. } = *options;
    let interface = Interface { port, mac, flags, tag: [0; 4] };
    let index = options.ifindex.to_ne_bytes();
    let map = programs.maps.get("interfaces")?;
    map.update(&index, interface.as_bytes(), MapFlags::ANY).map_err(refused(&options.name))
}

/// Takes the interface of index `ifindex`, port `port`, from these maps. Sessions that use it have to be made stale.
pub(crate) fn unregister(maps: &Maps, port: u32, ifindex: u32) {
    if let Ok(interfaces) = maps.get("interfaces") {
        let _ = interfaces.delete(&ifindex.to_ne_bytes());
    }
    // The kernel itself removes interfaces that are gone from devmaps.
    let Ok(ports) = maps.get("ports") else { return };
    let sends_by_it = |key: &[u8]| {
        let by = ports.lookup(key, MapFlags::ANY);
        by.is_ok_and(|by| by.is_some_and(|by| by == ifindex.to_ne_bytes()))
    };
    // The VLAN devices above it, too.
    for key in (0..PORTS_MAX).map(u32::to_ne_bytes) {
        if key == port.to_ne_bytes() || sends_by_it(&key) {
            let _ = ports.delete(&key);
        }
    }
}

/// Lets the programs send frames out of the interface. A redirected frame that it cannot send is dropped
/// silently, so transmit must be verified first ([`crate::runtime::preflight::verify_transmit`]).
///
/// # Errors
/// As [`register`].
pub fn enable_egress(programs: &Programs, options: &PortOptions) -> Result<()> {
    send_by(&programs.maps, options.port, options.ifindex)
}

/// The same for port `port`, by the interface of index `ifindex`.
pub(crate) fn send_by(maps: &Maps, port: u32, ifindex: u32) -> Result<()> {
    let sent =
        maps.get("ports")?.update(&port.to_ne_bytes(), &ifindex.to_ne_bytes(), MapFlags::ANY);
    sent.map_err(|error| Error::bpf(format!("send by interface {ifindex} as port {port}"), &error))
}

/// Whether programs with these maps send frames out of the interface of index `ifindex` as port `port`.
///
/// # Errors
/// As [`register`].
pub fn egress_enabled(maps: &Maps, port: u32, ifindex: u32) -> Result<bool> {
    let found = maps.get("ports")?.lookup(&port.to_ne_bytes(), MapFlags::ANY);
    let found = found.map_err(|error| Error::bpf(format!("look up port {port}"), &error))?;
    Ok(found.is_some_and(|index| index == ifindex.to_ne_bytes()))
}

fn refused(name: &str) -> impl Fn(libbpf_rs::Error) -> Error {
    let action = format!("make interface {name} a port");
    move |error| Error::bpf(&action, &error)
}

fn attach_tc(program: BorrowedFd<'_>, options: &PortOptions, hook: Hook) -> Result<TcAttachment> {
    let PortOptions { name, ifindex, .. } = options;
    let error = match Link::attach(program, name, *ifindex, hook) {
        Ok(link) => return Ok(TcAttachment::Tcx(link)),
        Err(error @ linerate_bpf::Error::System { .. }) => error,
        Err(error) => return Err(error.into()),
    };
    tracing::info!(interface = %name, %error, "no tcx: using the clsact queueing discipline");
    let point = if hook == Hook::TcxEgress { TC_EGRESS } else { TC_INGRESS };
    clsact::attach(program, *ifindex, point).map(TcAttachment::Clsact).map_err(|error| {
        Error::bpf(format!("attach a program to interface {name} by clsact"), &error)
    })
}
