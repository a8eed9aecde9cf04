//! The interface itself: its state, its losses, who else uses it, what capture and forward decide about it.

use linerate_capture::source::{SourceOptions, select};
use linerate_forward::runtime::preflight::{self, Outcome};
use linerate_net::link::Link;

use super::Verdict;
use crate::context::Context;
use crate::finding::Job;
use crate::host::number;
use crate::setting::{Change, quoted};

/// All frames, of `linux/if_ether.h`.
const ETH_P_ALL: u16 = 3;

pub(super) fn state(_: &Context<'_>, link: &Link) -> Vec<Verdict> {
    if !link.is_up() {
        let command = format!("ip link set dev {} up", quoted(&link.name));
        return Verdict::fatal("the interface is down").by_hand(&command).alone();
    }
    if !link.is_running() {
        return Verdict::warning("the interface has no carrier")
            .by_hand("check the cable, or the other end")
            .alone();
    }
    Verdict::ok("up, with a carrier").alone()
}

pub(super) fn losses(_: &Context<'_>, link: &Link) -> Vec<Verdict> {
    let statistics = &link.statistics;
    // Several drivers count the same frames in two of these.
    let missed =
        statistics.rx_missed_errors.max(statistics.rx_over_errors).max(statistics.rx_fifo_errors);
    let mut verdicts = Vec::new();
    if missed > 0 {
        verdicts.push(
            Verdict::warning(format!(
                "frames that found no room in the rings of the card: {missed}"
            ))
            .by_hand(&format!("ethtool -S {}", quoted(&link.name))),
        );
    }
    if statistics.rx_dropped > 0 {
        verdicts.push(
            Verdict::note(format!(
                "the driver or the stack has dropped received frames: {} (some drivers count what XDP takes)",
                statistics.rx_dropped
            ))
            .by_hand(&format!("linerate capture -i {} --source drops", link.name)),
        );
    }
    if verdicts.is_empty() {
        verdicts.push(Verdict::ok("no received frame was lost"));
    }
    verdicts
}

pub(super) fn packet_sockets(context: &Context<'_>, link: &Link) -> Vec<Verdict> {
    let mut owners = Vec::new();
    let mut count = 0;
    for (socket, holders) in &context.host.sockets {
        let is_own = holders.iter().any(|one| one.id == std::process::id());
        if socket.receives_from(link.index) && socket.protocol == ETH_P_ALL && !is_own {
            count += 1;
            owners.extend(holders.iter().map(ToString::to_string));
        }
    }
    if count == 0 {
        return Verdict::ok("no packet socket takes a copy of every frame").alone();
    }
    owners.sort_unstable();
    owners.dedup();
    let owners = if owners.is_empty() {
        "processes that this one may not see".to_owned()
    } else {
        owners.join(", ")
    };
    let remedy = "end what you do not need";
    let what = format!("packet sockets that take a copy of every frame: {count}, of {owners}");
    let others = &[Job::Capture, Job::Receive, Job::Uplink];
    vec![
        Verdict::note(&what).by_hand(remedy).of(others),
        Verdict::warning(format!(
            "{what}; they see no packet that the fast path sends by this interface"
        ))
        .by_hand("capture by `linerate capture --source trace`, or forward by `--datapath tc`")
        .of(&[Job::Forward]),
    ]
}

pub(super) fn source(_: &Context<'_>, link: &Link) -> Vec<Verdict> {
    match select(link, &SourceOptions::default()) {
        Ok(selection) => {
            let what = format!("`--source auto` selects {}: {}", selection.kind, selection.reason);
            match selection.awaits_consent {
                true => Verdict::ok(format!(
                    "{what}; --take-over would take the frames from the host by XDP"
                )),
                false if selection.reason.starts_with("the driver has no native XDP") => {
                    Verdict::note(what)
                        .by_hand("a driver with native XDP brings --source tee and xdp")
                }
                false => Verdict::note(what),
            }
        }
        Err(error) => Verdict::fatal(format!("no source: {error}")),
    }
    .alone()
}

