//! [`Corpus`]: sessions that talk in turn, and the comparison of what two routers make of it.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use super::kinds::{self, KINDS, Make};
use super::oracle::{Refusals, describe, differences};
use super::session::{Session, routed, translated};
use super::step::Step;
use crate::common::capture::{Monitor, stay};
use crate::common::router::Router;
use linerate_testkit::Random;

/// Turns of each session on average.
const TURNS: usize = 60;
/// Sessions that talk at the same time.
const OPEN: usize = 24;

/// Differences after which there is nothing more to learn.
const ENOUGH: usize = 200;

/// A kind of traffic.
#[derive(Clone, Copy)]
pub(crate) struct Traffic {
    pub(crate) name: &'static str,
    session: fn(&mut Random, u32, Option<&Session>) -> Session,
}

pub(crate) const ROUTED: Traffic = Traffic { name: "routed", session: routed };
pub(crate) const TRANSLATED: Traffic = Traffic { name: "translated", session: translated };

pub(crate) struct Corpus {
    traffic: Traffic,
    random: Random,
    sessions: u32,
}

/// A frame on its way into both routers.
struct Sent<'a> {
    kind: &'static str,
    session: &'a Session,
    port: usize,
    frame: Vec<u8>,
}

impl fmt::Display for Sent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Session { id, tcp, dscp, sides, .. } = self.session;
        let name = crate::common::host::PORTS[self.port];
        writeln!(f, "a frame of kind \"{}\" into {name}: {}", self.kind, describe(&self.frame))?;
        let protocol = if *tcp { "TCP" } else { "UDP" };
        let [client, server] = sides;
        write!(f, "session {id}: {protocol}, DSCP {dscp}, {:?} to {:?}", client.from, client.to)?;
        write!(
            f,
            " as {:?} to {:?}; tags {:x?} and {:x?}",
            server.to, server.from, client.tags, server.tags
        )
    }
}

/// What became of a corpus.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) sent: usize,
    pub(crate) distinct: usize,
    /// Frames that left the plain router.
    pub(crate) left: usize,
    /// Frames that reached the other router, marks included.
    pub(crate) reached: u64,
    pub(crate) kinds: BTreeMap<&'static str, usize>,
    /// Told with the frame that they come from, by the kind of that frame and the kind of difference.
    pub(crate) differences: BTreeMap<(&'static str, &'static str), Vec<String>>,
    refusals: Refusals,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, distinct, left, kinds, .. } = self;
        write!(f, "{sent} frames sent, {distinct} distinct, {left} left; ")?;
        write!(f, "{} differences; kinds: {kinds:?}", self.count())
    }
}

impl Report {
    fn count(&self) -> usize {
        self.differences.values().map(Vec::len).sum()
    }

    pub(crate) fn assert_none(&self) {
        let shown = self.differences.iter().map(|(class, list)| {
            format!(
                "{} times {class:?}, such as\n{}",
                list.len(),
                list[..list.len().min(3)].join("\n")
            )
        });
        let shown = shown.collect::<Vec<_>>().join("\n");
        assert!(self.differences.is_empty(), "{self}\n{shown}");
    }
}

impl Corpus {
    pub(crate) fn new(traffic: Traffic, seed: u64, sessions: u32) -> Self {
        Self { traffic, random: Random::new(seed), sessions }
    }

    /// Sends the corpus into both routers, and compares after every frame. `now_and_then` is called twenty
    /// times on the way.
    pub(crate) fn run(
        mut self,
        plain: &Router,
        other: &Router,
        mut now_and_then: impl FnMut(),
    ) -> Report {
        stay();
        let mut monitor = [Monitor::open(plain), Monitor::open(other)];
        let mut report = Report::default();
        let mut seen = HashSet::new();
        let mut open: Vec<Session> = Vec::new();
        let mut id = 0;
        while (id < self.sessions || !open.is_empty()) && report.count() < ENOUGH {
            if id < self.sessions && open.len() < OPEN {
                let session = (self.traffic.session)(&mut self.random, id, open.last());
                id += 1;
                if id.is_multiple_of(self.sessions.div_ceil(20)) {
                    now_and_then();
                }
                open.push(session);
                let session = open.last_mut().expect("just opened");
                let mut step = Step { session, side: 0, random: &mut self.random };
                let frames = kinds::open(&mut step);
                for (side, frame) in frames {
                    let port = session.sides[side].host.port;
                    report.compare(
                        &mut monitor,
                        &Sent { kind: "open", session, port, frame },
                        &mut seen,
                    );
                }
                continue;
            }
            let at = self.random.within(0..=open.len() - 1);
            let (kind, make) = pick(&mut self.random);
            let side = self.random.within(0..=1);
            let session = &mut open[at];
            let mut step = Step { session, side, random: &mut self.random };
            let frames = make(&mut step);
            let port = session.sides[side].host.port;
            for frame in frames {
                report.compare(&mut monitor, &Sent { kind, session, port, frame }, &mut seen);
            }
            if self.random.one_in(TURNS) {
                open.swap_remove(at);
            }
        }
        monitor.iter().for_each(Monitor::assert_all_seen);
        report.distinct = seen.len();
        report.reached = super::reached(other);
        report
    }
}

fn pick(random: &mut Random) -> (&'static str, Make) {
    let sum = KINDS.iter().map(|(_, weight, _)| weight).sum::<usize>();
    let mut at = random.within(0..=sum - 1);
    for (name, weight, make) in KINDS {
        if at < *weight {
            return (name, *make);
        }
        at -= weight;
    }
    unreachable!("{at} of {sum}")
}

impl Report {
    fn compare(
        &mut self,
        monitor: &mut [Monitor; 2],
        sent: &Sent<'_>,
        distinct: &mut HashSet<Vec<u8>>,
    ) {
        distinct.insert(sent.frame.clone());
        self.sent += 1;
        *self.kinds.entry(sent.kind).or_default() += 1;
        monitor.iter().for_each(|monitor| monitor.send(sent.port, &sent.frame));
        let [plain, other] = monitor;
        let (mut plain_seen, mut other_seen) = (plain.seen(), other.seen());
        let compared = |plain_seen: &_, other_seen: &_| {
            let mut found = differences(plain_seen, other_seen);
            found.retain(|one| !self.refusals.explain(one));
            found
        };
        let mut found = compared(&plain_seen, &other_seen);
        // What the machine was slow with is no difference. A macvlan hands broadcasts to a work item, which may wait.
        let patience = if self.differences.is_empty() { 1000 } else { 20 };
        let deadline = Instant::now() + Duration::from_millis(patience);
        while !found.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            for (monitor, seen) in [(&mut *plain, &mut plain_seen), (&mut *other, &mut other_seen)]
            {
                for (port, more) in monitor.seen().into_iter().enumerate() {
                    seen[port].extend(more);
                }
            }
            found = compared(&plain_seen, &other_seen);
        }
        self.refusals.count(&plain_seen);
        self.left += plain_seen.iter().map(Vec::len).sum::<usize>();
        for found in found {
            let list = self.differences.entry((sent.kind, found.what)).or_default();
            list.push(format!("{found}  from frame {}, {sent}", self.sent));
        }
    }
}
