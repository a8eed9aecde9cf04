//! [`Set`]: the elements of a set or map of nftables.

use std::io;

use super::evaluate::Scope;
use super::nft_rule::expressions;
use super::nftables::{HEADER, Request, big_endian, data_value, dump_of, text};
use super::register::{Bit, between, equal, vary};
use super::sessions::Match;
use crate::netlink::{attribute, attributes, put_attr};

// Attributes of sets and elements.
pub(super) const SET_TABLE: u16 = 1;
pub(super) const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_KEY_BYTES: u16 = 5;
const SET_DATA_BYTES: u16 = 7;
const SET_DESCRIPTION: u16 = 9;
const SET_OBJECT: u16 = 15;
const SET_EXPRESSION: u16 = 17;
const SET_EXPRESSIONS: u16 = 18;
const DESCRIPTION_CONCAT: u16 = 2;
const FIELD_BYTES: u16 = 1;
const LIST_ELEMENTS: u16 = 3;
const KEY: u16 = 1;
const ELEMENT_DATA: u16 = 2;
const ELEMENT_FLAGS: u16 = 3;
const ELEMENT_EXPRESSION: u16 = 7;
const KEY_END: u16 = 10;
const ELEMENT_EXPRESSIONS: u16 = 11;

/// `NFT_SET_*` and `NFT_SET_ELEM_*`.
const INTERVAL: u32 = 4;
const TIMEOUT: u32 = 0x10;
const EVAL: u32 = 0x20;
const INTERVAL_END: u32 = 1;
const CATCHALL: u32 = 2;

/// Of more elements it is not looked at which sessions they are.
const MAX_ELEMENTS: usize = 4096;

/// A set or a map.
#[derive(Debug, Default)]
pub(super) struct Set {
    pub key_bytes: usize,
    pub data_bytes: usize,
    /// The kind of objects in it.
    pub object: Option<u32>,
    /// Packets change it, or time does.
    pub varies: bool,
    /// What its elements do with each packet that is looked up: the names of expressions.
    expressions: Vec<Vec<u8>>,
    /// Bytes of each part of the key.
    fields: Vec<usize>,
    is_interval: bool,
    elements: Vec<Element>,
    /// The data for keys that it does not have.
    others: Option<Option<Vec<u8>>>,
}

#[derive(Debug)]
struct Element {
    from: Vec<u8>,
    /// It ends here; included.
    to: Option<Vec<u8>>,
    data: Option<Vec<u8>>,
}

/// Key, whether it is an end, and data.
type Bound = (Vec<u8>, bool, Option<Vec<u8>>);

impl Set {
    /// Reads a set and its elements.
    pub(super) fn load(body: &[u8]) -> io::Result<Self> {
        let own = body.get(HEADER..).unwrap_or_default();
        let field = |kind| attribute(own, kind).and_then(big_endian);
        let flags = field(SET_FLAGS).unwrap_or(0);
        let concat =
            attribute(own, SET_DESCRIPTION).and_then(|of| attribute(of, DESCRIPTION_CONCAT));
        let fields = attributes(concat.unwrap_or_default());
        let bytes = |value: &[u8]| attribute(value, FIELD_BYTES).and_then(big_endian);
        let single = attributes(own).filter(|(kind, _)| *kind == SET_EXPRESSION);
        let mut set = Self {
            key_bytes: field(SET_KEY_BYTES).unwrap_or(0) as usize,
            data_bytes: field(SET_DATA_BYTES).unwrap_or(0) as usize,
            object: field(SET_OBJECT),
            varies: flags & (TIMEOUT | EVAL) != 0,
            fields: fields
                .filter_map(|(_, value)| bytes(value))
                .map(|bytes| bytes as usize)
                .collect(),
            is_interval: flags & INTERVAL != 0,
            ..Self::default()
        };
        if set.fields.is_empty() {
            set.fields.push(set.key_bytes);
        }
        single.for_each(|(_, one)| set.add_expression(one));
        set.add_expressions(attribute(own, SET_EXPRESSIONS));
        if set.varies {
            return Ok(set);
        }
        let mut request = body[..HEADER].to_vec();
        for kind in [SET_TABLE, SET_NAME] {
            put_attr(&mut request, kind, attribute(own, kind).unwrap_or_default());
        }
        let mut bounds = Vec::new();
        dump_of(Request::Elements, &request, |body| {
            let list = attribute(body.get(HEADER..).unwrap_or_default(), LIST_ELEMENTS);
            attributes(list.unwrap_or_default()).for_each(|(_, one)| set.add(one, &mut bounds));
        })?;
        set.add_intervals(bounds);
        Ok(set)
    }

    fn add_expression(&mut self, one: &[u8]) {
        self.expressions.push(text(attribute(one, 1).unwrap_or_default()).to_vec());
    }

