//! Which of the system's handles have one of Linerate's sources.
//!
//! The table is read for every call, by signal handlers too (`pcap_breakloop`), so reading it takes no
//! lock: it is a list of nodes that are never freed and used again when their handle was closed.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::abi::Pcap;
use crate::live::Live;
use crate::select;

/// A handle that the program made with `pcap_create`.
pub(crate) struct Handle {
    /// The interface; `None` for all of them.
    pub(crate) device: Option<String>,
    /// The options that the program set before activation. No per-packet call uses them.
    pub(crate) options: Mutex<HandleOptions>,
    /// The source, once it is activated.
    pub(crate) live: OnceLock<Box<Live>>,
}

/// The values of the setters, where libpcap accepted them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandleOptions {
    pub(crate) snaplen: i32,
    /// Milliseconds.
    pub(crate) timeout: i32,
    pub(crate) buffer: i32,
    pub(crate) timestamp_type: i32,
    pub(crate) immediate: bool,
    pub(crate) monitor: bool,
    /// Frames of one EtherType only.
    pub(crate) protocol: i32,
}

struct Node {
    key: AtomicPtr<Pcap>,
    handle: AtomicPtr<Handle>,
    next: AtomicPtr<Node>,
}

static FIRST: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());
/// Held by those who change the list.
static WRITER: Mutex<()> = Mutex::new(());

fn nodes() -> impl Iterator<Item = &'static Node> {
    let mut next = &FIRST;
    std::iter::from_fn(move || {
        // SAFETY: null, or a node, which is never freed; Acquire makes its contents visible.
        let node = unsafe { next.load(Ordering::Acquire).as_ref() }?;
        next = &node.next;
        Some(node)
    })
}

/// The entry of `pcap`; `None` for handles of the system alone. Valid until the program closes the handle.
#[inline]
pub(crate) fn find(pcap: *mut Pcap) -> Option<&'static Handle> {
    if pcap.is_null() {
        return None;
    }
    let node = nodes().find(|node| node.key.load(Ordering::Acquire) == pcap)?;
    // SAFETY: set before the key, and freed only by `remove`.
    unsafe { node.handle.load(Ordering::Acquire).as_ref() }
}

/// The source of `pcap`, if it has one.
#[inline]
pub(crate) fn live(pcap: *mut Pcap) -> Option<&'static Live> {
    find(pcap)?.live.get().map(|live| &**live)
}

/// The interface of the handle whose descriptor this is, if that is no socket.
pub(crate) fn without_socket(fd: c_int) -> Option<String> {
    // Handles of other threads are looked at: none is freed meanwhile.
    let _writer = WRITER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    nodes().find_map(|node| {
        // SAFETY: null, or a handle that is freed by who holds `WRITER` only.
        let handle = unsafe { node.handle.load(Ordering::Acquire).as_ref() }?;
        let live = handle.live.get().filter(|live| !live.shared.is_packet())?;
        handle.device.clone().filter(|_| live.shared.fd == fd)
    })
}

/// Adds a handle that the system has just made.
pub(crate) fn add(pcap: *mut Pcap, handle: Handle) {
    // The system may have freed a handle and made another at its address without a call of `remove`.
    remove(pcap);
    let _writer = WRITER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let handle = Box::into_raw(Box::new(handle));
    if let Some(node) = nodes().find(|node| node.key.load(Ordering::Relaxed).is_null()) {
        node.handle.store(handle, Ordering::Relaxed);
        node.key.store(pcap, Ordering::Release);
        return;
    }
    let node = Box::leak(Box::new(Node {
        key: AtomicPtr::new(pcap),
        handle: AtomicPtr::new(handle),
        next: AtomicPtr::new(FIRST.load(Ordering::Relaxed)),
    }));
    FIRST.store(node, Ordering::Release);
}

/// Removes a handle and closes its source.
pub(crate) fn remove(pcap: *mut Pcap) {
    select::forget_readable();
    let _writer = WRITER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(node) = nodes().find(|node| node.key.load(Ordering::Relaxed) == pcap) {
        node.key.store(ptr::null_mut(), Ordering::Release);
        let handle = node.handle.swap(ptr::null_mut(), Ordering::AcqRel);
        if !handle.is_null() {
            // SAFETY: made by `add`, and nobody uses a handle that the program closes.
            drop(unsafe { Box::from_raw(handle) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(device: &str) -> Handle {
        Handle { device: Some(device.to_owned()), options: Mutex::default(), live: OnceLock::new() }
    }

    #[test]
    fn handles_come_and_go_and_nodes_stay() {
        let (mut one, mut two) = (0_u64, 0_u64);
        let (a, b): (*mut Pcap, *mut Pcap) = ((&raw mut one).cast(), (&raw mut two).cast());
        assert!(find(a).is_none() && find(ptr::null_mut()).is_none());
        for _ in 0..1000 {
            add(a, handle("a"));
            add(b, handle("b"));
            assert_eq!(find(b).and_then(|found| found.device.as_deref()), Some("b"));
            remove(a);
            assert!(find(a).is_none());
            assert_eq!(find(b).and_then(|found| found.device.as_deref()), Some("b"));
            // The same address again, without a word that it was closed.
            add(b, handle("c"));
            assert_eq!(find(b).and_then(|found| found.device.as_deref()), Some("c"));
            remove(b);
        }
        assert!(nodes().count() <= 2);
    }
}
