//! Queues of an interface: their number, hash, rings, coalescing, and the CPUs that serve them.

use std::collections::{BTreeMap, BTreeSet};

use linerate_net::ethtool::{self, Parameter, Rss, Value};
use linerate_net::link::{self, Link};
use linerate_net::text::{list, plural};
use linerate_net::{cpu, interrupts};

use super::Answer;
use crate::context::Context;
use crate::finding::Job;
use crate::host::{number, read, sysfs};
use crate::setting::{Change, is_same, quoted};

/// A parameter of the driver; an answer where the kernel does not answer.
fn parameter(link: &Link, wanted: Parameter) -> Result<Option<Value>, Answer> {
    ethtool::parameter(link.index, wanted).map_err(|error| Answer::unknown(error.to_string()))
}

pub(super) fn queues(context: &Context<'_>, link: &Link) -> Vec<Answer> {
    let cpus = context.host.allowed.len() as u32;
    let mut answers = Vec::new();
    for (which, what) in [
        (Parameter::CombinedChannels, "combined channels"),
        (Parameter::RxChannels, "receive channels"),
    ] {
        match parameter(link, which) {
            Ok(Some(value)) => answers.push(queues_of(link, which, what, value, cpus)),
            Ok(None) => {}
            Err(unknown) => answers.push(unknown),
        }
    }
    if answers.is_empty() {
        answers.push(Answer::note("the driver does not show its channels: one queue is assumed"));
    }
    answers
}

fn queues_of(link: &Link, which: Parameter, what: &str, value: Value, cpus: u32) -> Answer {
    let Value { current, max } = value;
    let most = max.unwrap_or(current);
    let wanted = most.min(cpus);
    match current {
        _ if current < wanted => Answer::warning(format!(
            "{what}: {current} of {most} in use, for {}",
            plural(cpus.into(), "CPU")
        ))
        .change(Change::parameter(&link.name, which, wanted)),
        _ if current < cpus => Answer::note(format!(
            "{what}: {current} for {}; the device has no more",
            plural(cpus.into(), "CPU")
        )),
        _ => Answer::ok(format!("{what}: {current} for {}", plural(cpus.into(), "CPU"))),
    }
}

pub(super) fn hash(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    let channels = ethtool::channels(link.index).ok().flatten().unwrap_or_default();
    if channels.rx_count + channels.combined_count <= 1 {
        return Answer::ok("one queue receives everything").alone();
    }
    match ethtool::rss(link.index) {
        Ok(found) => hash_of(link, found.as_ref()),
        Err(error) => Answer::unknown(error.to_string()),
    }
    .alone()
}

fn hash_of(link: &Link, rss: Option<&Rss>) -> Answer {
    match rss.map(|rss| (rss.is_symmetric(), rss.key.len())) {
        Some((Some(true), _)) => Answer::ok("both directions of a connection have the same hash"),
        Some((Some(false), len)) => {
            let key = vec!["6d:5a"; len.div_ceil(2)].join(":");
            let key = &key[..(len * 3).saturating_sub(1)];
            Answer::note("the two directions of a connection may arrive in different queues")
                .by_hand(&format!("ethtool -X {} hkey {key}", quoted(&link.name)))
        }
        _ => Answer::note("the driver does not show its hash: which queue a flow takes is unknown"),
    }
}

/// Rings smaller than this overflow while a CPU is away for less than a millisecond at a million frames a second.
const SMALL_RING: u32 = 1024;
/// Larger ones than this no longer fit into a cache.
const LARGE_RING: u32 = 4096;

pub(super) fn rings(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    match parameter(link, Parameter::RxRing) {
        Ok(Some(value)) => ring_of(link, value),
        Ok(None) => Answer::ok("the driver has no rings to size"),
        Err(unknown) => unknown,
    }
    .alone()
}

fn ring_of(link: &Link, Value { current, max }: Value) -> Answer {
    let most = max.unwrap_or(current);
    if current < SMALL_RING && most > current {
        let what = format!("the receive rings have {current} descriptors, of {most}");
        let change = Change::parameter(&link.name, Parameter::RxRing, most.min(LARGE_RING));
        return Answer::warning(what).change(change);
    }
    Answer::ok(format!("the receive rings have {current} descriptors, of {most}"))
}

/// An interrupt that waits longer is felt as latency, in µs.
const LONG_WAIT: u32 = 200;
/// What drivers take as a default that serves both.
const USUAL_WAIT: u32 = 50;

pub(super) fn coalescing(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    let frames = match parameter(link, Parameter::RxFrames) {
        Ok(value) => value.map_or(0, |value| value.current),
        Err(unknown) => return unknown.alone(),
    };
    match parameter(link, Parameter::RxUsecs) {
        Ok(Some(value)) => coalescing_of(link, value.current, frames),
        Ok(None) => Answer::ok("the driver has no coalescing time"),
        Err(unknown) => unknown,
    }
    .alone()
}

