//! Synthetic capture files: as large as an experiment needs, and the same in every run.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use linerate_pcapfile::{
    Encoder, Format, InterfaceDescription, PacketOptions, Record, SectionHeader,
};
use linerate_ring::{Frame, Timestamp};
use linerate_wire::ethernet::{self, Address};
use linerate_wire::ip::{self, Protocol};
use linerate_wire::{tcp, udp};

/// Pseudo-random numbers, the same in each run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`, which is at most 2^32.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // The generator of Numerical Recipes; any other would do.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 32) * limit) >> 32
    }
}

/// An address and a port.
type End = (Ipv4Addr, u16);

/// A packet to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) from: End,
    pub(crate) to: End,
    /// TCP (a segment with ACK only), or UDP.
    pub(crate) tcp: bool,
    /// Bytes of the frame.
    pub(crate) size: usize,
}

/// Ethernet, IPv4 and TCP: the shortest frame.
const HEADERS: usize = 14 + 20 + 20;

/// Writes packets into pcap files.
pub(crate) struct Recorder {
    encoder: Encoder,
    file: BufWriter<File>,
    path: PathBuf,
    /// Bytes in the file.
    len: u64,
    frame: Vec<u8>,
    bytes: Vec<u8>,
}

impl Recorder {
    /// Creates a file with timestamps in microseconds, as most programs write them.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        let mut recorder = Self {
            encoder: Encoder {
                format: Format::Pcap { nanoseconds: false },
                snaplen: 65_535,
                options: PacketOptions::default(),
            },
            file: BufWriter::with_capacity(1 << 20, File::create(path).with_context(cannot)?),
            path: path.to_owned(),
            len: 0,
            frame: Vec::new(),
            bytes: Vec::new(),
        };
        let interface = InterfaceDescription { linktype: 1, ..InterfaceDescription::default() };
        let header = SectionHeader::default();
        recorder.encoder.encode_file_header(&mut recorder.bytes, &header, &[interface]);
        recorder.flush()?;
        Ok(recorder)
    }

    /// Writes a packet with this timestamp, in microseconds since 1970.
    pub(crate) fn write(&mut self, microseconds: u64, packet: &Packet) -> Result<()> {
        emit(packet, &mut self.frame)?;
        let mut frame = Frame::new(&self.frame);
        frame.timestamp = Some(Timestamp(microseconds * 1000));
        self.encoder.encode(&mut self.bytes, &Record { frame, interface: 0, comment: None });
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        let cannot = || format!("cannot write {}", self.path.display());
        self.file.write_all(&self.bytes).with_context(cannot)?;
        self.len += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }

    /// Completes the file, and returns its size in bytes.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.file.flush().with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(self.len)
    }
}

fn emit(packet: &Packet, frame: &mut Vec<u8>) -> Result<()> {
    let Packet { from, to, tcp, size } = *packet;
    frame.clear();
    frame.resize(size.max(HEADERS), 0);
    let ethernet = ethernet::Repr {
        destination: Address([2, 0, 0, 0, 0, 2]),
        source: Address([2, 0, 0, 0, 0, 1]),
        ether_type: ethernet::EtherType::IPV4,
    };
    ethernet.emit(frame)?;
    let protocol = if tcp { Protocol::TCP } else { Protocol::UDP };
    let network = ip::Repr::new(from.0.into(), to.0.into(), protocol, frame.len() - 34)?;
    network.emit(&mut frame[14..])?;
    let (source_port, destination_port) = (from.1, to.1);
    if tcp {
        let header = tcp::Repr {
            source_port,
            destination_port,
            sequence: 1,
            acknowledgement: 1,
            flags: tcp::Flags::ACK,
            window: u16::MAX,
            urgent: 0,
        };
        header.emit(&mut frame[34..], network.pseudo())?;
    } else {
        udp::Repr { source_port, destination_port }.emit(&mut frame[34..], network.pseudo())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use linerate_pcapfile::Reader;
    use linerate_wire::flow::Key;

    use super::*;

    #[test]
    fn a_recorded_file_has_its_packets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcap");
        let mut recorder = Recorder::create(&path).unwrap();
        let ends = ((Ipv4Addr::new(10, 0, 0, 1), 1024), (Ipv4Addr::new(10, 0, 0, 2), 443));
        let packet = |tcp, size| Packet { from: ends.0, to: ends.1, tcp, size };
        recorder.write(1_700_000_000_000_001, &packet(true, 1514)).unwrap();
        recorder.write(1_700_000_000_000_002, &packet(false, 60)).unwrap();
        let len = recorder.finish().unwrap();
        assert_eq!(len, std::fs::metadata(&path).unwrap().len());
        let mut reader = Reader::open(&path).unwrap();
        for (time, tcp, size) in [(1, true, 1514), (2, false, 60)] {
            let record = reader.next().unwrap().unwrap();
            assert_eq!(record.frame.timestamp.unwrap().0, 1_700_000_000_000_000_000 + time * 1000);
            let frame = record.frame.head();
            assert_eq!(frame.len(), size);
            let key = Key::of(frame).unwrap();
            assert_eq!((key.protocol == Protocol::TCP, key.source_port), (tcp, 1024), "{key:?}");
        }
        assert!(reader.next().unwrap().is_none());
    }

    #[test]
    fn random_numbers_are_below_their_limit_and_the_same_again() {
        let some = |seed| {
            let mut random = Random::new(seed);
            (0..1000).map(|_| random.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(some(1), some(1));
        assert_ne!(some(1), some(2));
        assert!((0..10).all(|number| some(1).contains(&number)) && some(1).iter().all(|n| *n < 10));
    }
}
