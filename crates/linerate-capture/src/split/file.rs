//! From one capture file into another.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use serde::Serialize;

use super::join::{Joiner, Joining};
use super::output::Output;
use super::record::Template;
use super::tally::{Joined, Tally};
use super::{Plan, Verdict, completed, link, options};
use crate::engine::{Cpu, Filters, description};
use crate::read::{Block, Blocks, Interface, Record, Resolution, Shape};
use crate::write::{Encoder, PacketOptions, Section, pcap, pcapng};
use crate::{Error, Format, Result};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Super-packets become frames.
    Split(Plan),
    /// Frames become super-packets.
    Join(Joining),
}

/// One file to make of another.
pub struct Job {
    /// The file to read.
    pub blocks: Blocks,
    /// The file to write.
    pub output: Output,
    /// Whether that is pcapng. Where it is what is read, everything but the packets that change is
    /// copied byte for byte.
    pub pcapng: bool,
    /// What is done.
    pub work: Work,
    /// Only packets that match are split or joined; `None` stands for all.
    pub filter: Option<String>,
    /// Checksums that a sender left to its network card are filled in, also in packets that stay whole.
    pub fix_checksums: bool,
    /// What a pcapng file made of a pcap file says about its origin.
    pub section: Section,
}

/// What was done; serialises to the command's JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Packets read.
    pub read: u64,
    /// Packets written.
    pub written: u64,
    /// Packets that did not get into the file.
    pub unwritten: u64,
    /// What was split.
    #[serde(flatten)]
    pub split: Tally,
    /// What was joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined: Option<Joined>,
    /// Seconds that it took.
    pub seconds: f64,
    /// The file written.
    pub file: PathBuf,
    /// Bytes in it.
    pub file_bytes: u64,
    /// Processor time of the process in seconds.
    pub cpu: Cpu,
}

/// How it ended.
#[derive(Debug)]
pub struct Outcome {
    /// The counts.
    pub report: Report,
    /// What ended it before the end of the file. What came before is in the output.
    pub failure: Option<Error>,
    /// The reader of the pipe went away.
    pub pipe_closed: bool,
}

/// How far it is, for other threads to see; packets that are held back count as made.
#[derive(Debug)]
pub struct Progress {
    read: AtomicU64,
    written: AtomicU64,
    consumed: Arc<AtomicU64>,
    size: Option<u64>,
}

impl Progress {
    /// For this job.
    pub fn of(job: &Job) -> Self {
        let (consumed, size) = (job.blocks.consumed(), job.blocks.size());
        Self { read: AtomicU64::new(0), written: AtomicU64::new(0), consumed, size }
    }

    /// Packets read.
    pub fn read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Packets made of them.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Bytes of the file that were read, and how many there are, where that is known.
    pub fn position(&self) -> (u64, Option<u64>) {
        (self.consumed.load(Relaxed), self.size)
    }
}

