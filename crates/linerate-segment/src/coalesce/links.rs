//! [`Links`]: the position of a flow in the lists of the table.

/// No flow: the end of a list.
pub(super) const NONE: u16 = u16::MAX;

/// Where a flow stands in the lists of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    pub(super) chains: [Chain; 2],
    /// The flow that began before this one.
    pub(super) older: u16,
    /// The flow that began after this one, or the next free one.
    pub(super) newer: u16,
}

/// A flow's place in one of the hash tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) hash: u32,
    /// First flow of the bucket with this flow's index, which has nothing else to do with this flow.
    pub(super) bucket: u16,
    /// The flow of the same bucket that began before this one.
    pub(super) next: u16,
    /// The one that began after it.
    pub(super) previous: u16,
}

impl Links {
    const NOWHERE: Chain = Chain { hash: 0, bucket: NONE, next: NONE, previous: NONE };
    pub(super) const UNUSED: Self = Self { chains: [Self::NOWHERE; 2], older: NONE, newer: NONE };
}
