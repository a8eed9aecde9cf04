//! [`Umem`]: a region cut into chunks that sockets receive into and send from.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::region::base_page_size;
use crate::{Error, Region, Result};

/// Bytes that the kernel keeps free in front of a received frame (`XDP_PACKET_HEADROOM`); metadata
/// of the XDP program and a restored VLAN tag live there.
pub const HEADROOM: u32 = 256;

/// A region cut into chunks of one size, shared by any number of sockets of this process.
///
/// Each socket takes chunks of its own when it is built, and they come back when it is dropped.
#[derive(Debug)]
pub struct Umem {
    region: Region,
    chunk_size: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    /// Chunks that no socket has, by number.
    free: Vec<Range<u32>>,
    /// Sockets that know this UMEM, through any of which another one can get at it.
    pub(crate) sockets: Vec<Weak<OwnedFd>>,
    /// Whether the first of them got multi-buffer frames; the others get the same.
    pub(crate) multi_buffer: bool,
}

impl Umem {
    /// The sizes of a chunk that the kernel takes with small pages of 4,096 bytes.
    const CHUNKS: [u32; 2] = [2048, 4096];

    /// Bytes of the smallest chunk that holds a frame of `len` bytes; `None` where none is large enough.
    pub fn chunk_for(len: u32) -> Option<u32> {
        Self::CHUNKS.into_iter().find(|chunk| len <= chunk - HEADROOM)
    }

    /// Cuts `region` into chunks of `chunk` bytes: a power of two from 2,048 to the size of a small
    /// page (the rules of `xdp_umem_reg` in `net/xdp/xdp_umem.c`). A frame of up to
    /// `chunk - HEADROOM` bytes fits in one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a chunk size or a region that the kernel would refuse.
    pub fn new(region: Region, chunk: u32) -> Result<Arc<Self>> {
        let page = base_page_size() as u32;
        if !chunk.is_power_of_two() || !(2048..=page).contains(&chunk) {
            return Err(Error::Invalid(format!(
                "a UMEM chunk of {chunk} bytes: the kernel takes powers of two from 2048 to {page}"
            )));
        }
        let chunks = u32::try_from(region.len() / chunk as usize).map_err(|_| {
            Error::Invalid(format!("a UMEM of {} bytes: too many chunks", region.len()))
        })?;
        let free = std::iter::once(0..chunks).collect();
        let state = State { free, sockets: Vec::new(), multi_buffer: false };
        Ok(Arc::new(Self { region, chunk_size: chunk, state: Mutex::new(state) }))
    }

    /// The memory, and which pages it got.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Bytes of one chunk.
    pub fn chunk_size(&self) -> u32 {
        self.chunk_size
    }

    /// The number of chunks in the region, taken or not.
    pub fn chunks(&self) -> u32 {
        (self.region.len() / self.chunk_size as usize) as u32
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes `count` chunks that nobody else has.
    pub(crate) fn alloc(&mut self, count: u32) -> Result<Vec<Range<u32>>> {
        let available: u32 = self.free.iter().map(|range| range.end - range.start).sum();
        if count > available {
            return Err(Error::Invalid(format!(
                "a socket wants {count} chunks of a UMEM that has {available} left; make the region \
                 larger or ask for fewer"
            )));
        }
        let (mut taken, mut wanted) = (Vec::new(), count);
        while wanted > 0 {
            let range = self.free.pop().expect("enough chunks were counted");
            let cut = wanted.min(range.end - range.start);
            taken.push(range.start..range.start + cut);
            if range.start + cut < range.end {
                self.free.push(range.start + cut..range.end);
            }
            wanted -= cut;
        }
        Ok(taken)
    }

    /// Gives chunks back.
    pub(crate) fn free(&mut self, chunks: Vec<Range<u32>>) {
        self.free.extend(chunks);
    }
}

/// Chunks that a socket has; they go back when this is dropped, which must be after the socket has
/// closed, since the kernel may write to them until then. Both halves of a socket have it: the one that closes the
/// descriptor gives up the chunks after that.
#[derive(Debug)]
pub(super) struct Chunks {
    umem: Arc<Umem>,
    ranges: Vec<Range<u32>>,
}

impl Chunks {
    pub(super) fn new(umem: &Arc<Umem>, ranges: Vec<Range<u32>>) -> Self {
        Self { umem: Arc::clone(umem), ranges }
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        self.umem.state().free(std::mem::take(&mut self.ranges));
    }
}