/// Does it, until the end of the file or until `stop`. What was read before trouble is in the output.
pub fn rewrite(job: Job, stop: &AtomicBool, progress: &Progress) -> Outcome {
    let start = Instant::now();
    let Job { mut blocks, output, pcapng, work, filter, fix_checksums, section } = job;
    let text = filter.as_deref().filter(|text| !text.trim().is_empty());
    let from_pcapng = blocks.format() == Format::Pcapng;
    let mut editor = Editor {
        output,
        form: match (from_pcapng, pcapng) {
            (false, true) => Form::ToPcapng,
            (true, false) => Form::ToPcap { header: None },
            _ => Form::Same,
        },
        plan: match work {
            Work::Split(plan) => Some(plan),
            Work::Join(_) => None,
        },
        joiner: match work {
            Work::Join(joining) => Some(Joiner::new(joining)),
            Work::Split(_) => None,
        },
        fix_checksums,
        section,
        tally: Tally::default(),
        scratch: Scratch::default(),
        made: 0,
    };
    let mut filters = Filters::new(text, LONGEST);
    let mut read = 0;
    let copied = editor.copy(&mut blocks, &mut filters, &mut read, stop, progress);
    let finished = editor.finish();
    let written = editor.output.packets();
    let joined = editor.joiner.as_ref().map(Joiner::tally);
    // Frames that were joined are one packet.
    let gone = joined.map_or(0, |joined| joined.frames - joined.super_packets);
    let report = Report {
        read,
        written,
        unwritten: editor.made - gone - written,
        split: editor.tally,
        joined,
        seconds: start.elapsed().as_secs_f64(),
        file: editor.output.path().to_owned(),
        file_bytes: editor.output.length(),
        cpu: Cpu::now(),
    };
    // A full disk explains more than the end of the input that it caused.
    let failure = finished.err().or(copied.err());
    let pipe_closed = matches!(&failure, Some(Error::Write { source, .. })
        if source.kind() == std::io::ErrorKind::BrokenPipe);
    let failure = failure.filter(|_| !pipe_closed);
    Outcome { report, failure, pipe_closed }
}

/// The snapshot length of a file whose packets were joined, at least: readers cut what is longer.
const LONGEST: u32 = 262_144;

/// What becomes of the records.
enum Form {
    /// They stay what they are.
    Same,
    ToPcapng,
    /// Precision and link type, once the first interface is known.
    ToPcap {
        header: Option<(bool, u16)>,
    },
}

#[derive(Default)]
struct Scratch {
    /// A record in the other format.
    converted: Vec<u8>,
    /// A record with its checksum.
    completed: Vec<u8>,
    /// A packet with its length.
    packet: Vec<u8>,
}

struct Editor {
    output: Output,
    form: Form,
    plan: Option<Plan>,
    joiner: Option<Joiner>,
    fix_checksums: bool,
    section: Section,
    tally: Tally,
    scratch: Scratch,
    /// Packets that were handed to the output.
    made: u64,
}

