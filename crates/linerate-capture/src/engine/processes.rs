//! [`Processes`]: the processes of packets, in the path of a reader.

use std::sync::Arc;

use linerate_flow::meter;
use linerate_net::namespace;
use linerate_process::{Attribution, Cache, Selection};
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
        Ok(Self { cache, text: String::new() })
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
