//! Ours against the kernel's, case by case, and the list of what may differ.

use std::collections::{BTreeMap, HashMap};

use linerate_ring::packet::Ring;
use linerate_segment::Error;
use linerate_segment::segment::{Options, Segments};
use linerate_wire::virtio::Header;

use super::generate::{Kinds, shape};
use super::packet::{Shape, TCP};
use super::wire::{Seen, Wire};
use linerate_testkit::Random;

/// Segments in flight at once; a thousand is what fits a CPU's backlog.
const GROUP: usize = 450;

/// What we make of a packet.
pub(crate) type Ours = Result<Vec<Vec<u8>>, Error>;

/// A kind of case in which the kernel does something else, and why.
pub(crate) struct Difference {
    pub(crate) name: &'static str,
    /// Which cases.
    pub(crate) of: fn(&Shape) -> bool,
    /// How exactly they differ.
    pub(crate) is: fn(&Shape, &Seen, &Ours) -> bool,
}

/// One super-packet.
pub(crate) struct Case {
    pub(crate) shape: Shape,
    /// What went into the kernel.
    sent: Vec<u8>,
    /// What it segmented.
    pub(crate) packet: Vec<u8>,
}

/// What became of the cases.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) same: usize,
    pub(crate) segments: usize,
    /// Sent again, because the machine may have lost a frame.
    pub(crate) again: usize,
    /// Single TCP segments whose checksum is 0, for which the kernel writes 0xffff.
    pub(crate) zeros: usize,
    pub(crate) different: BTreeMap<&'static str, usize>,
}

/// How a comparison goes about.
pub(crate) struct Comparison<'c> {
    pub(crate) wire: &'c mut Wire,
    pub(crate) kinds: Kinds,
    /// The packet of a case as it goes into the kernel.
    pub(crate) packet: &'c dyn Fn(&Shape, u32, &mut Random) -> Vec<u8>,
    /// The virtio header that goes with it.
    pub(crate) header: &'c dyn Fn(&Shape) -> Header,
    /// The number of the case that a frame at the peer is of.
    pub(crate) number: fn(&[u8]) -> Option<u32>,
    /// What we are given, and how to split it; for some it takes a look at what the kernel did.
    pub(crate) ours: &'c dyn Fn(&Case, &Seen) -> Ours,
    pub(crate) differences: &'c [Difference],
    /// Sees what goes out before it is segmented: that is what we are given, in place of what went in.
    pub(crate) spy: Option<&'c mut Ring>,
}

impl Comparison<'_> {
    /// Compares `count` generated cases.
    pub(crate) fn run(&mut self, seed: u64, count: u32) -> Totals {
        let mut random = Random::new(seed);
        let mut totals = Totals::default();
        let mut number = 0;
        while number < count {
            let mut group = HashMap::new();
            let mut segments = 0;
            while segments < GROUP && number < count {
                let shape = shape(&mut random, self.kinds);
                let packet = (self.packet)(&shape, number, &mut random);
                segments += 1 + shape.payload / usize::from(shape.size);
                group.insert(number, Case { shape, sent: packet.clone(), packet });
                number += 1;
            }
            self.compare_group(&mut group, &mut totals);
        }
        totals
    }

    fn compare_group(&mut self, group: &mut HashMap<u32, Case>, totals: &mut Totals) {
        let mut order: Vec<_> = group.keys().copied().collect();
        order.sort_unstable();
        let mut seen = self.send(group, &order);
        for number in order {
            let mut kernel = seen.remove(&number).unwrap_or_default();
            let mut verdict = self.verdict(&group[&number], &kernel);
            if verdict.is_err() {
                // Once more, alone: a busy machine may have lost a frame.
                totals.again += 1;
                kernel = self.send(group, &[number]).remove(&number).unwrap_or_default();
                verdict = self.verdict(&group[&number], &kernel);
            }
            match verdict {
                Ok(None) => {
                    totals.same += 1;
                    let mut ours = (self.ours)(&group[&number], &kernel);
                    totals.zeros += usize::from(mangle_zero(&group[&number].shape, &mut ours));
                }
                Ok(Some(difference)) => *totals.different.entry(difference).or_default() += 1,
                Err(trouble) => panic!("case {number}, {:?}: {trouble}", group[&number].shape),
            }
            totals.segments += kernel.len();
        }
        assert!(seen.is_empty(), "frames of no case: {:?}", seen.keys());
    }

    /// Sends cases and returns what became of them.
    fn send(&mut self, group: &mut HashMap<u32, Case>, order: &[u32]) -> HashMap<u32, Seen> {
        for number in order {
            let case = &group[number];
            self.wire.send(&(self.header)(&case.shape), &case.sent);
        }
        let Some(spy) = &mut self.spy else { return self.wire.seen(self.number) };
        let (seen, before) = self.wire.seen_with(spy, self.number);
        for (number, mut before) in before {
            let case = group.get_mut(&number).expect("a case");
            assert_eq!(
                before.len(),
                1,
                "{:?} was segmented before it came to the wire",
                case.shape
            );
            case.packet = before.remove(0);
        }
        seen
    }

    /// The name of the difference that the case is to have and has; `None` where there is none.
    fn verdict(&self, case: &Case, kernel: &Seen) -> Result<Option<&'static str>, String> {
        let mut ours = (self.ours)(case, kernel);
        mangle_zero(&case.shape, &mut ours);
        let listed = self.differences.iter().find(|difference| (difference.of)(&case.shape));
        match listed {
            Some(difference) if (difference.is)(&case.shape, kernel, &ours) => {
                Ok(Some(difference.name))
            }
            Some(difference) => {
                Err(format!("not \"{}\": {}", difference.name, describe(kernel, &ours)))
            }
            None if is_same(kernel, &ours) => Ok(None),
            None => Err(describe(kernel, &ours)),
        }
    }
}

