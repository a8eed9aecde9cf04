//! The interface itself: its state, its losses, who else uses it, what capture and forward decide about it.

use linerate_capture::source::{SourceOptions, select};
use linerate_forward::runtime::preflight::{self, Outcome};
use linerate_net::link::Link;
use linerate_net::text::list;

use super::Answer;
use crate::context::Context;
use crate::finding::Job;
use crate::host::number;
use crate::setting::{Change, quoted};

/// All frames, of `linux/if_ether.h`.
const ETH_P_ALL: u16 = 3;

pub(super) fn state(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    if !link.is_up() {
        let command = format!("ip link set dev {} up", quoted(&link.name));
        return Answer::fatal("the interface is down").by_hand(&command).alone();
    }
    if !link.is_running() {
        return Answer::warning("the interface has no carrier")
            .by_hand("check the cable, or the other end")
            .alone();
    }
    Answer::ok("up, with a carrier").alone()
}

pub(super) fn losses(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    let statistics = &link.statistics;
    // Several drivers count the same frames in two of these.
    let missed =
        statistics.rx_missed_errors.max(statistics.rx_over_errors).max(statistics.rx_fifo_errors);
    let mut answers = Vec::new();
    if missed > 0 {
        answers.push(
            Answer::warning(format!(
                "frames that found no room in the rings of the card: {missed}"
            ))
            .by_hand(&format!("ethtool -S {}", quoted(&link.name))),
        );
    }
    if statistics.rx_dropped > 0 {
        answers.push(
            Answer::note(format!(
                "the driver or the stack has dropped received frames: {} (some drivers count what XDP takes)",
                statistics.rx_dropped
            ))
            .by_hand(&format!("linerate capture -i {} --source drops", link.name)),
        );
    }
    if answers.is_empty() {
        answers.push(Answer::ok("no received frame was lost"));
    }
    answers
}

pub(super) fn packet_sockets(context: &Context<'_>, link: &Link) -> Vec<Answer> {
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
        return Answer::ok("no packet socket takes a copy of every frame").alone();
    }
    owners.sort_unstable();
    owners.dedup();
    let owners = if owners.is_empty() {
        "processes that this one may not see".to_owned()
    } else {
        list(&owners)
    };
    let remedy = "end what you do not need";
    let what = format!("packet sockets that take a copy of every frame: {count}, of {owners}");
    let others = &[Job::Capture, Job::Receive, Job::Uplink];
    vec![
        Answer::note(&what).by_hand(remedy).of(others),
        Answer::warning(format!(
            "{what}; they see no packet that the fast path sends by this interface"
        ))
        .by_hand("capture by `linerate capture --source trace`, or forward by `--datapath tc`")
        .of(&[Job::Forward]),
    ]
}

pub(super) fn source(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    match select(link, &SourceOptions::default()) {
        Ok(selection) => {
            let what = format!("`--source auto` selects {}: {}", selection.kind, selection.reason);
            match selection.awaits_consent {
                true => Answer::ok(format!(
                    "{what}; --take-over would take the frames from the host by XDP"
                )),
                false if selection.reason.starts_with("the driver has no native XDP") => {
                    Answer::note(what)
                        .by_hand("a driver with native XDP brings --source tee and xdp")
                }
                false => Answer::note(what),
            }
        }
        Err(error) => Answer::fatal(format!("no source: {error}")),
    }
    .alone()
}

pub(super) fn reverse_path(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    const STRICT: u64 = 1;
    const LOOSE: u64 = 2;
    let key = format!("net/ipv4/conf/{}/rp_filter", link.name);
    let own = number(format!("/proc/sys/{key}"));
    let all = number("/proc/sys/net/ipv4/conf/all/rp_filter");
    match own.max(all) {
        Some(STRICT) => Answer::note(
            "the reverse path filter is strict: messages from addresses that the host \
                           reaches by another interface are dropped",
        )
        .change(Change::sysctl(&key, LOOSE)),
        Some(_) => Answer::ok("the reverse path filter is not strict"),
        None => Answer::unknown("/proc/sys does not show the reverse path filter"),
    }
    .alone()
}

pub(super) fn port(context: &Context<'_>, link: &Link) -> Vec<Answer> {
    use preflight::Check;
    let findings = match context.host.preflight(Some(link)) {
        Ok(findings) => findings,
        Err(error) => return Answer::unknown(error).alone(),
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
    let answers: Vec<_> = of.map(|one| answer_of(one, "")).collect();
    if answers.is_empty() { Answer::ok("it can be a port").alone() } else { answers }
}

/// The answer for a finding of the preflight; `fine` is what to say where all is well.
pub(super) fn answer_of(finding: preflight::Finding, fine: &str) -> Answer {
    use preflight::Check;
    // `linerate forward` changes these itself while it runs.
    let is_temporary = matches!(finding.check, Check::Tags | Check::Transmit | Check::Coalescing);
    match finding.outcome {
        Outcome::Fine => Answer::ok(fine),
        Outcome::Fixed(what) => Answer::note(what),
        Outcome::Warning { what, remedy } => Answer::warning(what).by_hand(&bare(&remedy)),
        Outcome::Refused { reason, remedy } if finding.check == Check::Peer => {
            Answer::unknown(format!("{reason}: {remedy}"))
        }
        Outcome::Refused { reason, remedy } if is_temporary => {
            Answer::note(format!("{reason}; `linerate forward` changes that while it runs"))
                .by_hand(&bare(&remedy))
        }
        Outcome::Refused { reason, remedy } => Answer::fatal(reason).by_hand(&bare(&remedy)),
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
        let [answer] = &losses(&context, &link(missed))[..] else { panic!() };
        assert_eq!(answer.severity, Severity::Warning);
        assert!(answer.what.ends_with(": 7"), "{answer:?}");
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
