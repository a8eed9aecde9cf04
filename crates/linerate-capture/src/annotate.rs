//! [`Annotator`]: says in words why the kernel dropped a packet, and where.

mod symbols;

use std::collections::HashMap;
use std::fmt::Write;

use linerate_ring::TraceEvent;
use linerate_ring::trace::drop_reasons;
use symbols::Symbols;

use crate::{Error, Result};

/// Reasons of a subsystem have its number in the upper half (`include/net/dropreason.h`).
const SUBSYSTEM_SHIFT: u32 = 16;

/// Writes the comments of dropped packets. What it has said once it keeps: a packet costs no allocation.
#[derive(Debug)]
pub(crate) struct Annotator {
    reasons: HashMap<u32, String>,
    symbols: Symbols,
    places: HashMap<u64, String>,
    interfaces: HashMap<u32, String>,
    text: String,
}

impl Annotator {
    /// Reads the kernel's names.
    ///
    /// # Errors
    ///
    /// On a kernel that does not describe its types.
    pub(crate) fn new() -> Result<Self> {
        let reasons = drop_reasons().map_err(|error| Error::Ring(error.into()))?;
        Ok(Self {
            reasons: reasons.into_iter().collect(),
            symbols: Symbols::read(),
            places: HashMap::new(),
            interfaces: HashMap::new(),
            text: String::new(),
        })
    }

    /// The comment for a packet; `None` for what is no drop.
    pub(crate) fn comment(&mut self, event: &TraceEvent) -> Option<&str> {
        let TraceEvent::Drop { reason, location, interface } = *event else { return None };
        let Self { reasons, symbols, places, interfaces, text } = self;
        text.clear();
        text.push_str("dropped: ");
        match reasons.get(&reason) {
            Some(name) => text.push_str(name),
            None => {
                _ = match reason >> SUBSYSTEM_SHIFT {
                    0 => write!(text, "reason {reason}"),
                    subsystem => {
                        write!(
                            text,
                            "reason {} of subsystem {subsystem}",
                            reason & ((1 << SUBSYSTEM_SHIFT) - 1)
                        )
                    }
                }
            }
        }
        text.push_str(" in ");
        text.push_str(places.entry(location).or_insert_with(|| symbols.place(location)));
        if interface != 0 {
            text.push_str(" on ");
            text.push_str(interfaces.entry(interface).or_insert_with(|| name(interface)));
        }
        Some(text)
    }
}

/// The interface's name, or its number where it has gone.
fn name(interface: u32) -> String {
    let link = linerate_net::link::by_index(interface).ok().flatten();
    link.map_or_else(|| format!("interface {interface}"), |link| link.name)
}

#[cfg(test)]
mod tests {
    use linerate_testkit::root_or_skip;

    use super::*;

    #[test]
    fn a_drop_is_said_in_the_kernels_words() {
        root_or_skip!();
        let mut annotator = Annotator::new().expect("a kernel with BTF");
        let socket_buffer = annotator.reasons.iter().find(|(_, name)| *name == "SOCKET_RCVBUFF");
        let reason = *socket_buffer.expect("the reason of a full socket buffer").0;
        let location =
            annotator.symbols.address("udp_queue_rcv_skb").map_or(1, |address| address + 16);
        let event = TraceEvent::Drop { reason, location, interface: 1 };
        let said = annotator.comment(&event).expect("a comment").to_owned();
        assert!(said.starts_with("dropped: SOCKET_RCVBUFF in "), "{said}");
        assert!(said.ends_with(" on lo"), "{said}");
        if location != 1 {
            assert!(said.contains(" in udp_queue_rcv_skb+0x10 "), "{said}");
        }
        let event = TraceEvent::Drop { reason: 3 << 16 | 7, location: 1, interface: 0 };
        assert_eq!(annotator.comment(&event), Some("dropped: reason 7 of subsystem 3 in 0x1"));
    }
}
