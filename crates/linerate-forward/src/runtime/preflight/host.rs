//! Checks of the host.

use std::fs;

use super::probe::can_look_up;
use super::report::{Check, Outcome, Report, warning};

/// The kfunc by which a program looks up a tracked connection.
const LOOKUP: &str = "bpf_skb_ct_lookup";

pub(super) fn examine(names: &[String], report: &mut Report) {
    report.add(None, Check::Tracking, tracking());
    for (family, all, what) in
        [("ipv4", "net.ipv4.ip_forward", "IPv4"), ("ipv6", "net.ipv6.conf.all.forwarding", "IPv6")]
    {
        report.add(None, Check::Forwarding, forwarding(all, what));
        for name in names {
            // A path, because in a dotted key a dot in an interface name would be a slash.
            let path = format!("/proc/sys/net/{family}/conf/{name}/forwarding");
            if is_on(all) == Some(true) && read(&path) == Some(false) {
                let what = format!("the kernel does not forward {what} that comes in by it");
                let remedy = format!("`sysctl -w net/{family}/conf/{name}/forwarding=1`");
                report.add(Some(name), Check::Forwarding, warning(what, remedy));
            }
        }
    }
}

fn forwarding(key: &str, what: &str) -> Outcome {
    match is_on(key) {
        Some(false) => warning(
            format!("the kernel does not forward {what}, so there is nothing to learn"),
            format!("`sysctl -w {key}=1`"),
        ),
        // On, or the kernel does not have it.
        _ => Outcome::Fine,
    }
}

/// What conntrack does to packets within a bridge, before TC sees them (`br_netfilter`).
pub(super) fn bridge_filter() -> Outcome {
    let on = |family: &&str| is_on(&format!("net.bridge.bridge-nf-call-{family}")) == Some(true);
    match ["iptables", "ip6tables"].iter().find(|family| on(family)) {
        Some(family) => warning(
            "br_netfilter translates packets within the bridge, before TC sees them: translated sessions that \
             come in by it stay with the kernel",
            format!("`sysctl -w net.bridge.bridge-nf-call-{family}=0`"),
        ),
        None => Outcome::Fine,
    }
}

fn is_on(key: &str) -> Option<bool> {
    read(&format!("/proc/sys/{}", key.replace('.', "/")))
}

fn read(path: &str) -> Option<bool> {
    fs::read_to_string(path).ok().map(|value| value.trim() != "0")
}

/// Connections can be looked up, or none are tracked.
fn tracking() -> Outcome {
    let tracked = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count")
        .ok()
        .and_then(|count| count.trim().parse::<u64>().ok());
    match tracked {
        None | Some(0) => Outcome::Fine,
        Some(_) if can_look_up() => Outcome::Fine,
        Some(_) => warning(
            "connections are tracked here, and this kernel does not let a program ask for them: TCP and \
             UDP of tracked connections stay with the kernel",
            format!(
                "take a kernel with {LOOKUP} (6.1 with CONFIG_DEBUG_INFO_BTF), or notrack rules"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use linerate_testkit::root_or_skip;

    use super::*;
    use crate::runtime::ctnetlink;

    #[test]
    fn a_look_up_of_connections_is_found_where_conntrack_is_a_module_too() {
        root_or_skip!();
        ctnetlink::load_module();
        let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
        let has = symbols.lines().any(|line| line.split_whitespace().nth(2) == Some(LOOKUP));
        assert_eq!(can_look_up(), has);
    }
}
