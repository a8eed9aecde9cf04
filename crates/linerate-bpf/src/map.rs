//! BPF maps from user space: [`MappedArray`] as memory, [`batch`] for hash maps, and single entries.
//!
//! An array made with `BPF_F_MMAPABLE` is contiguous memory that programs index and user space maps
//! (`array_map_mmap` in `kernel/bpf/arraymap.c`): reading or changing an entry takes no system call. Programs
//! write it at any moment, on any CPU, so user space sees atomics only; both sides must agree on which of
//! them belong together. Hash maps cannot be mapped: [`batch`] is for those.

pub mod batch;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

pub use rustix::mm::ProtFlags;

use libbpf_rs::{MapHandle, MapType};
use rustix::mm::MapFlags;

use crate::sys::{check, options};
use crate::{Error, Result};

mod sealed {
    /// Limits [`super::AtomicField`] to types for which any bytes are valid and that may change behind a `&`.
    pub trait Sealed {}
}

/// An atomic in a mapped array.
///
/// Access one place with one size: Rust's memory model does not cover mixed sizes.
pub trait AtomicField: sealed::Sealed {}

macro_rules! atomic_fields {
    ($($atomic:ty),*) => { $(
        impl sealed::Sealed for $atomic {}
        impl AtomicField for $atomic {}
    )* };
}

atomic_fields!(AtomicU8, AtomicU16, AtomicU32, AtomicU64);

/// A mapped BPF array, unmapped on drop. The kernel keeps the array while it is mapped.
///
/// ```no_run
/// # fn main() -> linerate_bpf::Result<()> {
/// # let map: std::os::fd::BorrowedFd<'_> = todo!();
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let counters = linerate_bpf::map::MappedArray::new(map)?;
/// let packets = counters.atomic::<AtomicU64>(0, 8).load(Ordering::Relaxed);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MappedArray {
    mapping: SharedMapping,
    max_entries: usize,
    value_size: usize,
    stride: usize,
}

impl MappedArray {
    /// Maps all of `map`, for reading and writing.
    ///
    /// The kernel enters every page at once: 8 bytes of page table for each 4 KiB of the array.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is no array, or one that was not made to be mapped;
    /// [`Error::Privilege`] when it may only be read; [`Error::System`].
    pub fn new(map: BorrowedFd<'_>) -> Result<Self> {
        let info = info(map)?;
        let name = name(&info);
        if info.type_ != libbpf_sys::BPF_MAP_TYPE_ARRAY
            || info.map_flags & libbpf_sys::BPF_F_MMAPABLE == 0
        {
            return Err(Error::Invalid(format!(
                "the BPF map {name} is not an array made with BPF_F_MMAPABLE and cannot be mapped"
            )));
        }
        let value_size = info.value_size as usize;
        // `array_map_alloc` rounds so.
        let stride = value_size.next_multiple_of(8);
        let entries = info.max_entries as usize;
        let mapping =
            SharedMapping::new(map, entries * stride, 0, ProtFlags::READ | ProtFlags::WRITE)
                .map_err(|error| {
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    Error::bpf(format!("map the BPF array {name}"), errno)
                })?;
        Ok(Self { mapping, max_entries: entries, value_size, stride })
    }

    /// How many entries the array has.
    pub fn max_entries(&self) -> usize {
        self.max_entries
    }

    /// Bytes of a value.
    pub fn value_size(&self) -> usize {
        self.value_size
    }

    /// Bytes that the array takes in the kernel, page tables not counted.
    pub fn bytes(&self) -> usize {
        self.max_entries * self.stride
    }

    /// The atomic `offset` bytes into the value of `entry`.
    ///
    /// # Panics
    /// When there is no such entry, or the offset is not within a value and a multiple of the size.
    #[inline]
    pub fn atomic<C: AtomicField>(&self, entry: usize, offset: usize) -> &C {
        assert!(entry < self.max_entries && offset < self.value_size);
        assert!(size_of::<C>() <= self.value_size - offset);
        assert!(offset.is_multiple_of(size_of::<C>()));
        // SAFETY: within the mapping by the first two assertions. Aligned: pages are, strides are
        // multiples of eight bytes, offsets of the size. Any bytes are a value of a sealed `AtomicField`, and
        // the mapping lives as long as `self`.
        unsafe { self.mapping.base.add(entry * self.stride + offset).cast().as_ref() }
    }

