//! IPFIX messages (RFC 7011 section 3): templates, data records and the exporter's own statistics.

use std::collections::HashMap;
use std::num::NonZeroU32;

use super::Statistics;
use crate::schema::{Element, FIELDS, Field, Kind, Value};
use crate::{BiflowDirection, Details, Direction, DirectionDetails, FlowRecord};

/// The version of IPFIX.
const VERSION: u16 = 10;
const MESSAGE_HEADER_LEN: usize = 16;
const SET_HEADER_LEN: usize = 4;
const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;
/// The Metering Process Statistics Options Template: what was sent (RFC 7011 section 4.1).
const METERING_STATISTICS_TEMPLATE: u16 = 256;
/// The Exporting Process Reliability Statistics Options Template: what was not sent (RFC 7011 section 4.3).
const RELIABILITY_STATISTICS_TEMPLATE: u16 = 257;
/// Templates of flows have this number and higher ones. Those below may be known from versions that counted up from 258.
const FIRST_TEMPLATE: u16 = 1024;
/// With this start of the hash, no two of the usual combinations of fields have the same number.
const TEMPLATE_ID_BASIS: u32 = 0xd517_c6c4;
/// The same with fields on request, for each set of them.
const GROUPS_BASIS: u32 = 0x8eb1_6ccd;
/// Seconds from 1900, where NTP begins, to 1970.
const NTP_EPOCH: u64 = 2_208_988_800;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
const NANOS_PER_MILLISECOND: u64 = 1_000_000;
/// The shortest message that any record fits into with its template.
pub(super) const MIN_MESSAGE_LEN: usize = 1024;

/// flowStartMilliseconds and flowEndMilliseconds: nfcapd and nfacctd know no other times of 64 bits.
const MILLISECONDS: [u16; 2] = [152, 153];

/// Fields of an options template: how many of them are the scope, then element and length of each.
type OptionsTemplate = (u16, &'static [(u16, u16)]);

/// observationDomainId; exportedMessageTotalCount, exportedFlowRecordTotalCount, exportedOctetTotalCount.
const METERING_STATISTICS_FIELDS: OptionsTemplate = (1, &[(149, 4), (41, 8), (42, 8), (40, 8)]);
/// exportingProcessId; notSentFlowTotalCount, notSentPacketTotalCount, notSentOctetTotalCount.
const RELIABILITY_STATISTICS_FIELDS: OptionsTemplate =
    (1, &[(144, 4), (166, 8), (167, 8), (168, 8)]);

/// A complete message.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    /// Flow records in it; their packets and octets of both directions.
    pub(super) flows: u64,
    pub(super) packets: u64,
    pub(super) octets: u64,
}

/// Turns records into the messages of one transport session.
///
/// Each combination of fields has a template, so no unknown value is sent. Its number is derived from the fields. So a
/// collector that has missed a template after a restart of the exporter still has the right one.
///
/// The statistics are messages of their own, of Observation Domain 0, as RFC 7011 section 3.1 advises. Collectors such as
/// nfcapd do not count options records, and would find a gap in the sequence numbers of flows after each of them.
pub(super) struct Encoder {
    flows: MessageBuilder,
    statistics: MessageBuilder,
    /// Templates by the fields that they have.
    templates: HashMap<u64, u16>,
    scratch: Vec<u8>,
}

impl Encoder {
    pub(super) fn new(observation_domain_id: NonZeroU32, max_len: usize) -> Self {
        Self {
            flows: MessageBuilder::new(observation_domain_id.get(), max_len),
            statistics: MessageBuilder::new(0, max_len),
            templates: HashMap::new(),
            scratch: Vec::new(),
        }
    }

