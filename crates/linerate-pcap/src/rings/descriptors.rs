//! The descriptors of this process, read without an allocation: `close` may be called by a signal handler.

use std::ffi::{CStr, c_int};
use std::io;

use super::kernel;

/// Where the name begins in a `struct linux_dirent64`, and the length of the whole.
const NAME: usize = 19;
const LENGTH: std::ops::Range<usize> = 16..18;

/// The first descriptor of this process for which `is` holds.
///
/// # Errors
/// Where `/proc` does not tell them.
pub(super) fn descriptors(is: impl Fn(c_int) -> bool) -> io::Result<Option<c_int>> {
    let folder = kernel::open_folder(c"/proc/self/fd")?;
    let found = read(folder, is);
    // SAFETY: opened above, and nobody else knows it.
    unsafe { kernel::close(folder) };
    found
}

fn read(folder: c_int, is: impl Fn(c_int) -> bool) -> io::Result<Option<c_int>> {
    let mut room = [0; 2048];
    loop {
        let filled = kernel::entries(folder, &mut room)?;
        let mut rest = &room[..filled];
        if rest.is_empty() {
            return Ok(None);
        }
        while !rest.is_empty() {
            let len = usize::from(u16::from_ne_bytes([rest[LENGTH.start], rest[LENGTH.start + 1]]));
            let (entry, next) = rest.split_at(len);
            rest = next;
            let name = CStr::from_bytes_until_nul(&entry[NAME..]).unwrap_or_default();
            let number = name.to_str().ok().and_then(|name| name.parse().ok());
            if let Some(fd) = number.filter(|fd| *fd != folder && is(*fd)) {
                return Ok(Some(fd));
            }
        }
    }
}
