//! [`Processes`]: the processes of packets, in the path of a reader.

use std::sync::Arc;

use linerate_flow::{ProcessFields, Processes as RecordProcesses, meter};
use linerate_net::namespace;
use linerate_process::{Attribution, Cache, Process, Selection};
use linerate_ring::Timestamp;
use linerate_wire::flow::Key;

use crate::source::{OpenInterface, inside};
use crate::{Error, Result};

/// The most flows that all readers together remember.
const MAX_FLOWS: usize = 1 << 17;

/// The least of one reader.
const MIN_FLOWS: usize = 1 << 10;

/// Whose packets they are.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// Knows the processes.
    pub attribution: Arc<Attribution>,
    /// Those whose packets are captured.
    pub selection: Selection,
}

/// What is known of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) is_known: bool,
    pub(super) is_selected: bool,
}

/// Finds the processes of each packet of one reader.
pub(super) struct Processes {
    cache: Cache,
    text: String,
    /// What flow records have of the answers of a generation, by their numbers.
    generation: u64,
    fields: Vec<Option<Arc<RecordProcesses>>>,
}

impl Processes {
    /// For one of this many readers, which reads `interface`.
    pub(super) fn new(
        options: &ProcessOptions,
        interface: &OpenInterface,
        readers: usize,
    ) -> Result<Self> {
        let flows = (MAX_FLOWS / readers).max(MIN_FLOWS);
        let netns = inside(interface.namespace.as_deref(), namespace::cookie)?;
        let netns = netns.ok_or(Error::NamespaceCookie)?;
        let cache = options.attribution.cache(netns, options.selection.clone(), flows);
        Ok(Self { cache, text: String::new(), generation: 0, fields: Vec::new() })
    }

    /// Finds those of a frame of this link type.
    #[inline]
    pub(super) fn find(&mut self, frame: &[u8], linktype: u16, time: Timestamp) -> Verdict {
        let layers = meter::layers(frame, linktype);
        let key = layers.and_then(|layers| Key::in_layers(&layers, frame));
        let answer = match key.filter(|key| key.protocol.has_ports()) {
            Some(key) => self.cache.attribute(&key, time.0),
            None => self.cache.attribute_none(),
        };
        Verdict { is_known: answer.is_known(), is_selected: answer.is_selected }
    }

    /// Those of the last frame for a flow record; `None` if none is known.
    #[inline]
    pub(super) fn fields(&mut self) -> Option<&Arc<RecordProcesses>> {
        let answer = self.cache.last();
        if !answer.is_known() {
            return None;
        }
        let (generation, number) = self.cache.last_number();
        if generation != self.generation {
            (self.generation, self.fields) = (generation, Vec::new());
        }
        if number >= self.fields.len() {
            self.fields.resize(number + 1, None);
        }
        let of = |one: &Option<Arc<Process>>| one.as_ref().map(|one| Arc::new(fields(one)));
        let new = || Arc::new([of(&answer.source), of(&answer.destination)]);
        Some(self.fields[number].get_or_insert_with(new))
    }

    /// The comment for the last frame, after what else is to be said of it.
    #[inline]
    pub(super) fn comment<'t>(&'t mut self, before: Option<&'t str>) -> Option<&'t str> {
        let text = self.cache.last().text.as_str();
        match before {
            _ if text.is_empty() => before,
            None => Some(text),
            Some(before) => {
                self.text.clear();
                self.text.extend([before, "\n", text]);
                Some(&self.text)
            }
        }
    }
}

fn fields(process: &Process) -> ProcessFields {
    let Process { id, name, command, uid, user, group, .. } = process;
    let group = group.as_deref();
    let container = group.and_then(|group| group.container.as_ref());
    ProcessFields {
        id: *id,
        name: name.clone(),
        command: Some(command.clone()).filter(|command| !command.is_empty()),
        uid: *uid,
        user: user.clone(),
        container: container.map(|container| container.id.clone()),
        container_name: container.and_then(|container| container.name.clone()),
        pod: group.and_then(|group| group.pod.clone()),
        pod_name: group.and_then(|group| group.pod_name.clone()),
        unit: group.and_then(|group| group.unit.clone()),
    }
}
