//! Attributes of messages (`struct nlattr`), read in place and appended to a buffer.

use netlink_packet_core::{NLA_F_NESTED, NLA_TYPE_MASK, NlasIterator};

/// The attributes of a buffer with their types, up to the first that is cut.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(|attribute| {
        let attribute = attribute.ok()?;
        let start = attribute.into_inner();
        let length = u16::from_ne_bytes(bytes_at(start, 0)?) as usize;
        let kind = u16::from_ne_bytes(bytes_at(start, 2)?);
        Some((kind & NLA_TYPE_MASK, start.get(4..length)?))
    })
}

/// The attribute of this type.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(is, value)| (is == kind).then_some(value))
}

/// The bytes of a number at offset `at`.
pub fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// A 32-bit number in host order at the start of an attribute.
pub fn attr_u32(value: &[u8]) -> Option<u32> {
    bytes_at(value, 0).map(u32::from_ne_bytes)
}

/// Zero-terminated text. What is no UTF-8, as the name of an interface may be, is escaped: `eth\xff`.
pub fn attr_str(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    let text = &value[..end];
    str::from_utf8(text).map_or_else(|_| text.escape_ascii().to_string(), str::to_owned)
}

/// Appends an attribute.
pub fn put_attr(buffer: &mut Vec<u8>, kind: u16, value: &[u8]) {
    buffer.extend(((value.len() + 4) as u16).to_ne_bytes());
    buffer.extend(kind.to_ne_bytes());
    buffer.extend(value);
    buffer.resize(buffer.len().next_multiple_of(4), 0);
}

/// Appends an attribute with zero-terminated text.
pub(crate) fn put_attr_str(buffer: &mut Vec<u8>, kind: u16, value: &str) {
    let value: Vec<u8> = value.bytes().chain([0]).collect();
    put_attr(buffer, kind, &value);
}

/// Appends a nested attribute.
pub fn put_nested(buffer: &mut Vec<u8>, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    fill(&mut inner);
    put_attr(buffer, kind | NLA_F_NESTED, &inner);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_are_read_back_as_written() {
        let mut bytes = Vec::new();
        put_attr_str(&mut bytes, 7, "abcde");
        put_nested(&mut bytes, 9, |inner| put_attr(inner, 1, &5u32.to_ne_bytes()));
        assert_eq!(attributes(&bytes).map(|(kind, _)| kind).collect::<Vec<_>>(), [7, 9]);
        assert_eq!(attr_str(attribute(&bytes, 7).unwrap()), "abcde");
        let inner = attribute(&bytes, 9).unwrap();
        assert_eq!(attribute(inner, 1).and_then(attr_u32), Some(5));
        assert_eq!(attribute(&bytes, 8), None);
    }

    #[test]
    fn a_cut_attribute_ends_the_walk() {
        assert_eq!(attributes(&[12, 0, 1, 0, 5]).count(), 0);
        assert_eq!(attributes(&[2, 0, 1, 0]).count(), 0);
        assert_eq!(attributes(&[4]).count(), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(attributes(&bytes).count() <= bytes.len());
        }
    }
}
