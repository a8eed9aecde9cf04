//! [`of_queues`]: on which CPUs the receive queues of an interface have their interrupts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::cpu::parse_list;

/// The CPUs that take the interrupts of the receive queues of `interface`, by the number of the queue. Queues are
/// missing whose interrupt is not known: those of virtual interfaces, and of drivers that do not name the queue in
/// `/proc/interrupts`. sysfs shows the interfaces of the network namespace that it was mounted in.
pub fn of_queues(interface: &str) -> BTreeMap<u32, Vec<usize>> {
    let numbers = numbers(interface);
    let all = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let mut queues = BTreeMap::new();
    for (number, name) in names(&all) {
        if numbers.contains(&number)
            && let Some(queue) = queue(name)
            && let Some(cpus) = affinity(number)
        {
            queues.entry(queue).or_insert(cpus);
        }
    }
    queues
}

/// The interrupts of the device behind an interface. The device of a virtio interface has a parent on the bus.
fn numbers(interface: &str) -> Vec<u32> {
    let device = Path::new("/sys/class/net").join(interface).join("device");
    let list = |path: &str| fs::read_dir(device.join(path)).ok();
    let entries = list("msi_irqs").or_else(|| list("../msi_irqs"));
    let number =
        |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    entries.into_iter().flatten().filter_map(number).collect()
}

/// Every numbered interrupt of `/proc/interrupts` with the last word of its line, the name of its handler.
fn names(text: &str) -> impl Iterator<Item = (u32, &str)> {
    text.lines().filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        Some((number.trim().parse().ok()?, rest.split_whitespace().last()?))
    })
}

/// The receive queue that the handler of this name serves.
fn queue(name: &str) -> Option<u32> {
    // mlx5_comp3@pci:0000:01:00.0
    let name = name.split('@').next()?.to_ascii_lowercase();
    let receives = ["rx", "input", "comp"].iter().any(|part| name.contains(part));
    let start = name.rfind(|c: char| !c.is_ascii_digit())? + 1;
    if receives { name[start..].parse().ok() } else { None }
}

/// The CPUs that an interrupt arrives at.
fn affinity(number: u32) -> Option<Vec<usize>> {
    let read = |name| fs::read_to_string(format!("/proc/irq/{number}/{name}")).ok();
    let cpus = |name| read(name).map(|text| parse_list(&text)).filter(|cpus| !cpus.is_empty());
    cpus("effective_affinity_list").or_else(|| cpus("smp_affinity_list"))
}

#[cfg(test)]
mod tests;
