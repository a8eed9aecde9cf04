//! [`Sink`]: the ends of what a router sends.

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};
use linerate_testkit::{Interface, Mac, Namespace};

use super::compiled;
use super::router::Router;

/// How frames arrived at the peer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Path {
    /// The router's port that they left by.
    pub(crate) port: usize,
    /// Source address, the end of it for IPv6.
    pub(crate) source: [u8; 4],
    pub(crate) source_port: u16,
    pub(crate) to: Mac,
    pub(crate) from: Mac,
    /// Bytes of the IP packet.
    pub(crate) length: u16,
}

/// What arrived one way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    pub(crate) packets: u64,
    /// When the last came, nanoseconds of CLOCK_MONOTONIC.
    pub(crate) last: u64,
    /// When the one that was sent last was sent, by the stamp in it.
    pub(crate) newest: u64,
}

/// A program at the peer of each port, gone with this value.
pub(crate) struct Sink {
    object: Object,
    _links: Vec<Link>,
    indices: Vec<u32>,
}

impl Sink {
    /// `program` is one of `sink.bpf.c`.
    pub(crate) fn open(router: &Router, program: &str) -> Self {
        let ends: Vec<_> = router.cables.iter().map(|cable| &cable.b).collect();
        Self::on(&router.outside, &ends, program)
    }

    /// The program on these interfaces of a namespace.
    pub(crate) fn on(namespace: &Namespace, ends: &[&Interface], program: &str) -> Self {
        let path = compiled("sink");
        let indices: Vec<_> = ends.iter().map(|end| end.index()).collect();
        let open = || {
            let object = ObjectBuilder::default().open_file(&path).expect("an object");
            let object = object.load().expect("loaded");
            let links = {
                let program = object.progs_mut().find(|found| found.name() == program);
                let program = program.expect("a program");
                let attach = |index: &u32| program.attach_xdp(*index as i32).expect("attached");
                indices.iter().map(attach).collect()
            };
            (object, links)
        };
        let (object, links) = namespace.run(open).expect("entered");
        Self { object, _links: links, indices }
    }

    /// Everything that has arrived, of the program `sink`.
    pub(crate) fn arrived(&self) -> Vec<(Path, Arrived)> {
        let map = self.object.maps().find(|map| map.name() == "arrivals").expect("a map");
        let keys: Vec<_> = map.keys().collect();
        let entry = |key: &Vec<u8>| {
            let value = map.lookup(key, MapFlags::ANY).expect("looked up")?;
            let word = |at: usize| u64::from_ne_bytes(value[at..at + 8].try_into().expect("eight"));
            let index = u32::from_ne_bytes(key[..4].try_into().expect("four"));
            let path = Path {
                port: self.indices.iter().position(|found| *found == index)?,
                source: key[4..8].try_into().expect("four"),
                source_port: u16::from_be_bytes([key[8], key[9]]),
                to: Mac(key[10..16].try_into().expect("six")),
                from: Mac(key[16..22].try_into().expect("six")),
                length: u16::from_ne_bytes([key[22], key[23]]),
            };
            Some((path, Arrived { packets: word(0), last: word(8), newest: word(16) }))
        };
        keys.iter().filter_map(entry).collect()
    }
}

/// Now, by the clock of the stamps, nanoseconds.
pub(crate) fn monotonic() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}