    fn add_expressions(&mut self, list: Option<&[u8]>) {
        for (name, _) in expressions(list.unwrap_or_default()) {
            if !self.expressions.iter().any(|known| known == name) {
                self.expressions.push(name.to_vec());
            }
        }
    }

    /// Adds an element, or a bound of an interval.
    fn add(&mut self, element: &[u8], bounds: &mut Vec<Bound>) {
        if let Some(one) = attribute(element, ELEMENT_EXPRESSION) {
            self.add_expression(one);
        }
        self.add_expressions(attribute(element, ELEMENT_EXPRESSIONS));
        let flags = attribute(element, ELEMENT_FLAGS).and_then(big_endian).unwrap_or(0);
        let data = attribute(element, ELEMENT_DATA).map(<[u8]>::to_vec);
        if flags & CATCHALL != 0 {
            self.others = Some(data);
            return;
        }
        let value = |kind| attribute(element, kind).and_then(data_value).map(<[u8]>::to_vec);
        let Some(from) = value(KEY) else { return };
        match value(KEY_END) {
            None if self.is_interval && self.fields.len() == 1 => {
                bounds.push((from, flags & INTERVAL_END != 0, data));
            }
            to => self.elements.push(Element { from, to, data }),
        }
    }

    /// A list of bounds has the first key of an interval, and the first that is not in it.
    fn add_intervals(&mut self, mut bounds: Vec<Bound>) {
        bounds.sort_by(|one, other| (&one.0, !one.1).cmp(&(&other.0, !other.1)));
        let mut bounds = bounds.into_iter().peekable();
        while let Some((from, is_end, data)) = bounds.next() {
            if is_end {
                continue;
            }
            let to = match bounds.peek() {
                Some((next, ..)) => before(next),
                None => vec![0xff; from.len()],
            };
            self.elements.push(Element { from, to: Some(to), data });
        }
    }

    /// Whether a look-up does something to the packet or counts it.
    pub(super) fn acts(&self, strict: bool) -> bool {
        self.expressions.iter().any(|name| strict || name != b"counter")
    }

    /// Whether the key is in it.
    pub(super) fn contains(&self, key: &[Bit], scope: &Scope<'_>) -> Match {
        match self.others {
            Some(_) if !self.varies => Match::always(),
            _ => self.known(key, scope),
        }
    }

    fn known(&self, key: &[Bit], scope: &Scope<'_>) -> Match {
        if self.varies || self.elements.len() > MAX_ELEMENTS && vary(key) {
            return Match::varying();
        }
        if self.elements.len() > MAX_ELEMENTS {
            return Match::unknown();
        }
        let found = self.elements.iter().map(|element| self.is_element(element, key, scope));
        found.fold(Match::NEVER, Match::or)
    }

    /// For which sessions it gives which data.
    pub(super) fn values(&self, key: &[Bit], scope: &Scope<'_>) -> Vec<(Match, Option<&[u8]>)> {
        if self.elements.len() > MAX_ELEMENTS {
            // Each of them may be for any session.
            let of = || if self.varies || vary(key) { Match::varying() } else { Match::unknown() };
            let mut data: Vec<_> = self.elements.iter().map(|one| one.data.as_deref()).collect();
            data.extend(self.others.iter().map(Option::as_deref));
            data.sort_unstable();
            data.dedup();
            return data.into_iter().map(|data| (of(), data)).collect();
        }
        let of = |element| {
            if self.varies { Match::varying() } else { self.is_element(element, key, scope) }
        };
        let mut values: Vec<_> =
            self.elements.iter().map(|element| (of(element), element.data.as_deref())).collect();
        if let Some(data) = &self.others {
            values.push((self.known(key, scope).not(), data.as_deref()));
        }
        if self.varies {
            // What it has is not known.
            values.push((Match::varying(), None));
        }
        values
    }

    fn is_element(&self, element: &Element, key: &[Bit], scope: &Scope<'_>) -> Match {
        let mut found = Match::always();
        let mut at = 0;
        for bytes in &self.fields {
            let part = |value: &'_ [u8]| value.get(at..at + bytes).unwrap_or_default().to_vec();
            let bits = key.get(8 * at..8 * (at + bytes)).unwrap_or_default();
            let from = part(&element.from);
            found = found.and(&match &element.to {
                Some(to) if part(to) != from => between(bits, &from, &part(to), scope),
                _ => equal(bits, &from, scope),
            });
            at += bytes.next_multiple_of(4);
        }
        found
    }
}

/// The key before this one.
fn before(key: &[u8]) -> Vec<u8> {
    let mut before = key.to_vec();
    for byte in before.iter_mut().rev() {
        *byte = byte.wrapping_sub(1);
        if *byte != 0xff {
            break;
        }
    }
    before
}