impl Editor {
    fn copy(
        &mut self,
        blocks: &mut Blocks,
        filters: &mut Filters<'_>,
        read: &mut u64,
        stop: &AtomicBool,
        progress: &Progress,
    ) -> Result<()> {
        let mut checked = false;
        while !stop.load(Relaxed) {
            // Whoever reads a pipe is not kept waiting by one who does not write into another.
            if blocks.size().is_none() && !blocks.is_ready() {
                self.output.flush()?;
            }
            let (block, interfaces) = match blocks.next() {
                Ok(Some(next)) => next,
                Ok(None) | Err(Error::Abandoned { .. }) => break,
                Err(error) => return Err(error),
            };
            match &block.record {
                None => self.describe(&block, interfaces)?,
                Some(record) => {
                    *read += 1;
                    progress.read.store(*read, Relaxed);
                    let interface = &interfaces[record.interface as usize];
                    let mut gathered = Vec::new();
                    let bytes = record.frame.contiguous(&mut gathered);
                    let filter = filters.of(interface.linktype)?;
                    checked = true;
                    let wanted = filter.is_none_or(|one| one.matches(bytes, record.frame.wire_len));
                    self.packet(&block, record, interface, wanted)?;
                    progress.written.store(self.made, Relaxed);
                }
            }
            if let Some(joiner) = &mut self.joiner {
                joiner.drain(&mut self.output)?;
            }
        }
        if !checked {
            // An expression with a mistake in it is refused also for an empty file.
            filters.of(link::ETHERNET)?;
        }
        if let Form::ToPcap { header: None } = self.form {
            self.pcap_header(&Interface { linktype: link::ETHERNET, ..Interface::default() })?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(joiner) = &mut self.joiner {
            joiner.flush();
            joiner.drain(&mut self.output)?;
        }
        self.output.flush()
    }

    /// What is no packet: copied, but for what is not true any more.
    fn describe(&mut self, block: &Block<'_>, interfaces: &[Interface]) -> Result<()> {
        match self.form {
            Form::ToPcap { .. } => return Ok(()),
            Form::ToPcapng => {
                let mut bytes = Vec::new();
                pcapng::section(&mut bytes, &self.section);
                for interface in interfaces {
                    let mut description = description(interface, None, u32::MAX);
                    description.snaplen = self.snaplen(interface.snaplen);
                    pcapng::interface(&mut bytes, &description);
                }
                return self.output.put(false, |out| out.extend_from_slice(&bytes));
            }
            Form::Same => {}
        }
        let mut bytes = block.bytes.to_vec();
        let mut put_word = |at: usize, change: &dyn Fn(u32) -> u32| {
            let Some(field) = bytes.get_mut(at..at + 4) else { return };
            let old: [u8; 4] = [field[0], field[1], field[2], field[3]];
            let new = match block.big_endian {
                true => change(u32::from_be_bytes(old)).to_be_bytes(),
                false => change(u32::from_le_bytes(old)).to_le_bytes(),
            };
            field.copy_from_slice(&new);
        };
        match block.shape {
            // The section gets another length; all ones leave it open.
            Shape::Section => [16, 20].into_iter().for_each(|at| put_word(at, &|_| u32::MAX)),
            Shape::Interface => put_word(12, &|old| self.snaplen(old)),
            Shape::PcapHeader => put_word(16, &|old| self.snaplen(old)),
            _ => {}
        }
        let record = Template {
            bytes: &bytes,
            shape: block.shape,
            big_endian: block.big_endian,
            captured: 0,
        };
        match &mut self.joiner {
            Some(joiner) => joiner.pass(&record, false),
            None => self.output.put(false, |out| out.extend_from_slice(record.bytes))?,
        }
        Ok(())
    }

    /// The snapshot length of an interface that had this one; 0 stands for none.
    fn snaplen(&self, before: u32) -> u32 {
        match before {
            1.. if self.joiner.is_some() => before.max(LONGEST),
            _ => before,
        }
    }

    fn pcap_header(&mut self, interface: &Interface) -> Result<()> {
        let nanoseconds = match interface.resolution {
            Resolution::Decimal(exponent) => exponent > 6,
            Resolution::Binary(_) => true,
        };
        self.form = Form::ToPcap { header: Some((nanoseconds, interface.linktype)) };
        let snaplen = match self.snaplen(interface.snaplen) {
            0 => LONGEST,
            snaplen => snaplen,
        };
        let linktype = interface.linktype;
        self.output.put(false, |out| pcap::header(out, nanoseconds, snaplen, linktype))
    }

    fn packet(
        &mut self,
        block: &Block<'_>,
        record: &Record<'_>,
        interface: &Interface,
        wanted: bool,
    ) -> Result<()> {
        if let Form::ToPcap { header: None } = self.form {
            self.pcap_header(interface)?;
        }
        let format = match self.form {
            Form::Same => None,
            Form::ToPcapng => Some(Format::Pcapng),
            Form::ToPcap { header } => {
                let (nanoseconds, linktype) = header.unwrap_or_default();
                if linktype != interface.linktype {
                    return Err(Error::LinkLayers);
                }
                Some(Format::Pcap { nanoseconds })
            }
        };
        // Its buffers are borrowed while the rest of `self` is changed.
        let mut scratch = std::mem::take(&mut self.scratch);
        let template = match format {
            None => Template {
                bytes: block.bytes,
                shape: block.shape,
                big_endian: block.big_endian,
                captured: record.frame.len(),
            },
            Some(format) => {
                let options = PacketOptions { direction: true, queue: false };
                let encoder = Encoder { format, snaplen: u32::MAX, options };
                scratch.converted.clear();
                encoder.encode(&mut scratch.converted, record);
                let pcap = format != Format::Pcapng;
                Template {
                    bytes: &scratch.converted,
                    shape: if pcap { Shape::Pcap } else { Shape::Enhanced },
                    big_endian: false,
                    captured: record.frame.len(),
                }
            }
        };
        let (completed, packet) = (&mut scratch.completed, &mut scratch.packet);
        let done = match (wanted, self.plan) {
            (false, _) => self.whole(&template),
            (true, Some(plan)) => {
                self.split(&plan, &template, record, interface, completed, packet)
            }
            (true, None) => {
                let template = self.complete(template, record, interface, completed);
                if let Some(joiner) = &mut self.joiner {
                    let time = record.frame.timestamp.unwrap_or_default().0;
                    let origin = (record.interface, interface.linktype);
                    joiner.push(&template, record.frame.wire_len, origin, time);
                    self.made += 1;
                }
                Ok(())
            }
        };
        self.scratch = scratch;
        done
    }

    /// A packet as it is.
    fn whole(&mut self, template: &Template<'_>) -> Result<()> {
        self.made += 1;
        match &mut self.joiner {
            Some(joiner) => joiner.pass(template, true),
            None => self.output.put(true, |out| out.extend_from_slice(template.bytes))?,
        }
        Ok(())
    }

    fn split(
        &mut self,
        plan: &Plan,
        template: &Template<'_>,
        record: &Record<'_>,
        interface: &Interface,
        completed: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let wire_len = record.frame.wire_len as usize;
        let packet = template.packet();
        let verdict = match link::packet(interface.linktype, packet) {
            Some((prefix, link)) => {
                let rest = wire_len.saturating_sub(prefix);
                (prefix, plan.judge(&packet[prefix..], link, rest, scratch))
            }
            None if wire_len > usize::from(plan.mtu) + LONGEST_LINK_HEADER => {
                (0, Verdict::Refused(super::Reason::LinkType))
            }
            None => (0, Verdict::Fits),
        };
        let (prefix, mut pieces) = match verdict {
            (prefix, Verdict::Pieces(pieces)) => (prefix, pieces),
            (_, verdict) => {
                if let Verdict::Refused(reason) = verdict {
                    self.tally.refused.add(reason);
                }
                let template = self.complete(*template, record, interface, completed);
                return self.whole(&template);
            }
        };
        self.tally.super_packets += 1;
        let mut first = true;
        while let Some(parts) = pieces.next_parts() {
            let all = [&packet[..prefix], parts.header, parts.payload];
            self.output.put(true, |out| {
                let start = out.len();
                template.put(out, &all, |out| {
                    options::of_piece(out, template.options(), template.big_endian, first);
                });
                if !first {
                    template.without_losses(out, start);
                }
            })?;
            self.tally.segments += 1;
            self.made += 1;
            first = false;
        }
        Ok(())
    }

    /// The record with the checksum that its packet lacks, if that is wanted and so.
    fn complete<'t>(
        &mut self,
        template: Template<'t>,
        record: &Record<'_>,
        interface: &Interface,
        out: &'t mut Vec<u8>,
    ) -> Template<'t> {
        let packet = template.packet();
        let whole = packet.len() as u64 >= u64::from(record.frame.wire_len);
        let Some((prefix, link)) =
            link::packet(interface.linktype, packet).filter(|_| self.fix_checksums && whole)
        else {
            return template;
        };
        let Some(mut pieces) = completed(&packet[prefix..], link) else { return template };
        let Some(parts) = pieces.next_parts() else { return template };
        self.tally.checksums += 1;
        // Lengths stay, and with them everything around the headers.
        out.clear();
        out.extend_from_slice(template.bytes);
        let start = template.data().start + prefix;
        out[start..start + parts.header.len()].copy_from_slice(parts.header);
        Template { bytes: out, ..template }
    }
}

/// A packet of an unknown link type counts as too long beyond the MTU and this.
const LONGEST_LINK_HEADER: usize = 64;
