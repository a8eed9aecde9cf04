//! Captures, their flow records as Parquet, and what tcpdump finds in them.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use datafusion::arrow::array::*;
use datafusion::arrow::datatypes::{DataType, Field as Column, Schema, TimeUnit};
use linerate_flow::schema::{FIELDS, Field, Kind, Value};
use linerate_flow::{EndReason, FlowKey, FlowRecord};
use linerate_pcapfile::{
    BlockReader, Compression, Encoder, Format, InterfaceDescription, PacketLocation, Reader,
    Record, SectionHeader, Writer,
};
use linerate_wire::frame::{Frame, Timestamp};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression as Codec;
use parquet::file::properties::WriterProperties;

pub const START: u64 = 1_700_000_000_000_000_000;

/// The program with these arguments.
pub fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_linerate-flows")).args(arguments).output().unwrap()
}

/// Its standard output, if it succeeds.
pub fn answer(arguments: &[&str]) -> String {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// A frame: Ethernet, perhaps a tag, IP, and a transport header with these ports.
pub fn frame(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    ports: (u16, u16),
    vlan: Option<u16>,
    len: usize,
) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if let Some(vlan) = vlan {
        bytes.extend([0x81, 0]);
        bytes.extend(vlan.to_be_bytes());
    }
    let mut payload = vec![0; 20 + len];
    payload[..2].copy_from_slice(&ports.0.to_be_bytes());
    payload[2..4].copy_from_slice(&ports.1.to_be_bytes());
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            bytes.extend([8, 0, 0x45, 0]);
            bytes.extend((20 + payload.len() as u16).to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend((payload.len() as u16).to_be_bytes());
            bytes.extend([protocol, 64]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
        }
        _ => unreachable!("one version"),
    }
    bytes.extend(payload);
    bytes
}

/// Numbers that look random (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % limit
    }
}

pub fn v4(host: u64) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + host as u32).into()
}

pub fn v6(host: u64) -> IpAddr {
    Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(host)).into()
}

/// Frames of many conversations, a millisecond apart. `odd` adds what the fields of a flow do not say: tags, ARP,
/// fragments.
pub fn traffic(count: u64, odd: bool) -> Vec<Vec<u8>> {
    let mut random = Random(count);
    (0..count)
        .map(|_| {
            let host: fn(u64) -> IpAddr = if random.below(4) == 0 { v6 } else { v4 };
            let (a, b) = (host(random.below(40)), host(40 + random.below(10)));
            let ports = (1024 + random.below(4) as u16, [53, 80, 443][random.below(3) as usize]);
            let ends =
                if random.below(2) == 0 { (a, b, ports) } else { (b, a, (ports.1, ports.0)) };
            let protocol = if ports.1 == 53 { 17 } else { 6 };
            let vlan = (odd && random.below(10) == 0).then_some(7);
            let mut frame =
                frame(ends.0, ends.1, protocol, ends.2, vlan, random.below(400) as usize);
            match random.below(20) {
                0 if odd => frame[12..14].copy_from_slice(&[8, 6]),
                // Not the first fragment: what follows is no port.
                1 if odd && frame[12] == 8 && frame[13] == 0 => {
                    frame[20..22].copy_from_slice(&[0, 5])
                }
                _ => {}
            }
            frame
        })
        .collect()
}

/// Writes frames to a file as a capture does.
pub fn write(path: &Path, frames: &[Vec<u8>], start: u64) {
    let encoder =
        Encoder { format: Format::Pcapng, snaplen: u32::MAX, options: Default::default() };
    let mut writer = Writer::create(path, Compression::None, &AtomicBool::new(false)).unwrap();
    let section =
        SectionHeader { application: Some("linerate 0.1.0".into()), ..Default::default() };
    let interface =
        InterfaceDescription { name: Some("eth1".into()), linktype: 1, ..Default::default() };
    writer
        .write_record(false, |out| encoder.encode_file_header(out, &section, &[interface]))
        .unwrap();
    for (n, bytes) in frames.iter().enumerate() {
        let mut frame = Frame::new(bytes);
        frame.wire_len = bytes.len() as u32;
        frame.timestamp = Some(Timestamp(start + n as u64 * 1_000_000));
        let record = Record { frame, interface: 0, comment: None };
        writer.write_record(true, |out| encoder.encode(out, &record)).unwrap();
    }
    writer.flush().unwrap();
}

/// The flows of files that follow each other, with the location of their packets.
pub fn meter(files: &[PathBuf]) -> Vec<FlowRecord> {
    let mut flows: BTreeMap<String, FlowRecord> = BTreeMap::new();
    for path in files {
        let name: Arc<str> = path.to_str().unwrap().into();
        let mut reader = BlockReader::open(path).unwrap();
        let mut at = 0;
        while let Some((block, _)) = reader.next().unwrap() {
            let (first, end) = (at, at + block.bytes.len() as u64);
            at = end;
            let Some(record) = block.record else { continue };
            let Some((key, octets)) = key(record.frame.head()) else { continue };
            let time = record.frame.timestamp.unwrap().0;
            let reversed = FlowKey {
                source: key.destination,
                destination: key.source,
                source_port: key.destination_port,
                destination_port: key.source_port,
                ..key
            };
            let text = |key: &FlowKey| format!("{key:?}");
            let back = flows.contains_key(&text(&reversed));
            let flow =
                flows.entry(text(if back { &reversed } else { &key })).or_insert_with(|| {
                    FlowRecord {
                        start: time,
                        key,
                        end_reason: Some(EndReason::ForcedEnd),
                        packets: Some(PacketLocation { file: Arc::clone(&name), first, end: None }),
                        ..FlowRecord::default()
                    }
                });
            flow.end = time;
            let direction = if back { &mut flow.reverse } else { &mut flow.forward };
            direction.packets += 1;
            direction.octets += octets;
            let location = flow.packets.as_mut().unwrap();
            location.end = (location.file == name).then_some(end);
        }
    }
    flows.into_values().collect()
}

