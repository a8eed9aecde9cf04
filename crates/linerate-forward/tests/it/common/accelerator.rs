//! [`Accelerator`]: the programs on every port of a router, and what a daemon does beside them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags};
use linerate_forward::datapath::Datapath;
use linerate_forward::reason::Reason;
use linerate_forward::refusal::Refusal;
use linerate_forward::runtime::conntrack;
use linerate_forward::runtime::program::{
    Options, PortOptions, PortPrograms, Programs, TC_ONLY, XDP_ONLY, enable_egress,
};
use linerate_forward::runtime::upper_devices;
use linerate_forward::table::Table;
use linerate_forward::table::clock::Clock;
use linerate_forward::table::control::Control;
use linerate_forward::table::layout::{self, Hop, interface};
use linerate_forward::table::session::Session;
use linerate_testkit::{Interface, Namespace};
use zerocopy::{FromBytes, IntoBytes};

use super::router::{Device, Router};
use super::writer::stored;
use linerate_testkit::lab::Lab;

/// Nothing is to be learned again in a test by time alone, unless it asks for that.
const LONG: Duration = Duration::from_secs(3600);

/// Programs on all ports of a router, held by this process.
pub(crate) struct Accelerator {
    pub(crate) programs: Arc<Programs>,
    pub(crate) control: Arc<Control>,
    stop: Arc<AtomicBool>,
    daemon: Option<JoinHandle<()>>,
}

impl Accelerator {
    /// Accelerates a router by XDP.
    pub(crate) fn start(router: &Router, options: &Options) -> Self {
        Self::start_by(Datapath::Xdp, router, options)
    }

    /// Accelerates a router by this datapath.
    pub(crate) fn start_by(datapath: Datapath, router: &Router, options: &Options) -> Self {
        let flags = |device: &Device| match (device, datapath) {
            (Device::Veth, Datapath::Xdp) => XDP_ONLY | TC_ONLY,
            _ => TC_ONLY,
        };
        let trunks = router.ports.iter().zip(&router.cables);
        let trunks = trunks.filter(|((_, device), _)| *device == Device::Trunk);
        let trunks: Vec<_> = trunks.map(|((vlan, _), cable)| (vlan, &cable.a)).collect();
        let ports = router.ports.iter().map(|(port, device)| (port, flags(device)));
        let below = trunks.iter().map(|(_, trunk)| (*trunk, XDP_ONLY | TC_ONLY));
        let accelerator =
            Self::on(&router.inside, &ports.chain(below).collect::<Vec<_>>(), options);
        for (vlan, trunk) in trunks {
            accelerator.send_below(&router.inside, vlan, trunk);
        }
        router.push_first();
        accelerator
    }

    /// Has XDP send by `trunk` what leaves by VLAN device 7 on it, as the daemon does.
    fn send_below(&self, router: &Namespace, vlan: &Interface, trunk: &Interface) {
        let maps = &self.programs.maps;
        let interfaces = maps.get("interfaces").expect("a map");
        let change = |index: u32, change: &dyn Fn(&mut layout::Interface)| {
            let entry = interfaces.lookup(&index.to_ne_bytes(), MapFlags::ANY).expect("looked up");
            let mut entry = layout::Interface::read_from_bytes(&entry.expect("a port")).unwrap();
            change(&mut entry);
            let value = entry.as_bytes();
            interfaces.update(&index.to_ne_bytes(), value, MapFlags::ANY).expect("changed");
            entry.port
        };
        let number = change(vlan.index(), &|entry| {
            entry.flags |= interface::XDP_OUT | interface::VLAN;
            entry.tag = [0x81, 0, 0, 7];
        });
        // What comes in is addressed to the VLAN device.
        change(trunk.index(), &|entry| entry.mac = vlan.mac().0);
        let (port, index) = (number.to_ne_bytes(), trunk.index().to_ne_bytes());
        let there = || {
            maps.get("ports")?.update(&port, &index, MapFlags::ANY).expect("sent by the trunk");
            upper_devices::refresh(maps, &[trunk.index()])
        };
        router.run(there).expect("entered").expect("noted");
        self.control.bump_generation();
    }

    /// Accelerates a lab by XDP: sessions are learned at the second packet, and again after a minute.
    pub(crate) fn attach(lab: &Lab) -> Self {
        Self::attach_with(lab, 2, Duration::from_secs(60))
    }

    /// The same with this admission and this time until a session is learned again.
    pub(crate) fn attach_with(lab: &Lab, admission: u32, revalidate_after: Duration) -> Self {
        Self::attach_by(Datapath::Xdp, lab, admission, revalidate_after)
    }

    /// The same by this datapath.
    pub(crate) fn attach_by(
        datapath: Datapath,
        lab: &Lab,
        admission: u32,
        revalidate_after: Duration,
    ) -> Self {
        let options = Options { admission, max_sessions: 4096, ..Options::default() };
        let flags = if datapath == Datapath::Xdp { XDP_ONLY } else { TC_ONLY };
        let ports = lab.ports().map(|port| (port, flags));
        let accelerator = Self::on(&lab.router, &ports, &options);
        accelerator.control.set_revalidate_after(revalidate_after, &Clock::from_boot_time());
        accelerator
    }

