//! [`Set`]: the elements of a set or map of nftables.

use super::evaluate::Scope;
use super::nft_message::Attributes;
use super::register::{Bit, between, equal, vary};
use super::sessions::Match;

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
    /// Of intervals.
    bounds: Vec<Bound>,
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
    /// A set without its elements.
    pub(super) fn new(own: Attributes<'_>) -> Self {
        let bytes = |kind| own.number(kind).unwrap_or(0) as usize;
        let flags = own.number(SET_FLAGS).unwrap_or(0);
        let fields = own.nested(SET_DESCRIPTION).nested(DESCRIPTION_CONCAT);
        let fields = fields.each().filter_map(|(_, one)| one.number(FIELD_BYTES));
        let mut set = Self {
            key_bytes: bytes(SET_KEY_BYTES),
            data_bytes: bytes(SET_DATA_BYTES),
            object: own.number(SET_OBJECT),
            varies: flags & (TIMEOUT | EVAL) != 0,
            fields: fields.map(|bytes| bytes as usize).collect(),
            is_interval: flags & INTERVAL != 0,
            ..Self::default()
        };
        if set.fields.is_empty() {
            set.fields.push(set.key_bytes);
        }
        set.add_expressions(own, SET_EXPRESSION, SET_EXPRESSIONS);
        set
    }

    /// Adds the one expression and those of the list.
    fn add_expressions(&mut self, own: Attributes<'_>, one: u16, list: u16) {
        let one = own.get(one).map(|one| Attributes::from(one).expression());
        // Nobody knows what an expression without a name does.
        let one = one.map(|one| one.unwrap_or_default());
        for (name, _) in one.into_iter().chain(own.nested(list).expressions()) {
            if !self.expressions.iter().any(|known| known == name) {
                self.expressions.push(name.to_vec());
            }
        }
    }

    /// Adds those of a message.
    pub(super) fn add_elements(&mut self, list: Attributes<'_>) {
        list.nested(LIST_ELEMENTS).each().for_each(|(_, one)| self.add(one));
    }

    /// Adds an element, or a bound of an interval.
    fn add(&mut self, element: Attributes<'_>) {
        self.add_expressions(element, ELEMENT_EXPRESSION, ELEMENT_EXPRESSIONS);
        let flags = element.number(ELEMENT_FLAGS).unwrap_or(0);
        let data = element.get(ELEMENT_DATA).map(<[u8]>::to_vec);
        if flags & CATCHALL != 0 {
            self.others = Some(data);
            return;
        }
        let Some(from) = element.value(KEY).map(<[u8]>::to_vec) else { return };
        match element.value(KEY_END).map(<[u8]>::to_vec) {
            None if self.is_interval && self.fields.len() == 1 => {
                self.bounds.push((from, flags & INTERVAL_END != 0, data));
            }
            to => self.elements.push(Element { from, to, data }),
        }
    }

    /// A list of bounds has the first key of an interval, and the first that is not in it.
    pub(super) fn add_intervals(&mut self) {
        let mut bounds = std::mem::take(&mut self.bounds);
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
