//! The machine: huge pages, the frequency and idle states of CPUs, irqbalance.

use std::path::{Path, PathBuf};

use linerate_net::text::plural;

use super::Answer;
use crate::context::Context;
use crate::host::{number, read};
use crate::setting::{Change, chosen};

/// 64 MiB, the default buffer, in pages of 2 MiB.
const HUGE_PAGES: u64 = 32;

pub(super) fn huge_pages(_: &Context<'_>) -> Vec<Answer> {
    let text = read("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    match (field("HugePages_Total:"), field("HugePages_Free:")) {
        (Some(total), Some(free)) if free < HUGE_PAGES => {
            let what = format!(
                "{free} huge pages are free, and the default buffer takes {HUGE_PAGES}: it is in \
                 transparent huge pages or small ones"
            );
            let wanted = total + HUGE_PAGES - free;
            Answer::note(what).change(Change::sysctl("vm/nr_hugepages", wanted)).alone()
        }
        (_, Some(free)) => Answer::ok(format!("{free} huge pages are free")).alone(),
        _ => Answer::note("the kernel has no huge pages").alone(),
    }
}

pub(super) fn transparent_huge_pages(_: &Context<'_>) -> Vec<Answer> {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    match read(FILE).map(chosen).as_deref() {
        Some("never") => Answer::note("transparent huge pages are off")
            .change(Change::sysfs(FILE, "madvise"))
            .alone(),
        Some(mode) => Answer::ok(format!("transparent huge pages: {mode}")).alone(),
        None => Answer::note("the kernel has no transparent huge pages").alone(),
    }
}

/// The folder of a CPU in sysfs.
fn folder(cpu: usize) -> PathBuf {
    Path::new("/sys/devices/system/cpu").join(format!("cpu{cpu}"))
}

pub(super) fn frequency(context: &Context<'_>) -> Vec<Answer> {
    let governors = context.host.allowed.iter().filter_map(|cpu| {
        let file = folder(*cpu).join("cpufreq/scaling_governor");
        Some((read(&file)?, file))
    });
    let governors: Vec<_> = governors.collect();
    frequency_of(&governors).alone()
}

fn frequency_of(governors: &[(String, PathBuf)]) -> Answer {
    let slow: Vec<_> = governors.iter().filter(|(name, _)| name != "performance").collect();
    let Some((name, _)) = slow.first() else {
        return match governors.len() {
            0 => Answer::ok("the kernel does not change the frequency of the CPUs"),
            _ => Answer::ok("the frequency governor is performance"),
        };
    };
    let what = format!("the frequency governor of {} is {name}", plural(slow.len() as u64, "CPU"));
    let change = |(_, file): &&(String, PathBuf)| Change::sysfs(file, "performance");
    Answer::warning(what).changes(slow.iter().map(change).collect())
}

/// Longer than a burst of 64 frames at a million a second.
const SLOW_WAKE_UP: u64 = 64;

pub(super) fn idle_states(context: &Context<'_>) -> Vec<Answer> {
    let states = context.host.allowed.iter().flat_map(|cpu| {
        let states =
            std::fs::read_dir(folder(*cpu).join("cpuidle")).into_iter().flatten().flatten();
        states.filter_map(|state| {
            let enabled = number(state.path().join("disable"))? == 0;
            Some((number(state.path().join("latency"))?, enabled))
        })
    });
    idle_states_of(states).alone()
}

/// `states`: the latency in µs of each state, and whether it is enabled.
fn idle_states_of(states: impl Iterator<Item = (u64, bool)>) -> Answer {
    let slowest = states.filter(|(_, enabled)| *enabled).map(|(latency, _)| latency).max();
    match slowest {
        Some(latency) if latency > SLOW_WAKE_UP => {
            Answer::note(format!("CPUs sleep in states that take {latency} µs to leave"))
                .by_hand(&format!("cpupower idle-set -D {SLOW_WAKE_UP}"))
        }
        Some(latency) => Answer::ok(format!("the slowest idle state takes {latency} µs to leave")),
        None => Answer::ok("the kernel has no idle states"),
    }
}

pub(super) fn irqbalance(_: &Context<'_>) -> Vec<Answer> {
    if read("/proc/1/comm").is_none() {
        return Answer::unknown("/proc shows only processes of this user (hidepid)").alone();
    }
    let is_it = |entry: std::fs::DirEntry| {
        (read(entry.path().join("comm"))? == "irqbalance").then(|| entry.file_name())
    };
    let found = std::fs::read_dir("/proc").into_iter().flatten().flatten().find_map(is_it);
    match found {
        Some(process) => {
            let process = process.to_string_lossy();
            Answer::note(format!("irqbalance is running (process {process})"))
                .by_hand("systemctl stop irqbalance")
                .alone()
        }
        None => Answer::ok("irqbalance is not running").alone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Remedy, Severity};

    #[test]
    fn governors_that_save_power_are_changed_one_by_one() {
        let governor = |name: &str, cpu| (name.to_owned(), folder(cpu).join("governor"));
        let answer = frequency_of(&[governor("powersave", 0), governor("performance", 1)]);
        assert_eq!(answer.severity, Severity::Warning);
        let Remedy::Changes(changes) = &answer.remedy else { panic!("{answer:?}") };
        assert_eq!(changes, &[Change::sysfs(folder(0).join("governor"), "performance")]);
        assert_eq!(frequency_of(&[governor("performance", 0)]).severity, Severity::Ok);
        assert_eq!(frequency_of(&[]).severity, Severity::Ok);
    }

    #[test]
    fn only_enabled_idle_states_count() {
        let of = |states: &[(u64, bool)]| idle_states_of(states.iter().copied()).severity;
        assert_eq!(of(&[(1, true), (200, true)]), Severity::Note);
        assert_eq!(of(&[(1, true), (200, false)]), Severity::Ok);
        assert_eq!(of(&[]), Severity::Ok);
    }
}
