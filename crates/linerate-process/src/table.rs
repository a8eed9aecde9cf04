//! [`Table`]: sockets, their flows and their processes, from the events of the kernel.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_bpf::process::{End, Event, EventKind, Process as Record, cgroup_root};

use crate::buckets::{self, Buckets, Used};
use crate::cgroup::ControlGroup;
use crate::names;
use crate::process::{Process, Users, read};

/// The most flows. Then the oldest of closed sockets are forgotten first.
const MAX_FLOWS: usize = if cfg!(test) { 1 << 10 } else { 1 << 17 };

/// Flows that are looked at to find one of a closed socket.
const EVICTION_TRIES: usize = 8;

/// Sockets that had the same flow one after the other, at most.
const MAX_MAPPINGS: usize = 4;

/// Changes of who has a socket that are remembered.
const MAX_HISTORY: usize = 16;

/// Flows of a socket that are found one by one.
const MAX_SINGLE_FLOWS: usize = 64;

/// Forks of a process that are remembered.
const MAX_FORKS: usize = 1024;

/// The first time after which a socket with several processes is looked at again, in nanoseconds; it doubles.
const RETRY: u64 = 20_000_000;

/// How often it doubles.
const MAX_DOUBLINGS: u8 = 9;

/// A datagram flow is reported at least this often while it has packets: `FLOW_INTERVAL` of
/// linerate-bpf/src/bpf/process.bpf.c, and a margin.
const REPORTED: u64 = 10_100_000_000;

/// How much later than a packet the report may be that it causes.
const REPORT_DELAY: u64 = 10_000_000;

/// How long a connection has packets after its socket is closed: that of TIME-WAIT.
const LINGER: u64 = 60_000_000_000;

/// Two sockets have had the same flow at the same time, if not for this time.
const SETTLED: u64 = 1_000_000_000;

/// Stands for several sockets.
const SEVERAL: u64 = 0;

/// Forks that are remembered of all processes, because their sockets may become known later.
const MAX_RECENT_FORKS: usize = 4096;

/// Programs of one process that are remembered.
const MAX_PROGRAMS: usize = 16;

/// The least time between two walks through all control groups.
const WALK_INTERVAL: Duration = Duration::from_secs(1);

const UDP: u8 = 17;

/// A process by number and start.
type Id = (u32, u64);

/// A flow as one of its sockets sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    /// The cookie of the network namespace.
    pub(crate) netns: u64,
    pub(crate) protocol: u8,
    pub(crate) local: End,
    pub(crate) remote: End,
}

impl Flow {
    fn bucket(&self) -> u16 {
        buckets::bucket(buckets::hash(self.local, self.remote))
    }
}

/// From this time on a flow is of this socket.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    from: u64,
    socket: u64,
    /// The last report.
    last: u64,
}

#[derive(Debug, Default)]
struct Socket {
    created: u64,
    released: Option<u64>,
    /// The listening socket that it came from; 0 if none is known.
    parent: u64,
    /// Who has had it alone. A new connection has no entry until it is accepted.
    history: Vec<Holding>,
    /// Some of its flows, and how many more there are.
    flows: Vec<Flow>,
    more: usize,
    /// When a look at all descriptors may tell more, and how often one did not.
    retry: (u64, u8),
}

impl Socket {
    fn has_flows(&self) -> bool {
        !self.flows.is_empty() || self.more > 0
    }

    fn push(&mut self, holding: Holding) {
        let last = self.history.last().map_or(0, |last| last.from);
        self.history.push(Holding { from: holding.from.max(last), ..holding });
        if self.history.len() > MAX_HISTORY {
            self.history.remove(0);
        }
    }
}

/// From this time on.
#[derive(Clone, Debug)]
struct Holding {
    from: u64,
    /// When the process had it alone for certain: a child that it has had since then may have it, too.
    alone: u64,
    /// `None`: several processes have it, or had it in turn.
    process: Option<Id>,
}

/// A process, also when it executes other programs.
#[derive(Debug)]
struct Life {
    /// Its programs, since when.
    programs: Vec<(u64, Arc<Process>)>,
    /// When it had children.
    forks: Vec<u64>,
    /// The last time that is not in the list any more.
    forgotten: u64,
}

/// Who has a flow at a time, and from when until when that is the answer.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) process: Option<Arc<Process>>,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

