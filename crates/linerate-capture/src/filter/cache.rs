//! [`FilterCache`]: one expression, compiled once for each link type.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use super::{BIG_ENDIAN, ETHERNET, Filter, TagReading};
use crate::link_type::dlt;
use crate::{Error, Result};

/// How often the request to end is looked for while libpcap compiles.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// libpcap walks the graph of an expression by recursion, as deep as there are blocks, some for each term. A stack takes
/// memory only where it is used.
const MIN_STACK: usize = 2 << 20;
const STACK_PER_BYTE: usize = 2048;
const MAX_STACK: usize = 1 << 30;

/// Link types that [`FilterCache::check`] tries beside Ethernet: raw IP, 802.11 bare and with radiotap, Linux cooked 1
/// and 2, BSD loopback.
const OTHERS: [u16; 6] = [101, 105, 127, 113, 276, 0];

/// What an expression is compiled for: a link type, and the byte order of the numbers in its headers.
type FrameKind = (u16, bool);

/// The filters of an expression. libpcap takes seconds for one of thousands of terms, so none is compiled twice.
#[derive(Debug, Default)]
pub struct FilterCache {
    text: Option<String>,
    tags: Option<TagReading>,
    snaplen: u32,
    stop: Arc<AtomicBool>,
    compiled: Vec<(FrameKind, Arc<Filter>)>,
}

impl FilterCache {
    /// For `text`, where `None` and blanks accept everything, and packets of which up to `snaplen` bytes are kept.
    /// Setting `stop` ends a compilation.
    pub fn new(text: Option<&str>, tags: TagReading, snaplen: u32, stop: Arc<AtomicBool>) -> Self {
        let text = text.filter(|text| !text.trim().is_empty()).map(str::to_owned);
        Self { text, tags: Some(tags), snaplen, stop, compiled: Vec::new() }
    }

    /// The expression.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The filter for packets of this link type that come from a file of this byte order; `None` accepts everything.
    ///
    /// # Errors
    ///
    /// As [`Filter::compile_for_file`]; [`Error::Stopped`].
    pub fn of(&mut self, linktype: u16, big_endian: bool) -> Result<Option<&Arc<Filter>>> {
        let tags = self.tags.unwrap_or(TagReading::File);
        let snaplen = self.snaplen;
        self.get((linktype, big_endian), move |text| {
            Filter::compile_for_file(text, linktype, big_endian, snaplen, tags)
        })
    }

    /// The same for frames that this host makes.
    pub(crate) fn of_host(&mut self, linktype: u16) -> Result<Option<&Arc<Filter>>> {
        self.of(linktype, BIG_ENDIAN)
    }

    /// The filter for frames of this link type of the live `interface`. It serves others of the same link type.
    ///
    /// # Errors
    ///
    /// As [`Filter::compile_live`]; [`Error::Stopped`].
    pub(crate) fn of_interface(
        &mut self,
        interface: &str,
        linktype: u16,
    ) -> Result<Option<&Arc<Filter>>> {
        let (interface, snaplen) = (interface.to_owned(), self.snaplen);
        let kind = (linktype, BIG_ENDIAN);
        self.get(kind, move |text| Filter::compile_live(&interface, text, linktype, snaplen))
    }

    /// Refuses a text that is an expression for no link layer: for those who make or empty a file before they
    /// know which there are in what they read. `first` is the link type of the first packets, if it is known, and
    /// whether their file is big-endian.
    ///
    /// # Errors
    ///
    /// [`Error::Filter`], as for the first link type, or Ethernet; [`Error::Stopped`].
    pub fn check(&mut self, first: Option<FrameKind>) -> Result<()> {
        match first {
            Some((linktype, big_endian)) => {
                self.require_known(linktype)?;
                self.of(linktype, big_endian).map(drop)
            }
            None => check_all(|linktype| self.of_host(linktype).map(drop)),
        }
    }

    /// Refuses a text that is an expression for no link layer, without an interface. Sockets know more than files, such
    /// as `inbound`.
    ///
    /// # Errors
    ///
    /// As [`FilterCache::check`].
    pub fn check_for_sockets(&mut self) -> Result<()> {
        let snaplen = self.snaplen;
        check_all(|linktype| {
            let compile = move |text: &str| Filter::compile_for_socket(text, linktype, snaplen);
            self.get((linktype, BIG_ENDIAN), compile).map(drop)
        })
    }

    /// Refuses a link type that libpcap does not know, which has no filter: as tcpdump, also without an expression.
    ///
    /// # Errors
    ///
    /// [`Error::LinkType`].
    pub(crate) fn require_known(&self, linktype: u16) -> Result<()> {
        // The expression is compiled for it anyway.
        if self.text.is_some() || linktype == ETHERNET || OTHERS.contains(&linktype) {
            return Ok(());
        }
        let known = pcap::Capture::dead(pcap::Linktype(dlt(linktype)));
        let known = known.and_then(|handle| handle.compile("", false));
        known.map(drop).map_err(|_| Error::LinkType { linktype })
    }

    fn get(
        &mut self,
        kind: FrameKind,
        compile: impl FnOnce(&str) -> Result<Filter> + Send + 'static,
    ) -> Result<Option<&Arc<Filter>>> {
        let Some(text) = self.text.clone() else { return Ok(None) };
        let found = self.compiled.iter().position(|(compiled_for, _)| *compiled_for == kind);
        let position = match found {
            Some(position) => position,
            None => {
                let stack = MIN_STACK + text.len().saturating_mul(STACK_PER_BYTE).min(MAX_STACK);
                let filter = interruptible(&self.stop, stack, move || compile(&text))?;
                self.compiled.push((kind, Arc::new(filter)));
                self.compiled.len() - 1
            }
        };
        Ok(Some(&self.compiled[position].1))
    }
}

/// Whether one of the usual link types passes; else the error of Ethernet.
fn check_all(mut check: impl FnMut(u16) -> Result<()>) -> Result<()> {
    match check(ETHERNET) {
        Err(Error::Filter { .. }) if OTHERS.into_iter().any(|linktype| check(linktype).is_ok()) => {
            Ok(())
        }
        result => result,
    }
}

/// Runs `work` in a thread of its own, which is left behind when `stop` is set: libpcap cannot be interrupted.
fn interruptible<T: Send + 'static>(
    stop: &AtomicBool,
    stack: usize,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (done, result) = channel();
    let thread = std::thread::Builder::new()
        .name("filter".to_owned())
        .stack_size(stack)
        .spawn(move || drop(done.send(work())))
        .map_err(|source| Error::Thread { source })?;
    loop {
        match result.recv_timeout(POLL_INTERVAL) {
            Ok(result) => {
                // It has nothing left to do. A change of user needs all threads to be alike.
                let _ = thread.join();
                return result;
            }
            Err(RecvTimeoutError::Timeout) if stop.load(Relaxed) => return Err(Error::Stopped),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let panic = thread.join().expect_err("a thread that sends nothing has panicked");
                return Err(Error::panicked("filter".to_owned(), &*panic));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Libpcap needs minutes to compile so many, which is why the recursion stands alone here.
    #[test]
    fn work_has_the_stack_that_it_asks_for() {
        fn descend(levels: usize) -> usize {
            let frame = std::hint::black_box([levels; 64]);
            if levels == 0 { 0 } else { 1 + descend(frame[63] - 1) }
        }
        let stop = AtomicBool::new(false);
        let levels = 50_000;
        let stack = MIN_STACK + 4096 * levels;
        assert_eq!(interruptible(&stop, stack, move || Ok(descend(levels))).unwrap(), levels);
    }
}
