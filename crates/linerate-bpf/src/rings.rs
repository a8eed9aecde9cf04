//! [`RingArray`]: the ring buffers that the programs of `bpf/records.h` copy frames to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use linerate_net::{Interface, cpu, link};

use crate::map::update_fd;
use crate::sys::{options, owned};
use crate::{Error, Result};

/// How many ring buffers there are, and which of them gets a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// Ring buffers, at least 1.
    pub rings: u32,
    /// The number of the CPU selects the ring, instead of that of the receive queue. Numbers beyond the last
    /// ring start again at the first.
    pub by_cpu: bool,
    /// Receive queues of the interface. Queues that it gets later are counted together.
    pub queues: u32,
}

impl RingLayout {
    /// One ring buffer for everything.
    pub const ONE: Self = Self { rings: 1, by_cpu: true, queues: 1 };

    /// A ring for each receive queue, or for each CPU where there are more queues than CPUs; `rings` asks for
    /// another number. Without `timestamps` queues select the ring in any case: a flow that moves to another CPU
    /// would get out of order.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System) when the kernel does not tell how many queues there are.
    pub fn new(interface: &Interface, rings: Option<u32>, timestamps: bool) -> Result<Self> {
        let queues = interface.rx_queues()?;
        Ok(Self::of(queues, cpu::online().len() as u32, rings, timestamps))
    }

    fn of(queues: u32, cpus: u32, rings: Option<u32>, timestamps: bool) -> Self {
        let rings = rings.unwrap_or(queues.min(cpus)).max(1);
        Self { rings, by_cpu: timestamps && rings < queues, queues }
    }

    /// The ring of the frames that `cpu` gets from `queue`, as `ring_index` of `bpf/records.h` computes it.
    pub(crate) fn ring(&self, queue: u32, cpu: u32) -> u32 {
        (if self.by_cpu { cpu } else { queue }) % self.rings
    }

    /// The CPU whose number selects the ring; `None` where queues do.
    pub fn cpu(&self, ring: u32) -> Option<u32> {
        self.by_cpu.then_some(ring)
    }

    /// The NUMA node for the memory of each ring, where the machine has several: the reader and the CPU that
    /// fills it are there.
    fn nodes(&self, interface: Option<&Interface>) -> Option<Vec<u32>> {
        let of_card = interface.and_then(|interface| link::numa_node(interface.name()));
        let node = |ring| match self.cpu(ring) {
            Some(cpu) => cpu::node(cpu as usize),
            None => of_card,
        };
        // The rings of one array have the same flags: a node each, or none.
        (0..self.rings).map(node).collect()
    }
}

/// The ring buffers, before and after they are in the array of the programs.
#[derive(Debug)]
pub(crate) struct RingArray {
    rings: Vec<OwnedFd>,
    size: u32,
}

impl RingArray {
    /// Makes the ring buffers of `layout`, of `size` bytes each, a power of two.
    pub(crate) fn new(
        layout: &RingLayout,
        size: u32,
        interface: Option<&Interface>,
    ) -> Result<Self> {
        let nodes = layout.nodes(interface);
        let node = |ring: u32| nodes.as_ref().map(|nodes| nodes[ring as usize]);
        let rings =
            (0..layout.rings).map(|ring| create(size, node(ring))).collect::<Result<_>>()?;
        Ok(Self { rings, size })
    }

    /// The ring whose kind the array has to be made for.
    pub(crate) fn template(&self) -> BorrowedFd<'_> {
        self.rings[0].as_fd()
    }

    /// Puts the rings into `array`, where the programs find them.
    pub(crate) fn insert(&self, array: BorrowedFd<'_>) -> Result<()> {
        for (index, ring) in (0..).zip(&self.rings) {
            update_fd(array, index, ring.as_fd(), libbpf_sys::BPF_ANY)
                .map_err(|errno| Error::bpf("put a ring buffer into the array of rings", errno))?;
        }
        Ok(())
    }

    /// The ring buffers (`BPF_MAP_TYPE_RINGBUF`).
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(AsFd::as_fd)
    }

    /// Bytes of each.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }
}

/// The size of a ring buffer that holds `bytes`: a power of two of whole pages, at most 1 GiB.
pub(crate) fn ring_size(bytes: usize) -> Result<u32> {
    match bytes.max(rustix::param::page_size()).checked_next_power_of_two() {
        Some(size) if size <= 1 << 30 => Ok(size as u32),
        _ => Err(Error::Invalid(format!("a tee buffer of {bytes} bytes: 1 GiB is the most"))),
    }
}

/// A ring buffer of `size` bytes, in the memory of `node`.
fn create(size: u32, node: Option<u32>) -> Result<OwnedFd> {
    let options = options!(bpf_map_create_opts {
        map_flags: node.map_or(0, |_| libbpf_sys::BPF_F_NUMA_NODE),
        numa_node: node.unwrap_or(0),
    });
    let (name, kind) = (c"records".as_ptr(), libbpf_sys::BPF_MAP_TYPE_RINGBUF);
    // SAFETY: a C string, and options that carry their size; the descriptor is new.
    unsafe {
        let fd = libbpf_sys::bpf_map_create(kind, name, 0, 0, size, &options);
        owned(fd, format!("make a ring buffer of {size} bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::RingLayout;

    #[test]
    fn queues_have_rings_while_there_are_cpus_for_them() {
        let layout = |queues, cpus| RingLayout::of(queues, cpus, None, true);
        let by_queue = |queues, rings| RingLayout { rings, by_cpu: false, queues };
        let by_cpu = |queues, rings| RingLayout { rings, by_cpu: true, queues };
        assert_eq!(layout(1, 1), by_queue(1, 1));
        assert_eq!(layout(1, 8), by_queue(1, 1));
        assert_eq!(layout(8, 8), by_queue(8, 8));
        assert_eq!(layout(64, 2), by_cpu(64, 2));
        assert_eq!(RingLayout::of(64, 2, Some(64), true), by_queue(64, 64));
        assert_eq!(RingLayout::of(2, 2, Some(1), true), by_cpu(2, 1));
        // Nothing else would keep a flow in order.
        assert_eq!(RingLayout::of(64, 2, None, false), by_queue(64, 2));
    }

    #[test]
    fn every_queue_and_cpu_has_a_ring() {
        let of = |queues, cpus, stamps| RingLayout::of(queues, cpus, None, stamps);
        for layout in [of(3, 8, true), of(64, 2, true), of(64, 2, false), RingLayout::ONE] {
            for (queue, cpu) in [(0, 0), (2, 5), (63, 127), (200, 1)] {
                assert!(layout.ring(queue, cpu) < layout.rings);
            }
        }
    }
}