    /// Appends a record. Returns the message before it, if that is full.
    pub(super) fn record(&mut self, record: &FlowRecord, now: u64) -> Option<Message> {
        let present =
            fields().enumerate().filter(|(_, (field, _))| (field.value)(record).is_some());
        let mask = present.fold(0_u64, |mask, (bit, _)| mask | 1 << bit);
        self.scratch.clear();
        for (field, _) in fields() {
            if let Some(value) = (field.value)(record) {
                encode_value(&mut self.scratch, field.kind, value);
            }
        }
        for time in [record.start, record.end] {
            self.scratch.extend_from_slice(&(time / NANOS_PER_MILLISECOND).to_be_bytes());
        }
        let template = self.templates.get(&mask).copied();
        let template_len = if template.is_none() { template_set_len(&specifiers(mask)) } else { 0 };
        let len = template_len + SET_HEADER_LEN + self.scratch.len();
        let full = self.flows.make_room(len, now);
        let id = template.unwrap_or_else(|| self.define(mask));
        self.flows.data_record(id, &self.scratch);
        let message = &mut self.flows.message;
        message.flows += 1;
        for direction in [&record.forward, &record.reverse] {
            message.packets += direction.packets;
            message.octets += direction.octets;
        }
        full
    }

    /// Appends the templates that were defined so far, for collectors that have missed them.
    pub(super) fn refresh(&mut self, now: u64) -> Vec<Message> {
        let mut full = Vec::new();
        let mut known: Vec<_> = self.templates.iter().map(|(mask, id)| (*id, *mask)).collect();
        known.sort_unstable();
        for (id, mask) in known {
            let specifiers = specifiers(mask);
            full.extend(self.flows.make_room(template_set_len(&specifiers), now));
            self.flows.template(id, mask, &specifiers);
        }
        full
    }

    /// The message of records so far, if there is something in it.
    pub(super) fn finish(&mut self, now: u64) -> Option<Message> {
        self.flows.finish(now)
    }

    /// A message with the options templates and their data.
    pub(super) fn statistics(&mut self, statistics: &Statistics, now: u64) -> Option<Message> {
        let sent = [statistics.messages, statistics.flows, statistics.octets];
        let not_sent =
            [statistics.not_sent_flows, statistics.not_sent_packets, statistics.not_sent_octets];
        let scopes = [self.flows.observation_domain_id, std::process::id()];
        let options = [
            (METERING_STATISTICS_TEMPLATE, METERING_STATISTICS_FIELDS, sent),
            (RELIABILITY_STATISTICS_TEMPLATE, RELIABILITY_STATISTICS_FIELDS, not_sent),
        ];
        for (id, fields, _) in options {
            self.statistics.options_template(id, fields);
        }
        for ((id, _, values), scope) in options.into_iter().zip(scopes) {
            self.scratch.clear();
            self.scratch.extend_from_slice(&scope.to_be_bytes());
            values.iter().for_each(|value| self.scratch.extend_from_slice(&value.to_be_bytes()));
            self.statistics.data_record(id, &self.scratch);
        }
        self.statistics.finish(now)
    }

    /// Defines the template of these fields. Few combinations of fields occur.
    fn define(&mut self, mask: u64) -> u16 {
        let specifiers = specifiers(mask);
        let mut id = template_id(&specifiers, basis(mask));
        // A test shows that the usual combinations have different numbers.
        while self.templates.values().any(|other| *other == id) {
            id = id.checked_add(1).unwrap_or(FIRST_TEMPLATE);
        }
        self.templates.insert(mask, id);
        self.flows.template(id, mask, &specifiers);
        id
    }
}

/// The messages of one observation domain, one after the other.
struct MessageBuilder {
    max_len: usize,
    observation_domain_id: u32,
    /// Data records of this session and observation domain so far, modulo 2^32.
    sequence: u32,
    message: Message,
    /// Data records in the message.
    data_records: u32,
    /// The set that is open: its number and where it begins.
    set: Option<(u16, usize)>,
}

impl MessageBuilder {
    fn new(observation_domain_id: u32, max_len: usize) -> Self {
        let max_len = max_len.clamp(MIN_MESSAGE_LEN, usize::from(u16::MAX));
        let message = Message::default();
        let mut builder = Self {
            max_len,
            observation_domain_id,
            sequence: 0,
            message,
            data_records: 0,
            set: None,
        };
        builder.start();
        builder
    }

