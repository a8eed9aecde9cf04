//! Hash maps in batches: one system call for thousands of entries, per-CPU maps included.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys::options;
use crate::{Error, Result};

/// Entries requested by one call. A bucket of the kernel's hash must fit, which is a few entries.
const BATCH: u32 = 4096;

/// Calls `each` with the key and the value of every entry of the hash map `map`. Of a per-CPU map the value
/// is those of all possible CPUs, one after the other, each rounded up to eight bytes. Entries that are
/// created or deleted concurrently may or may not be visited; none is visited twice.
///
/// # Errors
/// [`Error::Privilege`], [`Error::System`], `EINVAL` for maps without batch operations.
pub fn for_each(map: BorrowedFd<'_>, mut each: impl FnMut(&[u8], &[u8])) -> Result<()> {
    let action = "read a BPF map in batches";
    let info = super::info(map)?;
    let key_size = info.key_size as usize;
    let is_per_cpu = matches!(
        info.type_,
        libbpf_sys::BPF_MAP_TYPE_PERCPU_HASH | libbpf_sys::BPF_MAP_TYPE_LRU_PERCPU_HASH
    );
    let value_size = match is_per_cpu {
        true => {
            let cpus = libbpf_rs::num_possible_cpus()
                .map_err(|error| Error::system(action, io::Error::other(error)))?;
            (info.value_size as usize).next_multiple_of(8) * cpus
        }
        false => info.value_size as usize,
    };
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let mut room = BATCH.min(info.max_entries.max(1));
    let options = options!(bpf_map_batch_opts {});
    // The kernel's place in the map: four bytes for a hash, but never more than a key or less than that.
    let mut cursor = vec![0u8; key_size.max(8)];
    let mut next = cursor.clone();
    let mut is_first = true;
    loop {
        keys.resize(room as usize * key_size, 0u8);
        values.resize(room as usize * value_size, 0u8);
        let mut count = room;
        // SAFETY: both buffers have room for `count` entries of the map's sizes, the cursors for the
        // kernel's place, and the options carry their size.
        let answer = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_raw_fd(),
                if is_first { std::ptr::null_mut() } else { cursor.as_mut_ptr().cast() },
                next.as_mut_ptr().cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &mut count,
                &options,
            )
        };
        let is_last = match -answer {
            ..=0 => false,
            // The end of the map; what was found before it is there.
            libc::ENOENT => true,
            libc::EINTR => continue,
            // A bucket has more entries than there is room for.
            libc::ENOSPC if room < u32::MAX / 2 && count == 0 => {
                room *= 2;
                continue;
            }
            errno => return Err(Error::bpf(action, errno)),
        };
        let pairs = keys.chunks_exact(key_size).zip(values.chunks_exact(value_size));
        pairs.take(count as usize).for_each(|(key, value)| each(key, value));
        if is_last {
            return Ok(());
        }
        std::mem::swap(&mut cursor, &mut next);
        is_first = false;
    }
}

/// Deletes the entries with these keys, one after the other, from the hash map `map`. Returns how many were
/// there.
///
/// # Errors
/// As [`for_each`].
///
/// # Panics
/// When `keys` is not a whole number of keys.
pub fn delete(map: BorrowedFd<'_>, keys: &[u8]) -> Result<u64> {
    let key_size = super::info(map)?.key_size as usize;
    assert!(keys.len().is_multiple_of(key_size), "whole keys");
    let options = options!(bpf_map_batch_opts {});
    let (mut left, mut deleted) = (keys, 0);
    while !left.is_empty() {
        let mut count = (left.len() / key_size) as u32;
        // SAFETY: `left` has `count` keys, and the options carry their size.
        let answer = unsafe {
            libbpf_sys::bpf_map_delete_batch(
                map.as_raw_fd(),
                left.as_ptr().cast(),
                &mut count,
                &options,
            )
        };
        deleted += u64::from(count);
        match -answer {
            ..=0 => return Ok(deleted),
            // The key after those that were deleted is not there: continue with the next one.
            libc::ENOENT => left = &left[(count as usize + 1) * key_size..],
            errno => return Err(Error::bpf("delete entries of a BPF map in batches", errno)),
        }
    }
    Ok(deleted)
}

#[cfg(test)]
mod tests;