impl Holder {
    fn unknown(from: u64, until: u64) -> Self {
        Self { process: None, from, until }
    }

    fn within(self, from: u64, until: u64) -> Self {
        Self { from: self.from.max(from), until: self.until.min(until), ..self }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    sockets: HashMap<u64, Socket>,
    flows: HashMap<Flow, Vec<Mapping>>,
    order: VecDeque<Flow>,
    lives: HashMap<Id, Life>,
    recent_forks: VecDeque<(u64, Id)>,
    /// The last that is not there any more.
    forgotten_fork: u64,
    /// By their numbers; `None` for those that were not found.
    groups: HashMap<u64, Option<Arc<ControlGroup>>>,
    last_walk: Option<Instant>,
    /// Where they are mounted, and the number of the root.
    cgroup_root: Option<(PathBuf, u64)>,
    users: Users,
    pub(crate) buckets: Arc<Buckets>,
    /// A look at all descriptors may tell who has a socket alone.
    pub(crate) wants_holders: bool,
    /// Sockets are unknown that exist: the next look finds them.
    is_incomplete: bool,
    /// A process with sockets had a child: soon somebody may ask who has them.
    pub(crate) had_fork: bool,
}

impl Table {
    pub(crate) fn new() -> Self {
        let inode = |path: PathBuf| {
            let inode = std::fs::metadata(&path).ok()?.ino();
            Some((path, inode))
        };
        Self {
            cgroup_root: cgroup_root().and_then(inode),
            users: Users::read(),
            is_incomplete: true,
            ..Self::default()
        }
    }

    /// Forgets all, because events were lost, or their times are of another clock than those of packets.
    pub(crate) fn reset(&mut self) {
        self.lives.clear();
        self.recent_forks.clear();
        self.forgotten_fork = 0;
        self.sockets.clear();
        self.flows.clear();
        self.order.clear();
        (self.wants_holders, self.is_incomplete) = (true, true);
        self.buckets.change_all();
    }

    /// Forgets what nobody needs.
    pub(crate) fn sweep(&mut self) {
        let histories = self.sockets.values().flat_map(|socket| &socket.history);
        let used: HashSet<Id> = histories.filter_map(|one| one.process).collect();
        self.lives.retain(|id, _| used.contains(id));
        self.groups.retain(|_, group| group.as_ref().is_some_and(|one| Arc::strong_count(one) > 1));
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        match event.kind {
            EventKind::Process => _ = self.process(&event.process, &event.arguments, event.time),
            EventKind::Socket => {
                // Some sockets are never reported as closed.
                if self.sockets.len() > 4 * MAX_FLOWS {
                    self.reset();
                }
                let process = Some(self.process(&event.process, &[], event.time));
                let (from, alone) = (event.time, event.time);
                let history = vec![Holding { from, alone, process }];
                let socket = Socket { created: event.time, history, ..Socket::default() };
                self.sockets.insert(event.socket, socket);
            }
            EventKind::Flow => self.add_flow(event, event.time),
            EventKind::Use => self.note_use(event),
            EventKind::Release => self.release(event),
            EventKind::Fork => self.note_fork(event),
            EventKind::Holder => {}
        }
    }

    fn note_fork(&mut self, event: &Event) {
        let id = (event.process.id, event.process.start);
        if self.recent_forks.len() == MAX_RECENT_FORKS {
            self.forgotten_fork = self.recent_forks.pop_front().map_or(0, |(time, _)| time);
        }
        self.recent_forks.push_back((event.time, id));
        // A process without sockets gives none to its children.
        let Some(life) = self.lives.get_mut(&id) else { return };
        if life.forks.len() == MAX_FORKS {
            life.forgotten = life.forks.drain(..MAX_FORKS / 2).next_back().unwrap_or(0);
        }
        life.forks.push(event.time);
        self.had_fork = true;
        self.buckets.change(buckets::of_process(id.0));
    }

