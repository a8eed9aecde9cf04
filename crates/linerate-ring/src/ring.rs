//! [`Ring`]: what all rings have in common, with static dispatch.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::{Frame, Result};

/// Memory shared with the kernel, from which one reader takes frames in batches.
///
/// A reader that waits by means of its own sleeps on [`Ring::descriptors`], and only after [`Ring::arm`] has returned
/// false. While it is awake, the kernel's side sends it no wake-ups: one costs the core that receives more than a frame
/// does.
pub trait Ring {
    /// Frames that are lent until it is dropped.
    type Batch<'r>: Batch
    where
        Self: 'r;
    /// What the ring counts.
    type Statistics;

    /// Waits until a frame can be read: true. False when `timeout` is over or a signal came, and at once when nothing
    /// is left after [`Ring::stop`].
    ///
    /// # Errors
    /// [`Error::InterfaceDown`](crate::Error::InterfaceDown), once each time that it goes down: the ring goes on when it
    /// comes up. [`Error::InterfaceGone`](crate::Error::InterfaceGone) from then on. Both after the frames that came
    /// before. [`Error::System`](crate::Error::System).
    fn wait(&mut self, timeout: Duration) -> Result<bool>;

    /// Whether a frame can be read.
    fn ready(&mut self) -> bool;

    /// Whether every frame that the kernel has delivered was lent.
    #[inline]
    fn is_empty(&mut self) -> bool {
        !self.ready()
    }

    /// The frames that have come, up to the size of a batch; `None` when there are none. The kernel gets the memory of
    /// those that were read when the batch is dropped; those that were not are in the next batch.
    fn next_batch(&mut self) -> Option<Self::Batch<'_>>;

    /// Calls `take` for the frames of one batch until it returns false ([`Batch::drain`]).
    #[inline]
    fn drain(&mut self, take: impl FnMut(&Frame<'_>) -> bool) -> Drained {
        self.next_batch().map_or(Drained::Nothing, |batch| batch.drain(take))
    }

    /// Gives the kernel the memory of all that suspended batches have lent, so that descriptors are readable for new
    /// frames only; of a packet ring only when the whole block was lent.
    fn release(&mut self);

    /// Whether a frame can be read. If not, the ring is armed: the next frame makes one of [`Ring::descriptors`]
    /// readable. The default is for rings that the kernel wakes for whatever comes, as it does without these three.
    #[inline]
    fn arm(&mut self) -> bool {
        self.ready()
    }

    /// The reader is awake: nothing need wake it before the next [`Ring::arm`].
    #[inline]
    fn disarm(&mut self) {}

    /// From now on the ring is armed whenever no batch is lent: for a reader that may sleep at any time, without a look.
    fn keep_armed(&self) {}

    /// What to sleep on.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Lets no further frame in. What came before can still be read. Takes some tens of milliseconds.
    ///
    /// # Errors
    /// [`Error::Privilege`](crate::Error::Privilege), [`Error::System`](crate::Error::System): frames may then still
    /// come.
    fn stop(&mut self) -> Result<()>;

    /// The counts since the ring was made.
    fn statistics(&self) -> Result<Self::Statistics>;

    /// A handle that reads the counts while frames are lent, and from other threads. What the reader itself counts is 0
    /// in them.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System) when there is no descriptor left.
    fn statistics_reader(&self) -> Result<StatisticsReader<Self::Statistics>>;

    /// How full the memory is, 0 to 1.
    fn fill_level(&mut self) -> f32;
}

/// Reads the counts of a ring; made by [`Ring::statistics_reader`].
pub struct StatisticsReader<S>(Box<dyn Fn() -> Result<S> + Send + Sync>);

impl<S: 'static> StatisticsReader<S> {
    pub(crate) fn new(read: impl Fn() -> Result<S> + Send + Sync + 'static) -> Self {
        Self(Box::new(read))
    }

    /// The counts.
    pub fn read(&self) -> Result<S> {
        self.0()
    }

    /// A handle that reads them as the counts of a ring above.
    pub fn into<T: From<S> + 'static>(self) -> StatisticsReader<T> {
        StatisticsReader::new(move || self.read().map(T::from))
    }
}

impl<S> fmt::Debug for StatisticsReader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StatisticsReader")
    }
}

/// Frames of a ring, in the order of their arrival. The kernel gets their memory when it is dropped.
pub trait Batch: Sized {
    /// The next frame, or `None` at the end of the batch.
    fn next(&mut self) -> Option<Frame<'_>>;

    /// Stops here: the frames that were lent stay valid until the next call of [`Ring::next_batch`] or [`Ring::release`],
    /// and the others come next.
    fn suspend(self);

