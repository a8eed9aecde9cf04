//! Checks of the host.

use std::fs;
use std::io::{self, ErrorKind};

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
            let outcome = match (is_on(all), read(&path)) {
                (Ok(Some(true)), Ok(Some(false))) => warning(
                    format!("the kernel does not forward {what} that comes in by it"),
                    format!("`sysctl -w net/{family}/conf/{name}/forwarding=1`"),
                ),
                (Ok(Some(true)), Err(error)) => unread(&path, &error),
                _ => continue,
            };
            report.add(Some(name), Check::Forwarding, outcome);
        }
    }
}

fn forwarding(key: &str, what: &str) -> Outcome {
    match is_on(key) {
        Ok(Some(false)) => warning(
            format!("the kernel does not forward {what}, so there is nothing to learn"),
            format!("`sysctl -w {key}=1`"),
        ),
        // On, or the kernel does not have it.
        Ok(_) => Outcome::Fine,
        Err(error) => unread(key, &error),
    }
}

/// A setting that cannot be read: what it does is unknown.
fn unread(setting: &str, error: &io::Error) -> Outcome {
    warning(
        format!("{setting} cannot be read ({error}), so what it does to forwarding is unknown"),
        "make /proc/sys readable for this process".to_owned(),
    )
}

/// What conntrack does to packets within a bridge, before TC sees them (`br_netfilter`).
pub(super) fn bridge_filter() -> Outcome {
    for key in ["net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"] {
        match is_on(key) {
            Ok(Some(true)) => {
                return warning(
                    "br_netfilter translates packets within the bridge, before TC sees them: translated sessions \
                     that come in by it stay with the kernel",
                    format!("`sysctl -w {key}=0`"),
                );
            }
            Ok(_) => {}
            Err(error) => return unread(key, &error),
        }
    }
    Outcome::Fine
}

/// `None` where the kernel does not have it.
fn is_on(key: &str) -> io::Result<Option<bool>> {
    read(&format!("/proc/sys/{}", key.replace('.', "/")))
}

fn read(path: &str) -> io::Result<Option<bool>> {
    match fs::read_to_string(path) {
        Ok(value) => Ok(Some(value.trim() != "0")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Connections can be looked up, or none are tracked.
fn tracking() -> Outcome {
    const COUNT: &str = "net.netfilter.nf_conntrack_count";
    match is_on(COUNT) {
        Ok(None | Some(false)) => Outcome::Fine,
        _ if can_look_up() => Outcome::Fine,
        Err(error) => unread(COUNT, &error),
        Ok(Some(true)) => warning(
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