    fn add_flow(&mut self, event: &Event, time: u64) {
        let Event { netns, protocol, local, remote, parent, .. } = *event;
        let flow = Flow { netns, protocol, local, remote };
        let new = || Socket { created: time, parent, ..Socket::default() };
        let created = self.sockets.entry(event.socket).or_insert_with(new).created;
        let mapping = |from: u64| Mapping { from, socket: event.socket, last: time };
        let last = self.flows.get(&flow).and_then(|all| all.last()).copied();
        let mut replaced = None;
        let next = match last {
            None => mapping(created),
            Some(last) if last.socket == event.socket => {
                if protocol != UDP || time <= last.last + REPORTED {
                    return self.extend(&flow, time);
                }
                // It was silent for a while, and might have been another's.
                mapping(time.saturating_sub(REPORT_DELAY))
            }
            // The connection that this listening socket was asked for.
            Some(last) if last.socket == parent && parent != 0 => {
                replaced = Some(last);
                mapping(last.from)
            }
            Some(last) => match self.sockets.get(&last.socket).map(|one| one.released) {
                Some(Some(released)) if released <= time => mapping(created.max(released)),
                // Another one has it, too; of connections only one lives.
                Some(_) if protocol == UDP && time <= last.last + REPORTED => {
                    Mapping { from: last.last, socket: SEVERAL, last: time }
                }
                None if last.socket == SEVERAL && time <= last.last + SETTLED => {
                    return self.extend(&flow, time);
                }
                _ => mapping(time),
            },
        };
        self.buckets.change(flow.bucket());
        if let Some(socket) = self.sockets.get_mut(&next.socket) {
            match socket.flows.len() < MAX_SINGLE_FLOWS {
                true => socket.flows.push(flow),
                false => socket.more += 1,
            }
        }
        let mappings = self.flows.entry(flow).or_insert_with(|| {
            self.order.push_back(flow);
            Vec::new()
        });
        let forgotten = match replaced {
            Some(_) => mappings.pop(),
            None => (mappings.len() == MAX_MAPPINGS).then(|| mappings.remove(0)),
        };
        mappings.push(next);
        if let Some(forgotten) = forgotten {
            self.forget_flow_of(forgotten.socket, &flow);
        }
        self.evict();
    }

    /// The last socket of the flow was reported again.
    fn extend(&mut self, flow: &Flow, time: u64) {
        if let Some(last) = self.flows.get_mut(flow).and_then(|all| all.last_mut()) {
            last.last = last.last.max(time);
        }
    }

    fn evict(&mut self) {
        let mut tries = 0;
        while self.flows.len() > MAX_FLOWS
            && let Some(flow) = self.order.pop_front()
        {
            tries += 1;
            // A listening socket has many flows, whose connections nobody has accepted.
            let is_open = |mapping: &Mapping| {
                self.sockets.get(&mapping.socket).is_some_and(|socket| {
                    socket.released.is_none() && socket.more == 0 && socket.flows.len() <= 1
                })
            };
            let is_kept = flow.protocol != UDP
                && tries < EVICTION_TRIES
                && self.flows.get(&flow).is_some_and(|all| all.iter().any(is_open));
            if is_kept {
                self.order.push_back(flow);
                continue;
            }
            for mapping in self.flows.remove(&flow).unwrap_or_default() {
                self.forget_flow_of(mapping.socket, &flow);
            }
            self.buckets.change(flow.bucket());
        }
    }

    /// The socket does not have this flow any more. A closed one without flows is forgotten.
    fn forget_flow_of(&mut self, cookie: u64, flow: &Flow) {
        let Some(socket) = self.sockets.get_mut(&cookie) else { return };
        match socket.flows.iter().position(|one| one == flow) {
            Some(at) => _ = socket.flows.swap_remove(at),
            None => socket.more = socket.more.saturating_sub(1),
        }
        // One without a history was not accepted, and its end is not reported.
        if !socket.has_flows() && (socket.released.is_some() || socket.history.is_empty()) {
            self.sockets.remove(&cookie);
        }
    }

    fn note_use(&mut self, event: &Event) {
        let user = self.process(&event.process, &[], event.time);
        let Some(socket) = self.sockets.get_mut(&event.socket) else { return };
        let alone = event.time;
        let holding = match socket.history.last() {
            // Nobody had a connection before it was accepted.
            None if socket.parent != 0 => Holding { from: 0, alone, process: Some(user) },
            // Nobody saw when it got from one process to the other.
            Some(Holding { process: Some(process), alone: from, .. }) if *process != user => {
                Holding { from: *from, alone, process: None }
            }
            _ => return,
        };
        socket.push(holding);
        self.changed(event.socket);
    }