/// What a meter finds in a frame: the key of its flow, and its octets.
pub fn key(frame: &[u8]) -> Option<(FlowKey, u64)> {
    let (vlan, packet) = match frame[12..14] {
        [0x81, 0] => (Some(u16::from_be_bytes([frame[14], frame[15]])), &frame[16..]),
        _ => (None, &frame[12..]),
    };
    let octets = packet.len() as u64 - 2;
    let (source, destination, protocol, payload): (IpAddr, IpAddr, _, _) = match packet[..2] {
        [8, 0] => {
            let address =
                |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
            let fragment = packet[9] != 0;
            (
                address(14).into(),
                address(18).into(),
                packet[11],
                (!fragment).then_some(&packet[22..]),
            )
        }
        [0x86, 0xdd] => {
            let address =
                |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap());
            (address(10).into(), address(26).into(), packet[8], Some(&packet[42..]))
        }
        _ => return None,
    };
    let port =
        |at: usize| payload.map(|payload| u16::from_be_bytes([payload[at], payload[at + 1]]));
    let (source_port, destination_port) = (port(0), port(2));
    Some((
        FlowKey {
            source,
            destination,
            source_port,
            destination_port,
            protocol,
            vlan,
            ..FlowKey::default()
        },
        octets,
    ))
}

/// Writes records as Parquet, by the one table of fields.
pub fn parquet(path: &Path, records: &[FlowRecord]) {
    let mut columns: Vec<(Column, ArrayRef)> = Vec::new();
    let is_there = |field: &&Field| {
        field.group.is_none() || records.iter().any(|one| (field.value)(one).is_some())
    };
    for field in FIELDS.iter().filter(is_there) {
        let numbers = || {
            records.iter().map(|record| match (field.value)(record) {
                Some(Value::Unsigned(value)) => Some(value),
                None => None,
                Some(other) => panic!("{}: {other:?}", field.name),
            })
        };
        let array: ArrayRef = match field.kind {
            Kind::Unsigned8 => {
                Arc::new(numbers().map(|n| n.map(|n| n as u8)).collect::<UInt8Array>())
            }
            Kind::Unsigned16 => {
                Arc::new(numbers().map(|n| n.map(|n| n as u16)).collect::<UInt16Array>())
            }
            Kind::Unsigned32 | Kind::Ipv4Address => {
                Arc::new(numbers().map(|n| n.map(|n| n as u32)).collect::<UInt32Array>())
            }
            Kind::Unsigned64 => Arc::new(numbers().collect::<UInt64Array>()),
            Kind::DateTimeNanoseconds => Arc::new(
                numbers()
                    .map(|n| n.map(|n| n as i64))
                    .collect::<TimestampNanosecondArray>()
                    .with_timezone("UTC"),
            ),
            Kind::Float64 => {
                Arc::new(Float64Array::from_iter(records.iter().map(|record| match (field.value)(
                    record,
                ) {
                    Some(Value::Float(value)) => Some(value),
                    _ => None,
                })))
            }
            Kind::MacAddress | Kind::String => Arc::new(StringArray::from_iter(
                records.iter().map(|record| (field.value)(record).map(|value| value.to_string())),
            )),
            Kind::Ipv6Address => {
                let values = records.iter().map(|record| match (field.value)(record) {
                    Some(Value::Ipv6(address)) => Some(address.octets()),
                    _ => None,
                });
                Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 16).unwrap())
            }
        };
        let kind = match field.kind {
            Kind::DateTimeNanoseconds => {
                DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
            }
            _ => array.data_type().clone(),
        };
        columns.push((Column::new(field.name, kind, field.nullable), array));
    }
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties =
        WriterProperties::builder().set_compression(Codec::ZSTD(Default::default())).build();
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties))
            .unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Time and bytes of each packet of a file.
pub fn packets(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut reader = Reader::open(path).unwrap();
    let mut packets = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        packets.push((record.frame.timestamp.unwrap().0, record.frame.head().to_vec()));
    }
    packets
}

/// What tcpdump's filter leaves of files.
pub fn tcpdump(files: &[PathBuf], filter: &str, folder: &Path) -> Vec<(u64, Vec<u8>)> {
    let out = folder.join("tcpdump.pcap");
    files
        .iter()
        .flat_map(|file| {
            let mut command = Command::new("tcpdump");
            command
                .args(["--time-stamp-precision=nano", "-r"])
                .arg(file)
                .arg("-w")
                .arg(&out)
                .arg(filter);
            let output = command.output().expect("tcpdump is installed");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            packets(&out)
        })
        .collect()
}
