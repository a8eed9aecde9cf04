//! [`Router`]: the frames of a socket that receives from all interfaces, and whose each is.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use linerate_net::Interface;
use linerate_net::change::{Change, Changes, RtnlGroup};
use linerate_net::link::{Link, Statistics};
use linerate_pcapfile::InterfaceDescription;

use super::shared::Event;
use crate::Result;
use crate::interface;
use crate::sink::Sink;
use crate::sink::file::FileSinkHandle;
use crate::source::OpenInterface;
use crate::statistics::{AllCounters, InterfaceCounters};

/// Finds the interface of a frame by its index, also of one that appears during the capture.
pub(super) struct Router {
    changes: Changes,
    events: Sender<Event>,
    all: Arc<AllCounters>,
    routes: HashMap<u32, KnownInterface>,
    /// Changes may be unknown: before the subscription, or because too many came at once.
    missed: bool,
    /// The index in the last frame.
    pub(super) current: u32,
    /// Frames of interfaces whose index another one has now.
    replaced: u64,
    /// What a file says about all interfaces.
    description: InterfaceDescription,
}

/// Where the frames of an interface go.
#[derive(Clone)]
pub(super) struct KnownInterface {
    /// The number of the interface.
    pub(super) number: u32,
    pub(super) linktype: u16,
    pub(super) counters: Arc<InterfaceCounters>,
    name: String,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    Down,
    /// Its frames may still be in the ring.
    Gone,
}

impl Router {
    /// For `opened`, whose first one has the socket. Its interfaces have the same numbers in `all`.
    pub(super) fn new(
        opened: &[OpenInterface],
        all: &Arc<AllCounters>,
        events: &Sender<Event>,
        description: InterfaceDescription,
    ) -> Result<Self> {
        let counters = all.all();
        let route = |number: usize| KnownInterface {
            number: number as u32,
            linktype: opened[number].linktype,
            counters: Arc::clone(&counters[number]),
            name: opened[number].label.clone(),
            state: State::Up,
        };
        let routes =
            (0..opened.len()).map(|number| (opened[number].interface.index, route(number)));
        Ok(Self {
            changes: Changes::subscribe(&[RtnlGroup::Link])?,
            events: events.clone(),
            all: Arc::clone(all),
            routes: routes.collect(),
            missed: true,
            current: 0,
            replaced: 0,
            description,
        })
    }

    /// The route of frames with this index.
    pub(super) fn route(&mut self, index: u32, sink: &mut Sink<FileSinkHandle>) -> &KnownInterface {
        if !self.routes.contains_key(&index) {
            // One that has gone before its first frame was read counts for all of them.
            let route = self.add(index, sink).unwrap_or_else(|| KnownInterface {
                state: State::Gone,
                ..self.routes[&0].clone()
            });
            self.routes.insert(index, route);
        }
        self.current = index;
        &self.routes[&index]
    }

    fn add(&mut self, index: u32, sink: &mut Sink<FileSinkHandle>) -> Option<KnownInterface> {
        // Packets wait meanwhile: so not by netlink, whose answer may take seconds.
        let found = Interface::by_index(index).ok()?;
        let (name, hardware_type) = (found.name().to_owned(), found.link_layer().ok()?);
        let interface = Link { name, index, hardware_type, ..Link::default() };
        let linktype = interface::linktype(&interface).ok()?;
        let before = Statistics::default();
        let counters = Arc::new(InterfaceCounters::since_then(before, &interface, None, 1));
        let number = self.all.add(Arc::clone(&counters));
        if let Some(file) = sink.file() {
            file.describe(InterfaceDescription {
                name: Some(interface.name.clone()),
                linktype,
                ..self.description.clone()
            });
        }
        let _ = self.events.send(Event::Appeared(interface.name.clone()));
        Some(KnownInterface { number, linktype, counters, name: interface.name, state: State::Up })
    }

    /// Says which interfaces went down, came up or were removed. Returns the frames of all interfaces so far, and
    /// counts them as received there.
    pub(super) fn refresh(&mut self) -> u64 {
        let mut changed = Vec::new();
        let mut missed = std::mem::take(&mut self.missed);
        let _ = self.changes.receive(|change| match change {
            Change::Link { index, up } => changed.push((index, Some(up))),
            Change::Lost => missed = true,
            _ => {}
        });
        if missed {
            changed.extend(self.routes.keys().map(|&index| (index, None)));
        }
        changed.into_iter().for_each(|(index, up)| self.note(index, up));
        let routes = self.routes.values().filter(|route| route.number > 0);
        self.replaced + routes.map(|route| route.counters.receive_handled()).sum::<u64>()
    }

    /// Notes that an interface may have changed. Whether it was up then is asked if it is not known.
    fn note(&mut self, index: u32, up: Option<bool>) {
        let Some(route) = self.routes.get_mut(&index).filter(|_| index > 0) else { return };
        let found = Interface::by_index(index).and_then(|one| up.map_or_else(|| one.is_up(), Ok));
        let now = match found {
            Ok(true) => State::Up,
            Ok(false) => State::Down,
            Err(linerate_net::Error::InterfaceGone(_)) => State::Gone,
            Err(_) => return,
        };
        let before = std::mem::replace(&mut route.state, now);
        let name = route.name.clone();
        let event = match now {
            _ if before == now => return,
            _ if before == State::Gone => {
                // The next frame finds the new interface. The counts of the old one stay in `all`.
                let old = self.routes.remove(&index).filter(|route| route.number > 0);
                self.replaced += old.map_or(0, |old| old.counters.receive_handled());
                self.current = 0;
                return;
            }
            State::Gone => Event::Gone(name),
            State::Up => Event::Up(name),
            State::Down => Event::Down(name),
        };
        let _ = self.events.send(event);
    }
}
