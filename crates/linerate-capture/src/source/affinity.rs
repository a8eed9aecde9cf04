//! The CPUs of several readers of an interface: beside the interrupts of their queues.

use linerate_net::{cpu, interrupts, link};
use linerate_ring::receiver::Share;

use super::Source;

/// The CPUs for each reader; empty for one reader, and for packet sockets, whose group has no queues of its own.
pub(super) fn of_readers(interface: &str, sources: &[Source]) -> Vec<Vec<usize>> {
    let share = |source: &Source| match source {
        Source::Xdp(receiver) => Some(receiver.share()),
        Source::Packet(_) | Source::Trace(_) => None,
    };
    let shares: Option<Vec<Share>> = sources.iter().map(share).collect();
    let Some(shares) = shares.filter(|shares| shares.len() > 1) else { return Vec::new() };
    let interrupts = interrupts::of_queues(interface);
    let allowed = cpu::allowed().unwrap_or_default();
    let near = near(&allowed, link::numa_node(interface));
    let of_reader = |(number, share): (usize, &Share)| {
        let mut cpus: Vec<usize> = match share {
            Share::Cpus(cpus) => cpus.clone(),
            Share::Queues(queues) => {
                queues.iter().filter_map(|queue| interrupts.get(queue)).flatten().copied().collect()
            }
        };
        cpus.retain(|cpu| allowed.contains(cpu));
        cpus.sort_unstable();
        cpus.dedup();
        if cpus.is_empty() && !near.is_empty() { vec![near[number % near.len()]] } else { cpus }
    };
    shares.iter().enumerate().map(of_reader).collect()
}

/// Those of `allowed` on the node of the card, or all of them.
fn near(allowed: &[usize], node: Option<u32>) -> Vec<usize> {
    let on_node = |cpu: &usize| node.is_some() && cpu::node(*cpu) == node;
    let found: Vec<_> = allowed.iter().copied().filter(on_node).collect();
    if found.is_empty() { allowed.to_vec() } else { found }
}