    /// `count` consecutive atomics, `offset` bytes into the value of `entry`.
    ///
    /// # Panics
    /// When there is no such entry, they are not within a value, or the offset is not a multiple of
    /// the size.
    #[inline]
    pub fn atomics<C: AtomicField>(&self, entry: usize, offset: usize, count: usize) -> &[C] {
        assert!(entry < self.max_entries && offset <= self.value_size);
        assert!(count <= (self.value_size - offset) / size_of::<C>());
        assert!(offset.is_multiple_of(size_of::<C>()));
        // SAFETY: within the mapping by the first two assertions, aligned and valid as in `atomic`.
        unsafe {
            let start = self.mapping.base.add(entry * self.stride + offset).cast();
            std::slice::from_raw_parts(start.as_ptr(), count)
        }
    }
}

/// The kernel's information about a map.
fn info(map: BorrowedFd<'_>) -> Result<libbpf_sys::bpf_map_info> {
    let info = libbpf_rs::MapInfo::new(map)
        .map_err(|error| Error::system("read the sizes of a BPF map", io::Error::other(error)))?;
    Ok(info.info)
}

fn name(info: &libbpf_sys::bpf_map_info) -> String {
    let bytes = info.name.iter().take_while(|byte| **byte != 0);
    bytes.map(|byte| char::from(*byte as u8)).collect()
}

/// A new array with one entry of `value_size` bytes.
///
/// # Errors
/// The error of libbpf.
pub fn create_array(name: &str, value_size: u32) -> libbpf_rs::Result<MapHandle> {
    new_array(name, value_size, 1, 0)
}

/// A new array of `entries` values of `value_size` bytes, for [`MappedArray`].
///
/// # Errors
/// The error of libbpf.
pub fn create_mappable_array(
    name: &str,
    value_size: u32,
    entries: u32,
) -> libbpf_rs::Result<MapHandle> {
    new_array(name, value_size, entries, libbpf_sys::BPF_F_MMAPABLE)
}

fn new_array(name: &str, size: u32, entries: u32, flags: u32) -> libbpf_rs::Result<MapHandle> {
    let options = options!(bpf_map_create_opts { map_flags: flags });
    MapHandle::create(MapType::Array, Some(name), 4, size, entries, &options)
}

/// Element `key` of a per-CPU array of `N` counters each, for every possible CPU.
pub(crate) fn counters_of_cpus<const N: usize>(
    map: BorrowedFd<'_>,
    key: u32,
) -> Result<Vec<[u64; N]>> {
    let cpus = libbpf_rs::num_possible_cpus()
        .map_err(|error| Error::Invalid(format!("cannot count the CPUs: {error}")))?;
    let mut values = vec![[0u64; N]; cpus];
    // SAFETY: the kernel writes one value of `8 * N` bytes per possible CPU.
    let answer = unsafe {
        libbpf_sys::bpf_map_lookup_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            values.as_mut_ptr().cast(),
        )
    };
    check(answer, "read the counters of an XDP program").map(|()| values)
}

/// Element 0 of a per-CPU array of `N` counters each, summed over all CPUs.
pub(crate) fn sum_over_cpus<const N: usize>(map: BorrowedFd<'_>) -> Result<[u64; N]> {
    let mut sum = [0; N];
    for value in counters_of_cpus::<N>(map, 0)? {
        sum.iter_mut().zip(value).for_each(|(sum, value)| *sum += value);
    }
    Ok(sum)
}

/// Puts a descriptor in a map of descriptors; else the error number.
pub(crate) fn update_fd(
    map: BorrowedFd<'_>,
    key: u32,
    value: BorrowedFd<'_>,
    flags: u32,
) -> std::result::Result<(), i32> {
    let value = value.as_raw_fd();
    // SAFETY: a map with keys and values of four bytes, both ours.
    let answer = unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            (&raw const value).cast(),
            u64::from(flags),
        )
    };
    if answer < 0 { Err(-answer) } else { Ok(()) }
}

/// Pages that are shared with the kernel through a descriptor: of a BPF map, or of a socket's ring. Unmapped on
/// drop.
#[derive(Debug)]
pub struct SharedMapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to the thread that made it.
unsafe impl Send for SharedMapping {}
// SAFETY: only the address can be read; who reads or writes the memory says why that is sound.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps `len` bytes from `offset`; no later access faults (`MAP_POPULATE`).
    pub fn new(
        fd: BorrowedFd<'_>,
        len: usize,
        offset: u64,
        protection: ProtFlags,
    ) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a fresh mapping at an address of the kernel's choice, no existing memory is touched.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) }?;
        let base = NonNull::new(base.cast()).expect("mmap returns no null mapping");
        Ok(Self { base, len })
    }

    /// The first byte. The kernel may write to the memory at any moment.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// The byte at `offset`.
    ///
    /// # Panics
    /// When the mapping is not that long.
    #[inline]
    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len);
        // SAFETY: the offset is inside the mapping.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests;
