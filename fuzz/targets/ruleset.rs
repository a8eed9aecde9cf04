//! Rules of packet filters out of any bytes: netlink messages of nftables, and a table of x_tables.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_net::ruleset::{Action, Options, Ruleset, TableDump};

/// Bytes of `struct ipt_getinfo`.
const INFO: usize = 84;

fuzz_target!(|data: &[u8]| {
    let Some((&[flags, length @ ..], rest)) = data.split_first_chunk::<3>() else { return };
    let (messages, table) = rest.split_at(rest.len().min(u16::from_le_bytes(length).into()));
    let table = table.split_at_checked(INFO).map(|(info, entries)| TableDump {
        is_ipv6: flags & 1 != 0,
        name: if flags & 2 != 0 { "raw" } else { "filter" },
        info,
        entries,
    });
    let options = Options { strict: flags & 4 != 0, after_packets: u32::from(flags >> 3) };
    let interfaces = [(1, "lan".to_owned()), (2, "wan".to_owned())];
    let ruleset = Ruleset::parse(messages, table, &interfaces, &options);
    for mut program in ruleset.programs {
        for (at, entry) in program.entries.iter().enumerate() {
            match entry.action {
                Action::Keep(rule) => assert!(!program.rules[rule].is_empty()),
                Action::Skip(to) => assert!(at < to && to <= program.entries.len()),
            }
        }
        program.limit(16);
        assert!(program.entries.len() <= 16);
    }
});
