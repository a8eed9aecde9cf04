//! Which CPU does what.

use linerate_net::cpu;

/// The CPU of the generator (and with it of the receiving interface's NAPI, which runs where the frames
/// are handed over) and the CPU of the consumer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    /// The generator's CPU.
    pub(crate) generator: usize,
    /// The consumer's CPU; the same one on a machine with a single CPU.
    pub(crate) consumer: usize,
}

impl Cores {
    /// The first two CPUs that this process may use.
    pub(crate) fn choose() -> Self {
        let allowed = cpu::allowed().unwrap_or_default();
        let generator = allowed.first().copied().unwrap_or(0);
        Self { generator, consumer: allowed.get(1).copied().unwrap_or(generator) }
    }
}