fn coalescing_of(link: &Link, usecs: u32, frames: u32) -> Answer {
    let change = Change::parameter(&link.name, Parameter::RxUsecs, USUAL_WAIT);
    match usecs {
        0 if frames <= 1 => {
            Answer::note("interrupts are not coalesced: each frame may raise one").change(change)
        }
        _ if usecs > LONG_WAIT => {
            Answer::note(format!("an interrupt waits up to {usecs} µs for more frames"))
                .change(change)
        }
        _ => Answer::ok(format!("an interrupt waits up to {usecs} µs for more frames")),
    }
}

/// sysfs of another network namespace has other interfaces.
fn other_sysfs() -> Vec<Answer> {
    Answer::unknown("/sys shows another network namespace")
        .by_hand("ip netns exec NAME linerate doctor")
        .alone()
}

pub(super) fn steering(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    let Some(folder) = sysfs(link) else {
        return other_sysfs();
    };
    let queues = std::fs::read_dir(folder.join("queues")).into_iter().flatten().flatten();
    let masks: Vec<_> = queues.map(|queue| queue.path().join("rps_cpus")).collect();
    // A kernel without packet steering has no such files.
    if let Some(mask) = masks.iter().find(|mask| read(mask).is_none() && mask.exists()) {
        return Answer::unknown(format!("cannot read {}", mask.display())).alone();
    }
    let masks = masks.into_iter();
    let on: Vec<_> =
        masks.filter(|mask| read(mask).is_some_and(|value| !is_same(&value, "0"))).collect();
    if on.is_empty() {
        return Answer::ok("receive packet steering is off").alone();
    }
    let queues: Vec<_> = on
        .iter()
        .filter_map(|mask| Some(mask.parent()?.file_name()?.to_string_lossy().into_owned()))
        .collect();
    let what = format!("receive packet steering moves packets to other CPUs ({})", list(&queues));
    let changes = on.into_iter().map(|mask| Change::sysfs(mask, 0)).collect();
    Answer::note(what).changes(changes).alone()
}

pub(super) fn deferral(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    let Some(folder) = sysfs(link) else {
        return other_sysfs();
    };
    let value = |name: &str| number(folder.join(name)).unwrap_or(0);
    let (deferred, timeout) = (value("napi_defer_hard_irqs"), value("gro_flush_timeout"));
    if deferred == 0 && timeout == 0 {
        return Answer::ok("interrupts are not deferred").alone();
    }
    let names = [("napi_defer_hard_irqs", deferred), ("gro_flush_timeout", timeout)];
    let set = names.iter().filter(|(_, value)| *value != 0);
    let changes = set.map(|(name, _)| Change::sysfs(folder.join(name), 0)).collect();
    Answer::note(format!("napi_defer_hard_irqs is {deferred}, gro_flush_timeout is {timeout} ns"))
        .changes(changes)
        .alone()
}

pub(super) fn interrupts(context: &Context<'_>, link: &Link) -> Vec<Answer> {
    if !link.kind.is_empty() {
        return Answer::ok("a virtual device has no interrupts").alone();
    }
    interrupts_of(&interrupts::of_queues(&link.name), context.host.online.len()).alone()
}

fn interrupts_of(queues: &BTreeMap<u32, Vec<usize>>, cpus: usize) -> Answer {
    let used: BTreeSet<_> = queues.values().filter_map(|cpus| cpus.first()).collect();
    match (queues.len(), used.len()) {
        (0, _) => Answer::unknown("/proc/interrupts does not name the interrupts of its queues"),
        (queues, used) if used < queues.min(cpus) => Answer::warning(interrupting(queues, used))
            .by_hand("write a CPU for each into /proc/irq/NUMBER/smp_affinity_list"),
        (queues, used) => Answer::ok(interrupting(queues, used)),
    }
}

fn interrupting(queues: usize, cpus: usize) -> String {
    let verb = if queues == 1 { "interrupts" } else { "interrupt" };
    format!("{} {verb} {}", plural(queues as u64, "queue"), plural(cpus as u64, "CPU"))
}

pub(super) fn node(context: &Context<'_>, link: &Link) -> Vec<Answer> {
    let card = link::numa_node(&link.name).filter(|_| link.kind.is_empty());
    let nodes: Vec<_> = context.host.allowed.iter().map(|cpu| cpu::node(*cpu)).collect();
    node_of(card, &nodes).alone()
}

/// `nodes`: of the CPUs that this process may use; `None` for a machine with one node.
fn node_of(card: Option<u32>, nodes: &[Option<u32>]) -> Answer {
    let Some(card) = card else { return Answer::ok("the device belongs to no node") };
    if nodes.iter().all(Option::is_none) {
        return Answer::ok("the machine has one node");
    }
    match nodes.iter().filter(|node| **node == Some(card)).count() {
        0 => Answer::warning(format!(
            "the card is on node {card}, and this process may use no CPU of that node"
        ))
        .by_hand(&format!("numactl --cpunodebind={card} linerate ...")),
        cpus => {
            let cpus = plural(cpus as u64, "CPU");
            Answer::ok(format!("the card is on node {card}, with {cpus}"))
        }
    }
}

/// Whether somebody needs both directions in one queue.
pub(super) const HASH_JOBS: &[Job] = &[Job::Capture, Job::Forward];

#[cfg(test)]
mod tests;
