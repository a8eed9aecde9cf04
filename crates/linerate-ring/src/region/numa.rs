//! NUMA nodes: which node to allocate from, and on which node a mapping actually is.

use std::fs;

/// The node of all pages of the mapping at `start`, from `/proc/self/numa_maps`; `None` when they are spread,
/// or the kernel does not count them.
pub(super) fn node_of_mapping(start: usize) -> Option<u32> {
    node_in(&fs::read_to_string("/proc/self/numa_maps").ok()?, start)
}

fn node_in(maps: &str, start: usize) -> Option<u32> {
    let line = maps.lines().find(|line| {
        let address = line.split(' ').next().unwrap_or_default();
        usize::from_str_radix(address, 16) == Ok(start)
    })?;
    let mut nodes = line.split(' ').filter_map(|word| {
        let (node, _pages) = word.strip_prefix('N')?.split_once('=')?;
        node.parse().ok()
    });
    let first = nodes.next()?;
    nodes.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "7f0000000000 bind:1 anon=4 dirty=4 N1=4 kernelpagesize_kB=4\n\
                        7f0000200000 default anon=4 dirty=4 N0=3 N1=1 kernelpagesize_kB=4\n";

    #[test]
    fn a_mapping_on_one_node_has_it_and_a_spread_one_has_none() {
        assert_eq!(node_in(MAPS, 0x7f00_0000_0000), Some(1));
        assert_eq!(node_in(MAPS, 0x7f00_0020_0000), None);
        assert_eq!(node_in(MAPS, 0x1000), None);
    }
}
