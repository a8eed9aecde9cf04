//! The findings as text.

use std::fmt::Write;

use linerate_doctor::{Finding, Job, Options, Severity};
use linerate_net::text::list;
use serde_json::Value;

const SEVERITIES: [Severity; 5] =
    [Severity::Fatal, Severity::Warning, Severity::Unknown, Severity::Note, Severity::Ok];

/// The number of findings of each severity.
pub(super) fn counts(findings: &[Finding]) -> impl Iterator<Item = (String, Value)> {
    SEVERITIES.iter().map(|severity| {
        let count = findings.iter().filter(|one| one.severity == *severity).count();
        (severity.to_string(), count.into())
    })
}

/// The findings of the host and of each interface, the worst first.
pub(super) fn report(options: &Options, findings: &[Finding], all: bool) -> String {
    let mut text = String::new();
    let mut places: Vec<_> = findings.iter().map(|one| one.interface.as_deref()).collect();
    places.dedup();
    for place in places {
        let mut of_place: Vec<_> = findings
            .iter()
            .filter(|one| one.interface.as_deref() == place)
            .filter(|one| all || one.severity != Severity::Ok)
            .collect();
        of_place.sort_by_key(|one| std::cmp::Reverse(one.severity));
        if of_place.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{}", printable(place.unwrap_or("this host")));
        for finding in of_place {
            text.push_str(&entry(options, finding));
        }
        text.push('\n');
    }
    text + &summary(findings)
}

/// How many findings have each severity.
fn summary(findings: &[Finding]) -> String {
    let counts: Vec<_> = SEVERITIES
        .iter()
        .zip(counts(findings))
        .filter(|(_, (_, count))| *count != 0)
        .map(|(severity, (_, count))| format!("{count} {severity}"))
        .collect();
    counts.join(", ")
}

/// Problems of an overview: with the rest of it, a screen of 24 lines.
const PROBLEMS: usize = 18;

/// A line for each problem, the worst first, with the interfaces that have it.
pub(super) fn overview(options: &Options, findings: &[Finding]) -> String {
    let mut problems: Vec<(&Finding, Vec<&str>)> = Vec::new();
    for finding in findings.iter().filter(|one| one.severity >= Severity::Warning) {
        let same = |(other, _): &&mut (&Finding, _)| {
            (other.id, &other.what) == (finding.id, &finding.what)
        };
        let place = finding.interface.as_deref();
        match problems.iter_mut().find(same) {
            Some((_, places)) => places.extend(place),
            None => problems.push((finding, place.into_iter().collect())),
        }
    }
    problems.sort_by_key(|(one, _)| std::cmp::Reverse(one.severity));
    let mut text = String::new();
    for (Finding { id, severity, what, .. }, places) in problems.iter().take(PROBLEMS) {
        let at = if places.is_empty() { String::new() } else { format!(" ({})", list(places)) };
        let _ = writeln!(text, "{severity:<8} {id}{}: {}", printable(&at), printable(what));
    }
    if problems.len() > PROBLEMS {
        let _ = writeln!(text, "and {} more", problems.len() - PROBLEMS);
    }
    text += &summary(findings);
    if !options.jobs.contains(&Job::Forward) {
        text += "\nforward is not examined: this kernel does not forward packets";
    }
    text + "\n`linerate doctor JOB` has the measurements, costs and remedies, --all everything"
}

fn entry(options: &Options, finding: &Finding) -> String {
    let Finding { id, severity, jobs, what, measured, cost, remedy, fixable, .. } = finding;
    let of: Vec<_> = jobs.iter().map(|job| job.name()).collect();
    let of = if *jobs == options.jobs { String::new() } else { format!(" [{}]", of.join(", ")) };
    let mut text = format!("  {severity:<8} {id}: {}{of}\n", printable(what));
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "           {name:<9} {}", printable(value));
    };
    line("measured", measured);
    if let Some(cost) = cost {
        line("cost", cost);
    }
    if let Some(command) = remedy.command() {
        line(if *fixable { "fix" } else { "remedy" }, &command);
    }
    text
}

/// Names of processes and interfaces may hold control characters.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = (!c.is_control()).then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("µs \u{1b}[31m\n"), "µs \\u{1b}[31m\\n");
    }
}
