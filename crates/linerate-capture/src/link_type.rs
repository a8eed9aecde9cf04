//! Link types by name, as libpcap has them (`-L`, `-y`).

use pcap::Linktype;

/// Link type of what a Cisco CMTS puts into Ethernet frames (LINKTYPE_DOCSIS).
pub const DOCSIS: u16 = 143;

/// LINKTYPE numbers whose numbers at run time (DLT) differ.
const DIFFERENT: [(u16, i32); 5] = [(100, 11), (101, 12), (102, 15), (103, 16), (106, 19)];

/// The number by which libpcap knows a link type at run time; files say raw IP differently.
pub(crate) fn dlt(link_type: u16) -> i32 {
    let found = DIFFERENT.iter().find(|(linktype, _)| *linktype == link_type);
    found.map_or(i32::from(link_type), |(_, dlt)| *dlt)
}

/// The number in the LINKTYPE registry of the link type of this name, such as `EN10MB`.
pub fn named(name: &str) -> Option<u16> {
    let Linktype(number) = Linktype::from_name(name).ok()?;
    u16::try_from(number).ok().map(registered)
}

/// The number in the LINKTYPE registry of what may be a number at run time: some programs write such files.
pub(crate) fn registered(number: u16) -> u16 {
    let found = DIFFERENT.iter().find(|(_, dlt)| *dlt == i32::from(number));
    found.map_or(number, |(linktype, _)| *linktype)
}

/// The name of a link type, and what it is.
pub fn name(link_type: u16) -> (String, String) {
    let number = Linktype(dlt(link_type));
    let name = number.get_name().unwrap_or_else(|_| link_type.to_string());
    (name, number.get_description().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_libpcaps() {
        for (linktype, expected) in [(1, "EN10MB"), (101, "RAW"), (276, "LINUX_SLL2")] {
            assert_eq!(name(linktype).0, expected);
            assert_eq!(named(expected), Some(linktype));
        }
        assert_eq!(named("en10mb"), Some(1));
        assert_eq!(named("nothing"), None);
    }
}