    /// Answers about the socket are outdated.
    fn changed(&self, cookie: u64) {
        let Some(socket) = self.sockets.get(&cookie) else { return };
        // Without a flow it may listen: then connections have it as their parent.
        if socket.flows.is_empty() || socket.more > 0 {
            return self.buckets.change_all();
        }
        socket.flows.iter().for_each(|flow| self.buckets.change(flow.bucket()));
    }

    fn release(&mut self, event: &Event) {
        let Some(socket) = self.sockets.get_mut(&event.socket) else { return };
        socket.released = Some(event.time);
        if !socket.has_flows() {
            self.sockets.remove(&event.socket);
        } else if socket.more > 0 || socket.flows.iter().any(|flow| flow.protocol == UDP) {
            self.changed(event.socket);
        }
    }

    /// Takes what a look at all descriptors found, which began and ended at these times.
    pub(crate) fn apply_holders(&mut self, holders: &[Event], begin: u64, end: u64) {
        self.wants_holders = false;
        let is_incomplete = std::mem::take(&mut self.is_incomplete);
        let mut by_socket = HashMap::<u64, Vec<&Event>>::new();
        for event in holders {
            by_socket.entry(event.socket).or_default().push(event);
        }
        for (cookie, events) in by_socket {
            // One that nobody knows any more has been closed meanwhile.
            if !is_incomplete && !self.sockets.contains_key(&cookie) {
                continue;
            }
            let first = events[0];
            let id = |event: &Event| (event.process.id, event.process.start);
            let is_alone = events.iter().all(|event| id(event) == id(first));
            let process = is_alone.then(|| self.process(&first.process, &[], end));
            let is_new = !self.sockets.contains_key(&cookie);
            let new = || Socket { created: end, ..Socket::default() };
            let socket = self.sockets.entry(cookie).or_insert_with(new);
            let is_certain = |last: &Holding| {
                let life = last.process.and_then(|id| self.lives.get(&id));
                last.alone >= begin || life.is_some_and(|life| fork_after(life, last.alone) > end)
            };
            // That of a new connection comes with its acceptance, unless that was not seen.
            let is_known = match socket.history.last() {
                Some(last) => is_certain(last) && (last.process == process || last.alone >= begin),
                None => socket.created >= begin && !is_new,
            };
            if !is_known {
                socket.retry = match process {
                    Some(_) => (0, 0),
                    None => {
                        (end + (RETRY << socket.retry.1), (socket.retry.1 + 1).min(MAX_DOUBLINGS))
                    }
                };
                let last = socket.history.last();
                if process.is_some() || last.is_none_or(|last| last.process.is_some()) {
                    socket.push(Holding { from: end, alone: begin, process });
                    self.changed(cookie);
                }
            }
            let Event { netns, protocol, local, remote, .. } = *first;
            let flow = Flow { netns, protocol, local, remote };
            if remote.port != 0 && !self.flows.contains_key(&flow) {
                self.add_flow(first, end);
            }
        }
    }

    /// The process, which has this program from this time on, unless that is known.
    fn process(&mut self, record: &Record, arguments: &[u8], time: u64) -> Id {
        let id = (record.id, record.start);
        let last = self.lives.get(&id).and_then(|life| life.programs.last());
        if last.is_some_and(|(_, last)| last.is_as(record)) {
            return id;
        }
        let from = if last.is_some() { time } else { 0 };
        let group = self.group(record);
        let process = Arc::new(Process::new(record, arguments, group, &self.users));
        let (recent, forgotten) = (&self.recent_forks, self.forgotten_fork);
        let life = self.lives.entry(id).or_insert_with(|| {
            let own = recent.iter().filter(|(_, parent)| *parent == id);
            Life { programs: Vec::new(), forks: own.map(|(time, _)| *time).collect(), forgotten }
        });
        if life.programs.len() == MAX_PROGRAMS {
            life.programs.remove(0);
        }
        life.programs.push((from, process));
        self.buckets.change(buckets::of_process(id.0));
        id
    }

