//! The host's stack: forwarding, connection tracking, rules, neighbours, socket buffers, the backlog.

use linerate_forward::runtime::preflight;
use linerate_net::neighbour::State;
use linerate_net::privilege::{self, CapabilitySet};
use linerate_net::ruleset::{self, Families, Ruleset};

use super::Answer;
use super::port::answer_of;
use crate::context::Context;
use crate::host::{number, read};
use crate::setting::Change;

pub(super) fn forwarding(_: &Context<'_>) -> Vec<Answer> {
    let is_on = |key: &str| number(format!("/proc/sys/{key}"));
    let (ipv4, ipv6) = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding");
    let ipv4 = match is_on(ipv4) {
        Some(0) => Answer::fatal("the kernel does not forward IPv4: there is nothing to learn")
            .change(Change::sysctl(ipv4, 1)),
        Some(_) => Answer::ok("the kernel forwards IPv4"),
        None => Answer::unknown("/proc/sys does not show whether the kernel forwards IPv4"),
    };
    let ipv6 = match is_on(ipv6) {
        // A router takes no routes from router advertisements: this may cost the host its default route.
        Some(0) => Answer::note("the kernel does not forward IPv6").by_hand(&format!(
            "{} (the host then ignores router advertisements)",
            Change::sysctl(ipv6, 1).command()
        )),
        Some(_) => Answer::ok("the kernel forwards IPv6"),
        None => Answer::note("the kernel has no IPv6"),
    };
    vec![ipv4, ipv6]
}

/// A table this full is a warning, in percent.
const FULL: u64 = 80;

pub(super) fn conntrack(_: &Context<'_>) -> Vec<Answer> {
    let value = |name: &str| number(format!("/proc/sys/net/netfilter/nf_conntrack_{name}"));
    conntrack_of(value("count"), value("max")).alone()
}

fn conntrack_of(count: Option<u64>, max: Option<u64>) -> Answer {
    match (count, max) {
        (Some(count), Some(max)) if count * 100 >= max * FULL => {
            Answer::warning(format!("{count} of {max} connections are tracked"))
                .change(Change::sysctl("net/netfilter/nf_conntrack_max", max * 2))
        }
        (Some(count), Some(max)) => Answer::ok(format!("{count} of {max} connections are tracked")),
        _ => Answer::ok("the kernel tracks no connections"),
    }
}

pub(super) fn conntrack_lookup(context: &Context<'_>) -> Vec<Answer> {
    match context.host.preflight(None) {
        Ok(findings) => findings
            .into_iter()
            .filter(|one| one.check == preflight::Check::Tracking)
            .map(|one| answer_of(one, "programs can look connections up"))
            .collect(),
        Err(error) => Answer::unknown(error).alone(),
    }
}

pub(super) fn rules(_: &Context<'_>) -> Vec<Answer> {
    let ruleset = match Ruleset::load(&ruleset::Options::default()) {
        Ok(ruleset) => ruleset,
        Err(error) => {
            let what = format!("cannot read the rules of the packet filter: {error}");
            return Answer::unknown(what).by_hand("run with CAP_NET_ADMIN").alone();
        }
    };
    let keeps = |rule| {
        Answer::warning(format!("a rule keeps sessions with the kernel: {rule}"))
            .by_hand("nft -a list ruleset, iptables-save: narrow it, or remove it")
    };
    let mut answers: Vec<_> = ruleset.rules().into_iter().map(keeps).collect();
    let family = match ruleset.route {
        Families { ipv4: true, ipv6: true } => Some(""),
        Families { ipv4: true, .. } => Some(" of IPv4"),
        Families { ipv6: true, .. } => Some(" of IPv6"),
        Families { .. } => None,
    };
    answers.extend(family.map(|family| {
        let what = "looks at routes: each change of one invalidates sessions";
        Answer::warning(format!("a rule{family} for forwarded packets {what}"))
            .by_hand("nft list ruleset, iptables-save: narrow it, or remove it")
    }));
    if answers.is_empty() {
        answers.push(Answer::ok("no rule has to see every packet"));
    }
    answers
}

pub(super) fn neighbours(context: &Context<'_>) -> Vec<Answer> {
    let neighbours = match context.host.connection.neighbours() {
        Ok(neighbours) => neighbours,
        Err(error) => return Answer::unknown(error.to_string()).alone(),
    };
    let failed = neighbours.iter().filter(|one| one.state == State::Failed);
    let failed: Vec<_> = failed.filter_map(|one| Some(one.destination?.to_string())).collect();
    match failed.len() {
        0 => Answer::ok("no neighbour has failed"),
        1..=3 => Answer::note(format!("nobody answers for {}", failed.join(", "))),
        more => Answer::note(format!("nobody answers for {more} neighbours, as {}", failed[0])),
    }
    .by_hand("ip neighbour show nud failed")
    .alone()
}

/// The receive buffer that `linerate receive` asks for.
const RECEIVE_BUFFER: u64 = 8 << 20;

pub(super) fn socket_buffer(_: &Context<'_>) -> Vec<Answer> {
    const KEY: &str = "net/core/rmem_max";
    if privilege::has(CapabilitySet::NET_ADMIN) {
        return Answer::ok("CAP_NET_ADMIN: no limit (SO_RCVBUFFORCE)").alone();
    }
    match number(format!("/proc/sys/{KEY}")) {
        Some(limit) if limit < RECEIVE_BUFFER => {
            let what = format!("net.core.rmem_max is {limit}, and a receiver asks for 8 MiB");
            Answer::warning(what).change(Change::sysctl(KEY, RECEIVE_BUFFER)).alone()
        }
        Some(limit) => Answer::ok(format!("net.core.rmem_max is {limit}")).alone(),
        None => Answer::unknown("/proc/sys does not show net.core.rmem_max").alone(),
    }
}

pub(super) fn backlog(_: &Context<'_>) -> Vec<Answer> {
    let text = read("/proc/net/softnet_stat").unwrap_or_default();
    backlog_of(&text).alone()
}

/// `text`: /proc/net/softnet_stat, a line for each CPU; the second number counts drops (`softnet_seq_show`).
fn backlog_of(text: &str) -> Answer {
    let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    match text.lines().filter_map(dropped).reduce(|sum, one| sum + one) {
        Some(0) => Answer::ok("no CPU's backlog has overflowed"),
        Some(dropped) => Answer::note(format!(
            "frames dropped since the start, as the backlog of a CPU was full: {dropped}"
        ))
        .by_hand("sysctl -w net.core.netdev_max_backlog=10000"),
        None => Answer::unknown("/proc/net/softnet_stat does not show it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    #[test]
    fn a_full_table_and_an_overflow_are_seen() {
        assert_eq!(conntrack_of(Some(80), Some(100)).severity, Severity::Warning);
        assert_eq!(conntrack_of(Some(79), Some(100)).severity, Severity::Ok);
        assert_eq!(conntrack_of(None, None).severity, Severity::Ok);
        let line = |dropped: &str| format!("134ee84f {dropped} 0000080a 00000000\n");
        let both = backlog_of(&(line("0000000a") + &line("00000001")));
        assert!(both.severity == Severity::Note && both.what.ends_with(": 11"), "{both:?}");
        assert_eq!(backlog_of(&line("00000000")).severity, Severity::Ok);
        assert_eq!(backlog_of("").severity, Severity::Unknown);
    }
}