    fn start(&mut self) {
        self.message = Message { bytes: vec![0; MESSAGE_HEADER_LEN], ..Message::default() };
        (self.data_records, self.set) = (0, None);
    }

    /// Finishes the message if it has no room for this many more octets.
    fn make_room(&mut self, octets: usize, now: u64) -> Option<Message> {
        if self.message.bytes.len() + octets <= self.max_len { None } else { self.finish(now) }
    }

    /// The message so far, if there is something in it.
    fn finish(&mut self, now: u64) -> Option<Message> {
        if self.message.bytes.len() == MESSAGE_HEADER_LEN {
            return None;
        }
        self.close();
        let length = self.message.bytes.len();
        let header = header(length, now, self.sequence, self.observation_domain_id);
        self.message.bytes[..MESSAGE_HEADER_LEN].copy_from_slice(&header);
        self.sequence = self.sequence.wrapping_add(self.data_records);
        let message = std::mem::take(&mut self.message);
        self.start();
        Some(message)
    }

    /// Opens a set, unless it is open.
    fn open(&mut self, id: u16) {
        if self.set.is_some_and(|(open, _)| open == id) {
            return;
        }
        self.close();
        self.set = Some((id, self.message.bytes.len()));
        put(&mut self.message.bytes, [id, 0]);
    }

    fn close(&mut self) {
        if let Some((_, at)) = self.set.take() {
            let length = (self.message.bytes.len() - at) as u16;
            self.message.bytes[at + 2..at + 4].copy_from_slice(&length.to_be_bytes());
        }
    }

    fn data_record(&mut self, template: u16, record: &[u8]) {
        self.open(template);
        self.message.bytes.extend_from_slice(record);
        self.data_records += 1;
    }

    /// The template with these field specifiers.
    fn template(&mut self, id: u16, mask: u64, specifiers: &[u8]) {
        self.open(TEMPLATE_SET);
        let count = mask.count_ones() as u16 + MILLISECONDS.len() as u16;
        put(&mut self.message.bytes, [id, count]);
        self.message.bytes.extend_from_slice(specifiers);
    }

    fn options_template(&mut self, id: u16, (scope_count, fields): OptionsTemplate) {
        self.open(OPTIONS_TEMPLATE_SET);
        let out = &mut self.message.bytes;
        put(out, [id, fields.len() as u16, scope_count]);
        for (element, length) in fields {
            put(out, [*element, *length]);
        }
    }
}

fn header(length: usize, now: u64, sequence: u32, domain: u32) -> [u8; MESSAGE_HEADER_LEN] {
    let mut header = [0; MESSAGE_HEADER_LEN];
    header[..2].copy_from_slice(&VERSION.to_be_bytes());
    header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    header[4..8].copy_from_slice(&((now / NANOS_PER_SECOND) as u32).to_be_bytes());
    header[8..12].copy_from_slice(&sequence.to_be_bytes());
    header[12..].copy_from_slice(&domain.to_be_bytes());
    header
}

/// A message without sets, of the observation domain of statistics.
pub(super) fn empty_message() -> [u8; MESSAGE_HEADER_LEN] {
    header(MESSAGE_HEADER_LEN, super::now(), 0, 0)
}

/// The fields that are information elements.
fn fields() -> impl Iterator<Item = (&'static Field, Element)> {
    FIELDS.iter().filter_map(|field| Some((field, field.element?)))
}

/// The field specifiers of a template (RFC 7011 section 3.2).
fn specifiers(mask: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for (_, (field, element)) in fields().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1) {
        let enterprise_bit = u16::from(element.enterprise != 0) << 15;
        put(&mut out, [element.id | enterprise_bit, field.kind.ipfix_len()]);
        if element.enterprise != 0 {
            out.extend_from_slice(&element.enterprise.to_be_bytes());
        }
    }
    MILLISECONDS.iter().for_each(|element| put(&mut out, [*element, 8]));
    out
}

