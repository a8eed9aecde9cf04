//! Users of an interface that no link, address or route reveals: devices in other namespaces that receive
//! through it, and programs at the ingress of the stack.

use linerate_net::{Connection, Result};

use super::InterfaceUser;

/// The hidden users of interface `index`. Treats a failed query as absence.
pub(super) fn users(index: u32) -> Vec<InterfaceUser> {
    let other_address = other_address(index).unwrap_or_default().map(InterfaceUser::OtherAddress);
    let ingress = has_ingress_qdisc(index).unwrap_or_default()
        || linerate_bpf::link::has_tcx_ingress_program(index).unwrap_or_default();
    other_address.into_iter().chain(ingress.then_some(InterfaceUser::Ingress)).collect()
}

/// A hardware address, not its own, that the interface was told to receive for: as a macvlan does, in any
/// namespace.
fn other_address(index: u32) -> Result<Option<[u8; 6]>> {
    let entries = Connection::open()?.fdb(index)?;
    let mut addresses = entries.iter().filter(|entry| entry.own).filter_map(|entry| entry.address);
    Ok(addresses.find(|one| !one.is_multicast() && one.0 != [0; 6]).map(|one| one.0))
}

/// Whether the interface has an `ingress` or `clsact` queueing discipline.
fn has_ingress_qdisc(index: u32) -> Result<bool> {
    Ok(Connection::open()?.qdiscs(index)?.iter().any(|qdisc| qdisc.is_ingress()))
}

#[cfg(test)]
mod tests {
    use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip};

    use super::*;
    use crate::interface::Interface;

    /// The users of `port` of this host.
    fn seen(host: &Namespace) -> Vec<InterfaceUser> {
        host.run(|| Interface::by_name("port").unwrap().users).unwrap()
    }

    fn done(host: &Namespace, program: &str, arguments: &str) -> bool {
        let mut command = host.command(program);
        let ended = command.args(arguments.split_whitespace()).output();
        ended.is_ok_and(|output| output.status.success())
    }

    #[test]
    fn devices_in_other_namespaces_and_programs_at_the_entrance_are_seen() {
        root_or_skip!();
        let host = Namespace::create("chide-host").unwrap();
        let peer = Namespace::create("chide-peer").unwrap();
        host.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
        let _cable = Veth::create(&host, "port", &peer, "peer", VethOptions::default()).unwrap();
        assert_eq!(seen(&host), []);
        if done(&host, "ip", "link add mac0 link port address 02:00:00:00:00:09 type macvlan") {
            assert!(done(&host, "ip", &format!("link set mac0 netns {}", peer.name())));
            assert!(done(&peer, "ip", "link set mac0 up"));
            assert_eq!(seen(&host), [InterfaceUser::OtherAddress([2, 0, 0, 0, 0, 9])]);
            assert!(done(&peer, "ip", "link del mac0"));
            // passthru takes the address of the port itself.
            let add =
                format!("link add mac1 link port netns {} type macvlan mode passthru", peer.name());
            assert!(done(&host, "ip", &add) && done(&peer, "ip", "link set mac1 up"));
            assert_eq!(seen(&host), [InterfaceUser::Promiscuous]);
            assert!(done(&peer, "ip", "link del mac1"));
        } else {
            linerate_testkit::print_skipped(
                linerate_testkit::test_name!(),
                "the kernel has no macvlan",
            );
        }
        // What an administrator set for a capture is not a user.
        assert!(done(&host, "ip", "link set port promisc on"));
        assert_eq!(seen(&host), []);
        if done(&host, "tc", "qdisc add dev port clsact") {
            assert_eq!(seen(&host), [InterfaceUser::Ingress]);
            assert!(done(&host, "tc", "qdisc del dev port clsact"));
        } else {
            linerate_testkit::print_skipped(
                linerate_testkit::test_name!(),
                "the kernel has no clsact",
            );
        }
        assert_eq!(seen(&host), []);
    }
}