    /// Calls `take` for each frame until it returns false. After false, and where it unwinds, the batch is suspended.
    #[inline]
    fn drain(self, mut take: impl FnMut(&Frame<'_>) -> bool) -> Drained {
        let mut kept = Suspended(Some(self));
        let mut frames = 0;
        while let Some(frame) = kept.0.as_mut().and_then(Batch::next) {
            if !take(&frame) {
                return Drained::Enough;
            }
            frames += 1;
        }
        drop(kept.0.take());
        Drained::All(frames)
    }
}

/// Outcome of draining one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// There was none.
    Nothing,
    /// This many frames, every one of the batch.
    All(u64),
    /// The handler stopped.
    Enough,
}

/// A batch that is suspended if it is not taken out.
struct Suspended<B: Batch>(Option<B>);

impl<B: Batch> Drop for Suspended<B> {
    #[inline]
    fn drop(&mut self) {
        if let Some(batch) = self.0.take() {
            batch.suspend();
        }
    }
}

/// Implements [`Ring`] for `$type`, which has one of several rings: itself or its field `$field` is `$rings`, an enum
/// with one ring a variant. `$batch` is an enum with their batches, and the same variants.
#[macro_export]
macro_rules! ring_of_variants {
    (@mut $this:ident) => { $this };
    (@ref $this:ident) => { $this };
    (@mut $this:ident $field:ident) => { &mut $this.$field };
    (@ref $this:ident $field:ident) => { &$this.$field };
    ($type:ty, $rings:ident $(in $field:ident)?, $batch:ident, $statistics:ty, $($variant:ident),+) => {
        impl $crate::Ring for $type {
            type Batch<'r> = $batch<'r>;
            type Statistics = $statistics;

            fn wait(&mut self, timeout: std::time::Duration) -> $crate::Result<bool> {
                match $crate::ring_of_variants!(@mut self $($field)?) { $($rings::$variant(ring) => ring.wait(timeout),)+ }
            }
            #[inline]
            fn ready(&mut self) -> bool {
                match $crate::ring_of_variants!(@mut self $($field)?) { $($rings::$variant(ring) => ring.ready(),)+ }
            }
            #[inline]
            fn is_empty(&mut self) -> bool {
                match $crate::ring_of_variants!(@mut self $($field)?) { $($rings::$variant(ring) => ring.is_empty(),)+ }
            }
            #[inline]
            fn next_batch(&mut self) -> Option<$batch<'_>> {
                match $crate::ring_of_variants!(@mut self $($field)?) {
                    $($rings::$variant(ring) => ring.next_batch().map($batch::$variant),)+
                }
            }
            #[inline]
            fn drain(&mut self, take: impl FnMut(&$crate::Frame<'_>) -> bool) -> $crate::Drained {
                match $crate::ring_of_variants!(@mut self $($field)?) { $($rings::$variant(ring) => ring.drain(take),)+ }
            }
            #[inline]
            fn release(&mut self) {
                match $crate::ring_of_variants!(@mut self $($field)?) { $($rings::$variant(ring) => ring.release(),)+ }
            }
            #[inline]
            fn arm(&mut self) -> bool {
                match $crate::ring_of_variants!(@mut self $($field)?) { $($rings::$variant(ring) => ring.arm(),)+ }
            }
            #[inline]
            fn disarm(&mut self) {
                match $crate::ring_of_variants!(@mut self $($field)?) { $($rings::$variant(ring) => ring.disarm(),)+ }
            }
            fn keep_armed(&self) {
                match $crate::ring_of_variants!(@ref self $($field)?) { $($rings::$variant(ring) => ring.keep_armed(),)+ }
            }
            fn descriptors(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
                match $crate::ring_of_variants!(@ref self $($field)?) { $($rings::$variant(ring) => ring.descriptors(),)+ }
            }
            fn stop(&mut self) -> $crate::Result<()> {
                match $crate::ring_of_variants!(@mut self $($field)?) { $($rings::$variant(ring) => ring.stop(),)+ }
            }
            fn statistics(&self) -> $crate::Result<$statistics> {
                match $crate::ring_of_variants!(@ref self $($field)?) {
                    $($rings::$variant(ring) => ring.statistics().map(Into::into),)+
                }
            }
            fn statistics_reader(&self) -> $crate::Result<$crate::StatisticsReader<$statistics>> {
                Ok(match $crate::ring_of_variants!(@ref self $($field)?) {
                    $($rings::$variant(ring) => ring.statistics_reader()?.into(),)+
                })
            }
            fn fill_level(&mut self) -> f32 {
                match $crate::ring_of_variants!(@mut self $($field)?) { $($rings::$variant(ring) => ring.fill_level(),)+ }
            }
        }

        impl $crate::Batch for $batch<'_> {
            #[inline]
            fn next(&mut self) -> Option<$crate::Frame<'_>> {
                match self { $(Self::$variant(batch) => batch.next(),)+ }
            }
            #[inline]
            fn suspend(self) {
                match self { $(Self::$variant(batch) => batch.suspend(),)+ }
            }
            // Matched once a batch, and not for each frame.
            #[inline]
            fn drain(self, take: impl FnMut(&$crate::Frame<'_>) -> bool) -> $crate::Drained {
                match self { $(Self::$variant(batch) => batch.drain(take),)+ }
            }
        }
    };
}
