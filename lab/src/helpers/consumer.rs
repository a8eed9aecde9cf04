//! A program that analyses what it captures: the consumer of Trivelloni 2018, section 6.3.3, over Linerate's own
//! rings.
//!
//! It reads every byte of every frame once (a hash), and works longer on every n-th frame, as
//! an analysis does on a frame of interest.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use linerate_ring::region::Pages;
use linerate_ring::{Drained, Frame, Ring, TimestampSource, packet, tee, xdp};
use serde::Serialize;

use crate::interrupt;

/// Options of the consumer.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The interface.
    #[arg(short, long)]
    interface: String,
    /// `xdp`, `packet` or `tee`.
    #[arg(long)]
    source: String,
    /// The pages of the buffer, where the source offers a choice (`xdp`).
    #[arg(long, default_value = "auto")]
    pages: Pages,
    /// Thousands of multiplications for each frame of interest.
    #[arg(long, default_value_t = 0)]
    delay: u64,
    /// Every n-th frame is of interest.
    #[arg(long, default_value_t = 1)]
    every: u64,
}

/// What it saw; printed as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Frames analysed.
    pub(super) captured: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// Frames lost, by cause.
    pub(super) dropped: BTreeMap<&'static str, u64>,
    /// All hashes together, as proof that the work was done.
    pub(super) hash: u64,
    /// How its XDP program is attached; nothing without one.
    pub(super) mode: Option<String>,
    /// What the buffer is made of.
    pub(super) pages: String,
}

/// Reads frames until a signal asks for the end and nothing is left.
pub(super) fn run(options: &Options) -> Result<Report> {
    let Options { interface, source, pages, .. } = options;
    let usual_pages = "the kernel's own, mapped page by page".to_owned();
    let cannot = || format!("cannot read from {interface}");
    match source.as_str() {
        "xdp" => {
            let (pages, timestamps) = (*pages, TimestampSource::Reader);
            let ring_options = linerate_ring::Options { pages, timestamps, ..Default::default() };
            let mut ring =
                xdp::Sockets::open(interface, &ring_options, None).with_context(cannot)?;
            let mode = format!("{} XDP, AF_XDP sockets", ring.attach_mode());
            let pages = ring.umem.region().actual_pages().to_string();
            let work = analyse(&mut ring, options)?;
            let counts = ring.statistics()?;
            let dropped = BTreeMap::from([
                ("fill ring empty", counts.fill_empty),
                ("receive ring full", counts.ring_full),
                ("too long", counts.too_long),
                ("no socket", counts.no_socket),
            ]);
            Ok(work.report(dropped, Some(mode), pages))
        }
        "packet" => {
            let ring_options =
                packet::Options { promiscuous: true, ..packet::Options::new(interface) };
            let mut ring = packet::Ring::open(ring_options).with_context(cannot)?;
            let work = analyse(&mut ring, options)?;
            let counts = ring.statistics()?;
            let dropped = BTreeMap::from([("ring full", counts.drops), ("unread", counts.unread)]);
            Ok(work.report(dropped, None, usual_pages))
        }
        "tee" => {
            let ring_options =
                linerate_ring::Options { action: tee::Action::Copy, ..Default::default() };
            let mut ring = tee::Tee::open(interface, &ring_options, None).with_context(cannot)?;
            let mode = format!("{} XDP", ring.program().mode());
            let work = analyse(&mut ring, options)?;
            let counts = ring.statistics()?;
            let dropped =
                BTreeMap::from([("ring buffer full", counts.full), ("faults", counts.faults)]);
            Ok(work.report(dropped, Some(mode), usual_pages))
        }
        other => bail!("unknown source {other:?}; choose xdp, packet or tee"),
    }
}

/// Works on every frame until a signal asks for the end.
fn analyse(ring: &mut impl Ring, options: &Options) -> Result<Work> {
    let mut work = Work { delay: options.delay, every: options.every.max(1), ..Work::default() };
    loop {
        let ending = interrupt::happened();
        let mut take = |frame: &Frame<'_>| {
            work.take(frame);
            true
        };
        while ring.drain(&mut take) != Drained::Nothing {}
        // What was in the ring when the signal came is still read.
        let flush_delay = Duration::from_millis(if ending { 60 } else { 100 });
        if !ring.wait(flush_delay)? && ending {
            return Ok(work);
        }
    }
}

/// The work on each frame.
#[derive(Debug, Default)]
struct Work {
    delay: u64,
    every: u64,
    frames: u64,
    bytes: u64,
    hash: u64,
}

impl Work {
    #[inline]
    fn take(&mut self, frame: &Frame<'_>) {
        if self.delay > 0 && self.frames.is_multiple_of(self.every) {
            multiply(self.delay * 1000);
        }
        self.frames += 1;
        self.bytes += frame.len() as u64;
        self.hash = hash(self.hash, frame.head());
        for piece in frame.tail() {
            self.hash = hash(self.hash, piece);
        }
    }

    fn report(
        &self,
        dropped: BTreeMap<&'static str, u64>,
        mode: Option<String>,
        pages: String,
    ) -> Report {
        let Self { frames: captured, bytes, hash, .. } = *self;
        Report { captured, bytes, dropped, hash, mode, pages }
    }
}

/// Reads every byte, eight at a time; each multiplication waits for the one before it.
#[inline]
fn hash(start: u64, bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let step = |hash: u64, word: u64| (hash ^ word).wrapping_mul(ODD).rotate_left(29);
    let mut words = bytes.chunks_exact(8);
    let mut hash = start;
    for word in words.by_ref() {
        hash = step(hash, u64::from_le_bytes(word.try_into().unwrap_or_default()));
    }
    words.remainder().iter().fold(hash, |hash, byte| step(hash, u64::from(*byte)))
}

/// Dependent multiplications, the unit of delay.
fn multiply(times: u64) {
    let mut product = black_box(3u64);
    for _ in 0..times {
        product = black_box(product.wrapping_mul(0x5851_F42D_4C95_7F2D));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_every_byte() {
        let frame: Vec<u8> = (0..61).collect();
        let whole = hash(0, &frame);
        for at in 0..frame.len() {
            let mut other = frame.clone();
            other[at] ^= 1;
            assert_ne!(hash(0, &other), whole, "byte {at}");
        }
        assert_ne!(hash(0, &frame[..60]), whole);
    }

    #[test]
    fn frames_are_counted_and_hashed_once() {
        let mut work = Work { every: 2, delay: 1, ..Work::default() };
        work.take(&Frame::new(b"abc"));
        work.take(&Frame::new(b"defgh"));
        assert_eq!((work.frames, work.bytes), (2, 8));
        assert_eq!(work.hash, hash(hash(0, b"abc"), b"defgh"));
    }
}