/// The start of the hash for the template of these fields.
fn basis(mask: u64) -> u32 {
    let has_group =
        |(bit, (field, _)): (usize, (&Field, _))| field.group.is_some() && mask >> bit & 1 == 1;
    if fields().enumerate().any(has_group) { GROUPS_BASIS } else { TEMPLATE_ID_BASIS }
}

/// The number of the template with these field specifiers: an FNV-1a hash of them. It must never change.
fn template_id(specifiers: &[u8], basis: u32) -> u16 {
    let hash = specifiers
        .iter()
        .fold(basis, |hash, octet| (hash ^ u32::from(*octet)).wrapping_mul(0x0100_0193));
    FIRST_TEMPLATE + (hash % u32::from(u16::MAX - FIRST_TEMPLATE)) as u16
}

/// Octets of a template set with one template.
fn template_set_len(specifiers: &[u8]) -> usize {
    SET_HEADER_LEN + 4 + specifiers.len()
}

fn put<const N: usize>(out: &mut Vec<u8>, fields: [u16; N]) {
    fields.iter().for_each(|field| out.extend_from_slice(&field.to_be_bytes()));
}

fn encode_value(out: &mut Vec<u8>, kind: Kind, value: Value<'_>) {
    match (kind, value) {
        (Kind::DateTimeNanoseconds, Value::Unsigned(nanos)) => {
            let seconds = nanos / NANOS_PER_SECOND + NTP_EPOCH;
            let fraction = ((nanos % NANOS_PER_SECOND) << 32) / NANOS_PER_SECOND;
            out.extend_from_slice(&(seconds as u32).to_be_bytes());
            out.extend_from_slice(&(fraction as u32).to_be_bytes());
        }
        (_, Value::Unsigned(value)) => {
            let length = usize::from(kind.ipfix_len());
            out.extend_from_slice(&value.to_be_bytes()[8 - length..]);
        }
        (_, Value::Float(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (_, Value::Mac(address)) => out.extend_from_slice(&address.0),
        (_, Value::Ipv6(address)) => out.extend_from_slice(&address.octets()),
        (_, Value::String(text)) => {
            // The names of interfaces, which have at most 15 octets: one octet is enough for the length.
            let text = &text.as_bytes()[..text.len().min(254)];
            out.push(text.len() as u8);
            out.extend_from_slice(text);
        }
    }
}

/// A biflow as one record for each direction, for collectors that do not know RFC 5103.
pub(super) fn directions(record: &FlowRecord) -> [Option<FlowRecord>; 2] {
    let details = Details { reverse: DirectionDetails::default(), ..record.details.clone() };
    let forward = FlowRecord {
        reverse: Direction::default(),
        reverse_start: None,
        details,
        ..record.clone()
    };
    // An event, and a record whose first packets came from the initiator, have a forward direction.
    let reverse = (record.reverse.packets > 0).then(|| {
        let mut key = record.key;
        (key.source, key.destination) = (key.destination, key.source);
        (key.source_port, key.destination_port) = (key.destination_port, key.source_port);
        FlowRecord {
            start: record.reverse_start.unwrap_or(record.start),
            key,
            ingress_interface: record.egress_interface.or(record.ingress_interface),
            egress_interface: record.egress_interface.and(record.ingress_interface),
            interface_name: record
                .interface_name
                .clone()
                .filter(|_| record.egress_interface.is_none()),
            forward: record.reverse,
            reverse: Direction::default(),
            reverse_start: None,
            direction: BiflowDirection::Arbitrary,
            translation: None,
            details: Details {
                macs: record.details.macs.map(|(source, destination)| (destination, source)),
                forward: record.details.reverse,
                reverse: DirectionDetails::default(),
                ..record.details.clone()
            },
            ..record.clone()
        }
    });
    let has_forward = record.forward.packets > 0 || reverse.is_none();
    [has_forward.then_some(forward), reverse]
}
