//! Sizes and offsets, against the types that the compiler put in the programs' BTF.

use std::fmt::Write;
use std::mem::{offset_of, size_of};

use libbpf_rs::btf::types::{Array, Composite, DataSec, Int, MemberAttr, Struct, Var};
use libbpf_rs::btf::{Btf, BtfType, HasSize, ReferencesType, TypeId};

use super::*;

/// Bytes of a C structure, and where its members begin; those of unnamed unions and structures count as
/// its own.
fn members(btf: &Btf<'_>, name: &str) -> (usize, Vec<(String, usize)>) {
    fn walk(
        btf: &Btf<'_>,
        of: &libbpf_rs::btf::types::Composite<'_>,
        base: usize,
        into: &mut Vec<(String, usize)>,
    ) {
        for member in of.iter() {
            let MemberAttr::Normal { offset } = member.attr else { panic!("a bit field") };
            let at = base + offset as usize / 8;
            match member.name {
                Some(name) => into.push((name.to_string_lossy().into_owned(), at)),
                None => {
                    let inner = btf.type_by_id(member.ty).expect("a structure or union");
                    walk(btf, &inner, at, into);
                }
            }
        }
    }
    let found: Struct<'_> = btf.type_by_name(name).unwrap_or_else(|| panic!("no struct {name}"));
    let mut into = Vec::new();
    let composite = btf.type_by_id(found.type_id()).unwrap();
    walk(btf, &composite, 0, &mut into);
    (found.size(), into)
}

macro_rules! same {
    ($btf:expr, $type:ty, $c:literal, $($field:ident),+ $(; $($other:ident),+)?) => {
        let (size, members) = members(&$btf, $c);
        assert_eq!(size_of::<$type>(), size, $c);
        let here = [$((stringify!($field), offset_of!($type, $field))),+];
        let ignored: &[&str] = &[$($(stringify!($other)),+)?];
        let there: Vec<_> = members.iter().filter(|(name, _)| !ignored.contains(&name.as_str())).collect();
        assert_eq!(there.len(), here.len(), "{}: {there:?}", $c);
        for ((name, at), (c_name, c_at)) in here.iter().zip(there) {
            assert_eq!((*name, *at), (c_name.as_str(), *c_at), $c);
        }
    };
}

#[test]
fn structures_are_those_of_the_programs() {
    let object = concat!(env!("OUT_DIR"), "/accelerator.bpf.o");
    let btf = Btf::from_path(object).unwrap();
    same! { btf, Session, "session",
        in_source, in_destination, ports, kind, dscp, hop, generation, version, deadline, owner,
        route_generation, packets, bytes, source, destination, source_port, destination_port,
        network_delta, transport_delta; addresses, source6, destination6
    }
    same! { btf, Hop, "hop",
        ifindex, tag, dst_mac, mtu, destination_mac, source_mac, dscp, out_tags, flags, port, out_tag,
        out_ifindex, mark, priority, zone, state, unused2
    }
    same!(btf, Addresses, "addresses", source, destination);
    same!(btf, Counters, "counters", packets, bytes);
    same!(btf, Cold, "cold", remote, created, used);
    same!(btf, Interface, "interface", port, mac, flags, tag);
    same! { btf, Control, "control",
        generation, denied, heartbeat, heartbeat_timeout, revalidate_after, admission, rules, route_generation,
        route_generation_marked, verify_checksums, reserved,
        seeds, abi, statistics, multi_buffer, taken, room, reserved2
    }
    same!(btf, Heartbeat, "heartbeat", jiffies);
    same!(btf, Denied4Key, "denied4_key", prefix_len, address);
    same!(btf, Denied6Key, "denied6_key", prefix_len, address);
    same! { btf, DeniedSessionKey, "denied_session_key",
        source, destination, source_port, destination_port, protocol, family, unused
    }
    same!(btf, Denied, "denied", expires, dropped);
    same! { btf, RuleEntry, "rule_entry",
        source, destination, input, output, mark, source_port, destination_port, dscp, seen, unused, skip, rule
    }
    same!(
        btf,
        RuleList,
        "rule_list",
        count,
        unused,
        source_out,
        destination_out,
        source,
        destination,
        source_port,
        destination_port,
        entries
    );
    same!(btf, KeptRule, "kept_rule", packets, name);
}

/// Maps, and the types of their keys and values, in words.
struct Description<'b> {
    btf: &'b Btf<'b>,
    text: String,
}

impl Description<'_> {
    fn add(&mut self, id: TypeId) {
        let of = self.btf.type_by_id::<BtfType<'_>>(id).expect("a type").skip_mods_and_typedefs();
        let id = of.type_id();
        let _ = write!(self.text, "{:?} ", of.kind());
        if let Some(int) = self.btf.type_by_id::<Int<'_>>(id) {
            let _ = write!(self.text, "{}", int.size());
        } else if let Some(array) = self.btf.type_by_id::<Array<'_>>(id) {
            let _ = write!(self.text, "{} of ", array.capacity());
            self.add(array.ty());
        } else if let Some(of) = self.btf.type_by_id::<Composite<'_>>(id) {
            let _ = write!(self.text, "{} {{", of.size());
            for member in of.iter() {
                let name = member.name.unwrap_or_default().to_string_lossy();
                let _ = write!(self.text, " {name} {:?} ", member.attr);
                self.add(member.ty);
            }
            self.text.push('}');
        } else if let Some(pointed) = of.next_type() {
            self.add(pointed.type_id());
        }
    }

    fn add_section(&mut self, name: &str) {
        let section: DataSec<'_> = self.btf.type_by_name(name).expect("a section");
        let mut lines = Vec::new();
        for variable in section.iter() {
            let variable: Var<'_> = self.btf.type_by_id(variable.ty).expect("a variable");
            let name = variable.name().unwrap_or_default().to_string_lossy().into_owned();
            let before = std::mem::take(&mut self.text);
            self.add(variable.referenced_type_id());
            lines.push(format!("{name}: {}\n", std::mem::replace(&mut self.text, before)));
        }
        lines.sort();
        self.text.extend(lines);
    }
}

#[test]
fn each_layout_has_a_number_of_its_own() {
    let object = concat!(env!("OUT_DIR"), "/accelerator.bpf.o");
    let btf = Btf::from_path(object).unwrap();
    let mut description = Description { btf: &btf, text: String::new() };
    description.add_section(".maps");
    description.add_section(".data.control");
    description.add_section(".data.hops");
    let text = description.text;
    for word in ["table:", "generation", "upper_devices:", "control:", "hops:"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    let hash = fnv(text.as_bytes());
    assert_eq!(
        LAYOUTS.last(),
        Some(&hash),
        "the layout of the maps has changed: sessions of running programs cannot be kept. Add {hash:#018x} to \
         the end of LAYOUTS, and change nothing before it.\n{text}"
    );
}
