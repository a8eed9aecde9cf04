//! A TCP bulk transfer is captured with its super-packets, and `linerate segment` splits the file.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use linerate_pcapfile::Reader;
use linerate_wire::{ethernet, layers};

use crate::experiments::capture::measurement::settle;
use crate::measure::process::Running;
use crate::peers::capture::Peer;
use crate::programs;
use crate::topology::pair::Pair;
use crate::traffic::exchange::Exchange;

/// What a capture file has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) frames: u64,
    /// Bytes of TCP payload.
    pub(super) payload: u64,
    /// Bytes of the longest frame.
    pub(super) longest: usize,
}

impl Contents {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let mut reader = Reader::open(file)?;
        let mut contents = Self::default();
        while let Some(record) = reader.next()? {
            let frame = record.frame.head();
            ensure!(frame.len() == record.frame.wire_len as usize, "a frame is cut");
            contents.frames += 1;
            contents.longest = contents.longest.max(frame.len());
            let segment = layers::parse(frame)?.tcp(frame);
            contents.payload += segment.map_or(0, |segment| segment.payload().len() as u64);
        }
        Ok(contents)
    }
}

/// The file before and after.
pub(super) struct Split {
    pub(super) before: Contents,
    pub(super) after: Contents,
    pub(super) seconds: f64,
}

/// Bytes of the longest frame that a veth has room for: its MTU is 1500.
const LONGEST: usize = ethernet::HEADER_LEN + 1500;

impl Split {
    /// Captures into `folder` at the receiving host, which lets super-packets through.
    pub(super) fn of_bulk_transfer(folder: &Path) -> Result<Self> {
        let pair = Pair::build()?;
        pair.add_receiver_address()?;
        pair.cable.a.set_offloads(true)?;
        pair.cable.b.set_offloads(true)?;
        let (captured, split) = (folder.join("super.pcapng"), folder.join("split.pcapng"));
        let peer = Peer::capture("packet").named("Linerate").writing(captured.clone());
        let mut capture = Running::start(&peer.name, &mut peer.command(&pair)?)?;
        pair.wait_until_listening(&mut capture)?;
        Exchange::Bulk.run(&pair, folder)?;
        settle(&pair, &peer, &capture)?;
        capture.check()?;
        let report = peer.peer_report(capture.stop(Duration::from_secs(30))?)?;
        ensure!(report.lost() == 0, "the capture lost {} frames", report.lost());
        let mut command =
            programs::linerate(&pair.receiver, pair.cores.consumer, ["segment", "--json", "-q"])?;
        command.arg(&captured).arg("-w").arg(&split);
        let done =
            Running::start("linerate segment", &mut command)?.wait(Duration::from_secs(60))?;
        let said = done.success()?.json()?;
        Ok(Self {
            before: Contents::read(&captured)?,
            after: Contents::read(&split)?,
            seconds: said["seconds"]
                .as_f64()
                .context("no time in the report of linerate segment")?,
        })
    }

    /// There were super-packets, there are none, and every byte of the stream is there.
    pub(super) fn is_right(&self) -> bool {
        let Self { before, after, .. } = self;
        before.longest > LONGEST
            && after.longest <= LONGEST
            && after.frames > before.frames
            && after.payload == before.payload
    }

    /// What became of the file.
    pub(super) fn words(&self) -> String {
        let Self { before, after, seconds, .. } = self;
        format!(
            "{} frames of at most {} bytes, {} of {} bytes of the stream, {:.1} million frames a second",
            after.frames,
            after.longest,
            after.payload,
            before.payload,
            after.frames as f64 / seconds / 1e6
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_split_or_has_lost_bytes_is_not_right() {
        let before = Contents { frames: 10, payload: 500_000, longest: 65_226 };
        let right = Contents { frames: 350, payload: 500_000, longest: LONGEST };
        let is_right = |after| Split { before, after, seconds: 1.0 }.is_right();
        assert!(is_right(right));
        assert!(!is_right(before));
        assert!(!is_right(Contents { payload: 499_999, ..right }));
        assert!(!is_right(Contents { longest: LONGEST + 1, ..right }));
        assert!(!Split { before: right, after: right, seconds: 1.0 }.is_right());
    }
}