/// Writes the TCP checksum of a packet that is not split as the kernel does: `skb_checksum_help` fills
/// it in whatever the protocol, and never with 0, which means none in UDP. Whether it was 0.
fn mangle_zero(shape: &Shape, ours: &mut Ours) -> bool {
    let (Ok(frames), TCP, true) = (ours, shape.protocol(), shape.is_single()) else {
        return false;
    };
    let [frame] = &mut frames[..] else { return false };
    let at = frame.len() - shape.payload - shape.transport_len() + 16;
    let zero = frame[at..at + 2] == [0, 0];
    if zero {
        frame[at..at + 2].fill(0xff);
    }
    zero
}

/// Whether both made the same frames, or both refused.
pub(crate) fn is_same(kernel: &Seen, ours: &Ours) -> bool {
    match ours {
        Ok(ours) => ours == kernel && !kernel.is_empty(),
        Err(_) => kernel.is_empty(),
    }
}

/// The first place where the two differ.
pub(crate) fn describe(kernel: &Seen, ours: &Ours) -> String {
    let ours = match ours {
        Err(error) => return format!("ours \"{error}\", the kernel {} frames", kernel.len()),
        Ok(ours) => ours,
    };
    let pairs = ours.iter().zip(kernel).enumerate();
    for (index, (ours, kernel)) in pairs {
        if let Some(at) = ours.iter().zip(kernel).position(|(ours, kernel)| ours != kernel) {
            let [ours, kernel] = [ours, kernel].map(|frame| hex(frame, at));
            return format!("frame {index} at byte {at}:\n  ours   {ours}\n  kernel {kernel}");
        }
        if ours.len() != kernel.len() {
            return format!("frame {index}: ours {} bytes, kernel {}", ours.len(), kernel.len());
        }
    }
    format!("ours {} frames, the kernel {}", ours.len(), kernel.len())
}

fn hex(frame: &[u8], at: usize) -> String {
    let end = frame.len().min(at.max(100) + 20);
    frame[..end].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What we make of a packet.
pub(crate) fn split(packet: &[u8], options: &Options) -> Ours {
    let mut segments = Segments::new(packet, options)?;
    let mut out = vec![0; segments.max_len()];
    let mut frames = Vec::with_capacity(segments.len());
    let mut at_once = segments.clone();
    while let Some(len) = segments.write_next(&mut out)? {
        frames.push(out[..len].to_vec());
    }
    // What the kernel is held against holds for both ways to write.
    let mut buffers = vec![0xa5; at_once.max_len() * frames.len()];
    let mut count = 0;
    at_once.write_all(buffers.chunks_mut(out.len()), |buffer, len| {
        assert_eq!(buffer[..len], frames[count], "segment {count} of write_all");
        count += 1;
    })?;
    assert_eq!(count, frames.len(), "segments of write_all");
    Ok(frames)
}