    fn group(&mut self, record: &Record) -> Option<Arc<ControlGroup>> {
        if let Some(group) = self.groups.get(&record.cgroup) {
            return group.clone();
        }
        let (root, root_id) = self.cgroup_root.as_ref()?;
        let file = read(record, "cgroup");
        let own = file.and_then(|file| {
            let file = String::from_utf8_lossy(&file);
            // It may be in another one than then.
            let unified = file.lines().find_map(|line| line.strip_prefix("0::/"))?;
            let inode = std::fs::metadata(root.join(unified)).ok()?.ino();
            ControlGroup::of_process(&file).filter(|_| inode == record.cgroup)
        });
        let found = match own {
            Some(own) => Some(own),
            None if self.last_walk.is_some_and(|last| last.elapsed() < WALK_INTERVAL) => {
                return None;
            }
            None => {
                self.last_walk = Some(Instant::now());
                ControlGroup::by_id(root, record.cgroup)
            }
        };
        let found = found.map(|mut group| {
            names::add(&mut group, Path::new("/"));
            Arc::new(group)
        });
        // Processes at the root of version 2 may be in different groups of version 1.
        if record.cgroup != *root_id {
            self.groups.insert(record.cgroup, found.clone());
        }
        found
    }

    /// Who has the local end of the flow at this time.
    pub(crate) fn holder(&mut self, flow: &Flow, time: u64) -> Holder {
        let Some(mappings) = self.flows.get(flow) else { return Holder::unknown(0, u64::MAX) };
        let next = mappings.partition_point(|mapping| mapping.from <= time);
        let until = mappings.get(next).map_or(u64::MAX, |mapping| mapping.from);
        let Some(mapping) = next.checked_sub(1).map(|at| mappings[at]) else {
            return Holder::unknown(0, until);
        };
        let Some(socket) = self.sockets.get(&mapping.socket) else {
            return Holder::unknown(mapping.from, until);
        };
        let linger = if flow.protocol == UDP { 0 } else { LINGER };
        let released = socket.released.map_or(u64::MAX, |released| released + linger);
        let silent = if flow.protocol == UDP { mapping.last + REPORTED } else { u64::MAX };
        let end = released.min(silent);
        if end <= time {
            return Holder::unknown(end, until);
        }
        self.holder_of(mapping.socket, time).within(mapping.from, until.min(end))
    }

    fn holder_of(&mut self, cookie: u64, time: u64) -> Holder {
        let socket = &self.sockets[&cookie];
        let (holding, born) = match (socket.history.is_empty(), self.sockets.get(&socket.parent)) {
            // Not accepted yet: who had the listening socket at its start, and still has, accepts it.
            (true, Some(parent)) => (parent, socket.created),
            _ => (socket, u64::MAX),
        };
        let next = holding.history.partition_point(|one| one.from <= time);
        let until = holding.history.get(next).map_or(u64::MAX, |one| one.from);
        let Some(one) = next.checked_sub(1).map(|at| &holding.history[at]) else {
            return Holder::unknown(0, until);
        };
        let life = one.process.and_then(|id| self.lives.get(&id));
        let fork = life.map_or(0, |life| fork_after(life, one.alone));
        if fork > time
            && one.from <= born
            && let Some(life) = life
        {
            let next = life.programs.partition_point(|(from, _)| *from <= time);
            let program = next.checked_sub(1).map(|at| &life.programs[at]);
            let process = program.map(|(_, process)| Arc::clone(process));
            let later = life.programs.get(next).map_or(u64::MAX, |(from, _)| *from);
            let since = program.map_or(0, |(from, _)| *from);
            let holder = Holder { process, from: one.from, until: until.min(fork) };
            return holder.within(since, later);
        }
        if next == holding.history.len() && holding.retry.0 <= time {
            self.wants_holders = true;
        }
        let from = if fork <= time { one.from.max(fork) } else { one.from };
        Holder::unknown(from, until)
    }

    /// Who sends and who receives packets of this flow, which its sender sees.
    pub(crate) fn ends(&mut self, flow: &Flow, time: u64) -> ([Holder; 2], Used) {
        let Flow { local, remote, .. } = *flow;
        let reverse = Flow { local: remote, remote: local, ..*flow };
        let ends = [self.holder(flow, time), self.holder(&reverse, time)];
        let [a, b] = ends.each_ref().map(|end| end.process.as_ref().map_or(0, |one| one.bucket));
        (ends, [flow.bucket(), a, b])
    }
}

/// When the process had its first child after this time.
fn fork_after(life: &Life, time: u64) -> u64 {
    if time < life.forgotten {
        return time;
    }
    let next = life.forks.partition_point(|fork| *fork <= time);
    life.forks.get(next).copied().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