    /// Makes these interfaces of a namespace ports with these flags.
    pub(crate) fn on(router: &Namespace, ports: &[(&Interface, u16)], options: &Options) -> Self {
        let programs = Arc::new(Programs::load(options).unwrap_or_else(|error| panic!("{error}")));
        let control = Arc::new(Control::open(&programs.maps).expect("the control page"));
        let clock = Clock::from_boot_time();
        control.set_heartbeat_timeout(LONG, &clock);
        control.set_revalidate_after(LONG, &clock);
        let options = ports.iter().enumerate().map(|(number, (port, flags))| PortOptions {
            name: port.name().to_owned(),
            ifindex: port.index(),
            mac: port.mac().0,
            port: number as u32,
            attach: None,
            flags: *flags,
        });
        let options: Vec<_> = options.collect();
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = mpsc::sync_channel(0);
        let daemon = {
            let (programs, stop) = (programs.clone(), stop.clone());
            move || {
                conntrack::relax_tcp_tracking().unwrap_or_else(|error| panic!("{error}"));
                // As the daemon does: without a heartbeat the kernel forwards the first packets, uncounted.
                programs.heartbeat().expect("a beat");
                let attach = |options| {
                    let port = PortPrograms::attach(&programs, options)?;
                    if options.flags & interface::XDP != 0 {
                        enable_egress(&programs, options)?;
                    }
                    Ok::<_, linerate_forward::Error>(port)
                };
                let ports: Result<Vec<_>, _> = options.iter().map(attach).collect();
                let ports = ports.unwrap_or_else(|error| panic!("{error}"));
                ready.send(()).expect("awaited");
                while !stop.load(SeqCst) {
                    programs.heartbeat().expect("a beat");
                    thread::sleep(Duration::from_millis(50));
                }
                drop(ports);
            }
        };
        // A thread that is started in a namespace stays in it.
        let daemon = router.run(|| thread::spawn(daemon)).expect("entered");
        is_ready.recv().expect("attached");
        Self { programs, control, stop, daemon: Some(daemon) }
    }

    /// What raises the generation.
    pub(crate) fn bumper(&self) -> impl Fn() + Send + 'static {
        let control = self.control.clone();
        move || {
            control.bump_generation();
        }
    }

    /// All sessions.
    pub(crate) fn sessions(&self) -> Vec<Session> {
        let table = Table::open(&self.programs.maps).expect("a table");
        table.sessions(&mut table.decoder(Clock::from_boot_time())).collect()
    }

    /// What the maps store of a session: its cache line and its hop.
    pub(crate) fn stored(&self, session: &Session) -> (layout::Session, Hop) {
        stored(&self.programs.maps, session)
    }

    /// The flags of its hop.
    pub(crate) fn flags(&self, session: &Session) -> u8 {
        self.stored(session).1.flags
    }

    /// The session of UDP or TCP packets from `source` to `destination`, as they come in.
    pub(crate) fn session(&self, source: SocketAddr, destination: SocketAddr) -> Option<Session> {
        let is_it = |session: &Session| {
            (session.tuple.source, session.tuple.destination) == (source, destination)
        };
        self.sessions().into_iter().find(is_it)
    }

    /// The same, which has to be there.
    #[track_caller]
    pub(crate) fn learned(&self, source: SocketAddr, destination: SocketAddr) -> Session {
        self.session(source, destination)
            .unwrap_or_else(|| panic!("no session {source} to {destination}; {}", self.describe()))
    }

    /// Packets that the datapath left to the kernel for this reason.
    pub(crate) fn left(&self, reason: Reason) -> u64 {
        self.sum("reasons", reason as u32)
    }

    /// Packets that no session was learned from for this reason.
    pub(crate) fn refused(&self, refusal: Refusal) -> u64 {
        self.sum("refusals", refusal as u32)
    }

    /// Everything that was counted, for the messages of failures.
    pub(crate) fn describe(&self) -> String {
        let (left, refused) = (self.reasons(), self.refusals());
        format!("left: {left:?}; refused: {refused:?}; sessions: {:#?}", self.sessions())
    }

    /// Frames that went to the kernel, by reason; those that never did are left out.
    pub(crate) fn reasons(&self) -> BTreeMap<&'static str, u64> {
        let count = |reason: &Reason| (reason.name(), self.left(*reason));
        Reason::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect()
    }

    /// Packets from which nothing was learned, by cause.
    pub(crate) fn refusals(&self) -> BTreeMap<&'static str, u64> {
        let count = |refusal: &Refusal| (refusal.name(), self.refused(*refusal));
        Refusal::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect()
    }

    /// Of a counter that each CPU has its own of.
    fn sum(&self, map: &str, index: u32) -> u64 {
        let map = self.programs.maps.get(map).expect("a map");
        let values = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).expect("looked up");
        let word = |value: &Vec<u8>| u64::from_ne_bytes(value[..8].try_into().expect("eight"));
        values.expect("an array has all").iter().map(word).sum()
    }
}

impl Drop for Accelerator {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        if let Some(daemon) = self.daemon.take() {
            let _ = daemon.join();
        }
    }
}
