//! Which routes lead through an interface. A router may have a million of them: the kernel is asked
//! for those of one interface, and only until the answer is known.

use std::io;
use std::ops::ControlFlow::{self, Break, Continue};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;

/// The kernel's number of the table that holds ordinary routes (`RT_TABLE_MAIN`).
const MAIN_TABLE: u8 = 254;

/// That of the table of the host's own addresses (`RT_TABLE_LOCAL`).
const LOCAL_TABLE: u8 = 255;

/// What stands for all tables in a request (`RT_TABLE_UNSPEC`).
const ALL_TABLES: u8 = 0;

/// Answers after which "the default route is none of them" is believed: it has the shortest prefix, and
/// both families dump the table in the order of prefixes.
const ENOUGH: u32 = 64;

/// Whether routes that somebody set lead through the interface `index`, and then whether the default
/// route is one of them.
pub(super) fn through(index: u32) -> io::Result<Option<bool>> {
    let mut found = Found::default();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        ask(family, MAIN_TABLE, index, &mut found)?;
    }
    if found.default.is_none() {
        // Tables of policy routing. Any route is an answer: they are not in the order of prefixes.
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            ask(family, ALL_TABLES, index, &mut found)?;
        }
    }
    Ok(found.default)
}

#[derive(Default)]
struct Found {
    default: Option<bool>,
    answers: u32,
}

fn ask(family: AddressFamily, table: u8, index: u32, found: &mut Found) -> io::Result<()> {
    let mut request = RouteMessage::default();
    request.header.address_family = family;
    request.header.table = table;
    request.attributes.push(RouteAttribute::Oif(index));
    let request = RouteNetlinkMessage::GetRoute(request);
    let first = found.answers;
    let asked = super::ask(request, NLM_F_REQUEST | NLM_F_DUMP, |answer| {
        let RouteNetlinkMessage::NewRoute(route) = answer else { return Continue(()) };
        found.answers += 1;
        found.note(&route, table, index);
        match found.default {
            Some(_) if table == ALL_TABLES => Break(()),
            _ => found.is_enough(first),
        }
    });
    match asked {
        // A namespace without this family has no such table.
        Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => Ok(()),
        result => result,
    }
}

impl Found {
    /// Routes that an address brings along are no use of their own.
    fn note(&mut self, route: &RouteMessage, table: u8, index: u32) {
        // Kernels before 4.20 do not filter.
        let wanted = match table {
            ALL_TABLES => route.header.table != LOCAL_TABLE,
            table => route.header.table == table,
        };
        let elsewhere = !leads_through(route, index) || !wanted;
        if elsewhere || route.header.protocol == RouteProtocol::Kernel {
            return;
        }
        let default = route.header.destination_prefix_length == 0;
        self.default = Some(default || self.default == Some(true));
    }

    fn is_enough(&self, first: u32) -> ControlFlow<()> {
        match self.default {
            Some(true) => Break(()),
            Some(false) if self.answers - first >= ENOUGH => Break(()),
            _ => Continue(()),
        }
    }
}

fn leads_through(route: &RouteMessage, index: u32) -> bool {
    route.attributes.iter().any(|attribute| match attribute {
        RouteAttribute::Oif(out) => *out == index,
        RouteAttribute::MultiPath(hops) => hops.iter().any(|hop| hop.interface_index == index),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip};

    use super::*;

    #[test]
    fn only_the_routes_of_the_interface_are_read_and_not_all_of_them() {
        root_or_skip!("only_the_routes_of_the_interface_are_read_and_not_all_of_them");
        let near = Namespace::create("croute-near").unwrap();
        let far = Namespace::create("croute-far").unwrap();
        let busy = Veth::create(&near, "busy", &far, "busy", VethOptions::default()).unwrap();
        let idle = Veth::create(&near, "idle", &far, "idle", VethOptions::default()).unwrap();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        busy.a.add_address(address("10.9.0.1"), 24).unwrap();
        idle.a.add_address(address("10.9.1.1"), 24).unwrap();
        for number in 0..1000_u32 {
            let network = Ipv4Addr::from(0x0b00_0000 + (number << 8));
            near.add_route(network.into(), 24, address("10.9.0.2")).unwrap();
        }
        let asked = |index| {
            let mut found = Found::default();
            ask(AddressFamily::Inet, MAIN_TABLE, index, &mut found).unwrap();
            (found.default, found.answers)
        };
        let (default, answers) = near.run(|| asked(busy.a.index())).unwrap();
        assert_eq!(default, Some(false));
        assert!(answers <= ENOUGH, "{answers} answers");
        // Only the route that its address brought along.
        assert_eq!(near.run(|| asked(idle.a.index())).unwrap(), (None, 1));
        near.add_route(address("0.0.0.0"), 0, address("10.9.0.2")).unwrap();
        assert_eq!(near.run(|| through(busy.a.index()).unwrap()).unwrap(), Some(true));
        assert_eq!(near.run(|| through(idle.a.index()).unwrap()).unwrap(), None);
        // Policy routing: a table that has a number of its own, or one beyond eight bits.
        for table in ["100", "1000"] {
            let route = |what: &str| {
                let arguments = [what, "13.0.0.0/8", "dev", "idle", "table", table];
                let mut command = near.command("ip");
                assert!(command.arg("route").args(arguments).status().unwrap().success());
            };
            route("add");
            assert_eq!(
                near.run(|| through(idle.a.index()).unwrap()).unwrap(),
                Some(false),
                "{table}"
            );
            route("del");
        }
        near.add_route(address("12.0.0.0"), 8, address("10.9.1.2")).unwrap();
        assert_eq!(near.run(|| through(idle.a.index()).unwrap()).unwrap(), Some(false));
    }
}
