//! Opens the sources `trace` and `drops`, and says what became of what they trace.

use linerate_bpf::filter::MemoryFilter;
use linerate_bpf::xdp::AttachedProgram;
use linerate_ring::region::Pages;
use linerate_ring::trace::{Options, Points, TargetChange, Trace};
use linerate_ring::{TimestampSource, WaitStrategy, tee};

use super::Source;
use super::open::{Opener, Parts, Taken};
use crate::Result;
use crate::filter::Filter;
use crate::interface::ANY;

impl Opener<'_> {
    /// The XDP program that the interface has.
    pub(super) fn trace(&self) -> Result<Parts> {
        self.in_ebpf(Filter::place_in_trace, |filter| {
            let trace = self.trace_options(filter).xdp(self.name, self.options.trace_points)?;
            let at = match self.options.trace_points {
                Points::Entry => "entry",
                Points::Exit => "exit",
                Points::Both => "entry and exit",
            };
            let how = trace.target().map_or_else(String::new, |target| {
                format!("{}, {} XDP, at its {at}", described(target), target.mode)
            });
            Ok(parts(trace, how))
        })
    }

    /// What the kernel drops.
    pub(super) fn drops(&self) -> Result<Parts> {
        self.in_ebpf(Filter::place_in_trace, |filter| {
            let interface = (self.name != ANY).then_some(self.name);
            let trace = self.trace_options(filter).drops(interface)?;
            Ok(parts(trace, String::new()))
        })
    }

    fn trace_options<'f>(&self, filter: Option<&'f MemoryFilter>) -> Options<'f> {
        let options = self.options;
        let default = Options::default();
        Options {
            filter,
            snaplen: options.snaplen.min(tee::MAX_SNAPLEN),
            timestamps: matches!(
                options.timestamps,
                TimestampSource::Software | TimestampSource::Hardware
            ),
            wait_strategy: match options.immediate {
                true => WaitStrategy::BLOCKING,
                false => default.wait_strategy,
            },
            buffer: options
                .buffer
                .map_or(default.buffer, |bytes| (bytes as usize).next_power_of_two()),
            rate_limit: options.rate_limit,
        }
    }
}

fn parts(trace: Trace, how: String) -> Taken {
    (vec![Source::Trace(Box::new(trace))], Pages::Small.to_string(), vec![how])
}

/// What became of the traced XDP program since the last call, as a sentence.
pub(super) fn notice(trace: &mut Trace) -> Option<String> {
    Some(match trace.take_change()? {
        TargetChange::Replaced { from: Some(from), to } => format!(
            "{} took the place of {}, and is traced now; frames of the moments between are missing",
            described(&to),
            described(&from)
        ),
        TargetChange::Replaced { from: None, to } => {
            format!("{} has been attached, and is traced now", described(&to))
        }
        TargetChange::Detached(program) => format!(
            "{} has been detached; waiting for another XDP program, and frames are not seen meanwhile",
            described(&program)
        ),
    })
}

fn described(program: &AttachedProgram) -> String {
    format!("XDP program \"{}\" (id {})", program.name, program.id)
}
