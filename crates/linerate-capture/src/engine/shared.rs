//! What the threads of a capture share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::Error;
use crate::split::SplitStatistics;

/// Something that the user should know while the capture runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The interface went down; the capture waits for it.
    Down(String),
    /// It is up again.
    Up(String),
    /// It was removed; the capture continues with the others.
    Gone(String),
    /// It is new, and captured, too.
    Appeared(String),
    /// Something became of what is traced on this interface.
    Notice(String, String),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down(name) => {
                write!(f, "interface {name} went down; waiting for it to come up again")
            }
            Self::Up(name) => write!(f, "interface {name} is up again"),
            Self::Appeared(name) => write!(f, "listening on {name}, too"),
            Self::Notice(name, what) => write!(f, "{name}: {what}"),
            Self::Gone(name) => {
                write!(f, "interface {name} is gone; the capture continues with the others")
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    /// Counts the requests to flush.
    pub(super) flush: AtomicU64,
    /// Packets that may still be captured, where there is a limit.
    remaining: Option<AtomicI64>,
    failure: Mutex<Option<Error>>,
    /// What all readers have split, with `--split`.
    split: Option<Mutex<SplitStatistics>>,
}

impl Shared {
    pub(super) fn new(count: Option<u64>, split: bool) -> Self {
        Self {
            stop: AtomicBool::new(false),
            flush: AtomicU64::new(0),
            remaining: count.map(|count| AtomicI64::new(i64::try_from(count).unwrap_or(i64::MAX))),
            failure: Mutex::new(None),
            split: split.then(Mutex::default),
        }
    }

    /// Claims one of the packets that are left; false if none is.
    #[inline]
    pub(super) fn claim(&self) -> bool {
        match &self.remaining {
            None => true,
            Some(remaining) => {
                let before = remaining.fetch_sub(1, Relaxed);
                if before <= 1 {
                    self.stop.store(true, Relaxed);
                }
                before >= 1
            }
        }
    }

    /// Whether all packets of the limit (`-c`) are claimed.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        self.remaining.as_ref().is_some_and(|remaining| remaining.load(Relaxed) <= 0)
    }

    /// Ends the capture because of an error; the first one counts.
    pub(super) fn fail(&self, error: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stop.store(true, Relaxed);
    }

    /// Adds what one reader has split.
    pub(super) fn add_split(&self, more: &SplitStatistics) {
        if let Some(split) = &self.split {
            let mut statistics = split.lock().unwrap_or_else(PoisonError::into_inner);
            *statistics = statistics.plus(more);
        }
    }

    /// What was split so far.
    pub(super) fn split(&self) -> Option<SplitStatistics> {
        self.split.as_ref().map(|split| *split.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn take_failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