pub(super) fn reverse_path(_: &Context<'_>, link: &Link) -> Vec<Verdict> {
    const STRICT: u64 = 1;
    const LOOSE: u64 = 2;
    let key = format!("net/ipv4/conf/{}/rp_filter", link.name);
    let own = number(format!("/proc/sys/{key}"));
    let all = number("/proc/sys/net/ipv4/conf/all/rp_filter");
    match own.max(all) {
        Some(STRICT) => Verdict::note(
            "the reverse path filter is strict: messages from addresses that the host \
                           reaches by another interface are dropped",
        )
        .change(Change::sysctl(&key, LOOSE)),
        Some(_) => Verdict::ok("the reverse path filter is not strict"),
        None => Verdict::unknown("/proc/sys does not show the reverse path filter"),
    }
    .alone()
}

pub(super) fn port(context: &Context<'_>, link: &Link) -> Vec<Verdict> {
    use preflight::Check;
    let findings = match context.host.preflight(Some(link)) {
        Ok(findings) => findings,
        Err(error) => return Verdict::unknown(error).alone(),
    };
    // Others have checks of their own here.
    let checks = [
        Check::Kind,
        Check::Mtu,
        Check::Peer,
        Check::Transmit,
        Check::Checksums,
        Check::Queues,
        Check::Tags,
        Check::Forwarding,
    ];
    let of = findings.into_iter().filter(|one| {
        one.interface.is_some() && checks.contains(&one.check) && one.outcome != Outcome::Fine
    });
    let verdicts: Vec<_> = of.map(|one| verdict_of(one, "")).collect();
    if verdicts.is_empty() { Verdict::ok("it can be a port").alone() } else { verdicts }
}

/// The verdict for a finding of the preflight; `fine` is what to say where all is well.
pub(super) fn verdict_of(finding: preflight::Finding, fine: &str) -> Verdict {
    use preflight::Check;
    // `linerate forward` changes these itself while it runs.
    let is_temporary = matches!(finding.check, Check::Tags | Check::Transmit | Check::Coalescing);
    match finding.outcome {
        Outcome::Fine => Verdict::ok(fine),
        Outcome::Fixed(what) => Verdict::note(what),
        Outcome::Warning { what, remedy } => Verdict::warning(what).by_hand(&bare(&remedy)),
        Outcome::Refused { reason, remedy } if finding.check == Check::Peer => {
            Verdict::unknown(format!("{reason}: {remedy}"))
        }
        Outcome::Refused { reason, remedy } if is_temporary => {
            Verdict::note(format!("{reason}; `linerate forward` changes that while it runs"))
                .by_hand(&bare(&remedy))
        }
        Outcome::Refused { reason, remedy } => Verdict::fatal(reason).by_hand(&bare(&remedy)),
    }
    .of(&[Job::Forward])
}

/// A remedy that is only a command, without its quotes.
fn bare(remedy: &str) -> String {
    let command = remedy.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    command.filter(|text| !text.contains('`')).unwrap_or(remedy).to_owned()
}

#[cfg(test)]
mod tests {
    use linerate_net::link::Statistics;

    use super::*;
    use crate::context::Options;
    use crate::finding::Severity;
    use crate::host::Host;

    #[test]
    fn losses_of_a_card_are_a_warning() {
        let (options, host) = (Options::default(), Host::load().unwrap());
        let context = Context { options: &options, host: &host };
        let link = |statistics| Link { name: "eth9".into(), statistics, ..Link::default() };
        let missed = Statistics { rx_missed_errors: 7, rx_fifo_errors: 7, ..Statistics::default() };
        let [verdict] = &losses(&context, &link(missed))[..] else { panic!() };
        assert_eq!(verdict.severity, Severity::Warning);
        assert!(verdict.what.ends_with(": 7"), "{verdict:?}");
        let none = losses(&context, &link(Statistics::default()));
        assert_eq!(none[0].severity, Severity::Ok);
    }

    #[test]
    fn a_command_stands_without_quotes() {
        assert_eq!(bare("`ip link`"), "ip link");
        assert_eq!(bare("see `ip link`"), "see `ip link`");
        assert_eq!(bare("`a` or `b`"), "`a` or `b`");
    }
}
