//! [`Router`]: the frames of a socket that receives from all interfaces, and whose each is.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use linerate_net::Interface;
use linerate_net::change::{Change, Changes, Group};
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
    routes: HashMap<u32, Route>,
    /// The index in the last frame.
    pub(super) current: u32,
    /// Frames of interfaces that are gone.
    gone: u64,
    /// What a file says about all interfaces.
    description: InterfaceDescription,
}

/// Where the frames of an interface go.
#[derive(Clone)]
pub(super) struct Route {
    /// The number of the interface.
    pub(super) number: u32,
    pub(super) linktype: u16,
    pub(super) counters: Arc<InterfaceCounters>,
    name: String,
    up: bool,
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
        let route = |number: usize| Route {
            number: number as u32,
            linktype: opened[number].linktype,
            counters: Arc::clone(&counters[number]),
            name: opened[number].label.clone(),
            up: true,
        };
        let routes =
            (0..opened.len()).map(|number| (opened[number].interface.index, route(number)));
        Ok(Self {
            changes: Changes::subscribe(&[Group::Link])?,
            events: events.clone(),
            all: Arc::clone(all),
            routes: routes.collect(),
            current: 0,
            gone: 0,
            description,
        })
    }

    /// The route of frames with this index.
    pub(super) fn route(&mut self, index: u32, sink: &mut Sink<FileSinkHandle>) -> &Route {
        if !self.routes.contains_key(&index) {
            // One that has gone already counts for all of them.
            let route = self.add(index, sink).unwrap_or_else(|| self.routes[&0].clone());
            self.routes.insert(index, route);
        }
        self.current = index;
        &self.routes[&index]
    }

    fn add(&mut self, index: u32, sink: &mut Sink<FileSinkHandle>) -> Option<Route> {
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
        Some(Route { number, linktype, counters, name: interface.name, up: true })
    }

    /// Says which interfaces went down, came up or were removed. Returns the frames of all interfaces so far, and
    /// counts them as received there.
    pub(super) fn refresh(&mut self) -> u64 {
        let mut changed = Vec::new();
        let _ = self.changes.receive(|change| {
            if let Change::Link { index, up } = change {
                changed.push((index, up));
            }
        });
        for (index, up) in changed {
            let Some(route) = self.routes.get_mut(&index).filter(|route| route.number > 0) else {
                continue;
            };
            let name = route.name.clone();
            let event = if Interface::by_index(index).is_err() {
                // Its counts stay in `all`.
                self.gone += route.counters.receive_handled();
                self.routes.remove(&index);
                self.current = 0;
                Event::Gone(name)
            } else if route.up == up {
                continue;
            } else {
                route.up = up;
                if up { Event::Up(name) } else { Event::Down(name) }
            };
            let _ = self.events.send(event);
        }
        let routes = self.routes.values().filter(|route| route.number > 0);
        self.gone + routes.map(|route| route.counters.receive_handled()).sum::<u64>()
    }
}
