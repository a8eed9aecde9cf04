//! The system's libpcap: found at run time, asked for each function by its name.

use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::environment::variable;

/// The path of the system's libpcap, in place of looking for it.
const VARIABLE: &str = "LINERATE_LIBPCAP";

/// What signal handlers call. The loader cannot be asked there: it may be at work where the signal came, and
/// holds locks. So this one is looked up with the first other function, without which there is no handle.
pub(crate) static BREAKLOOP: Symbol = Symbol::new(c"pcap_breakloop");

/// A function of the system's libpcap, looked up when it is first needed.
pub(crate) struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Its address. A program that calls what its libpcap does not have ends as it would without this
    /// library, with the loader's status.
    #[inline]
    pub(crate) fn resolve(&self) -> *mut c_void {
        // Acquire: whoever sees the address sees the library that it is in.
        let address = self.address.load(Ordering::Acquire);
        if address.is_null() { self.look_up() } else { address }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        let Some(library) = library() else {
            give_up(format_args!(
                "there is no libpcap to forward to; name it in {VARIABLE} (the path of \
                 libpcap.so.0.8 or libpcap.so.1)"
            ));
        };
        // SAFETY: a handle of dlopen that is never closed, and a name that ends in a zero.
        let address = unsafe { libc::dlsym(library.0, self.name.as_ptr()) };
        if address.is_null() {
            give_up(format_args!("the system's libpcap has no {}", self.name.to_string_lossy()));
        }
        self.address.store(address, Ordering::Release);
        if !ptr::eq(self, &BREAKLOOP) {
            BREAKLOOP.resolve();
        }
        address
    }
}

/// A function of the C library that one of this library has the name of.
pub(crate) struct InterposedSymbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl InterposedSymbol {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Its address, or null. To be called first where no signal handler runs.
    #[inline]
    pub(crate) fn resolve(&self) -> *mut c_void {
        let mut address = self.address.load(Ordering::Acquire);
        if address.is_null() {
            // SAFETY: a name that ends in a zero; the next object behind this one that has it.
            address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.address.store(address, Ordering::Release);
        }
        address
    }
}

/// Ends the program as the loader does when a function is missing.
fn give_up(why: std::fmt::Arguments<'_>) -> ! {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "linerate: {why}");
    std::process::exit(127)
}

struct Library(*mut c_void);

// SAFETY: a handle of dlopen; dlsym may be called with it from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY.get_or_init(open).as_ref()
}

fn open() -> Option<Library> {
    let ours = own_path().and_then(|path| identity(&path));
    let named = variable(VARIABLE).map(PathBuf::from);
    let candidates =
        named.into_iter().chain(loaded()).chain(linerate_capture::libpcap::search_paths());
    for path in candidates {
        let Ok(path) = path.canonicalize() else { continue };
        // This library may have the very name that is searched.
        if identity(&path).is_none_or(|found| Some(found) == ours) {
            continue;
        }
        let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { continue };
        // SAFETY: a path that ends in a zero. The loader knows this library by the same SONAME, but
        // compares paths with slashes by file, so it loads the other one.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        // SAFETY: a handle of dlopen and a name that ends in a zero.
        if !handle.is_null() && !unsafe { libc::dlsym(handle, c"pcap_activate".as_ptr()) }.is_null()
        {
            return Some(Library(handle));
        }
    }
    None
}

/// Device and inode, which identify a file under any name.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = path.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

fn own_path() -> Option<PathBuf> {
    static HERE: u8 = 0;
    let mut found = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: an address of this object, and a place for the answer.
    let known = unsafe { libc::dladdr((&raw const HERE).cast(), &mut found) };
    (known != 0).then(|| path_of(found.dli_fname)).flatten()
}

fn path_of(name: *const libc::c_char) -> Option<PathBuf> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the loader's own name of an object, which ends in a zero.
    let name = unsafe { CStr::from_ptr(name) };
    (!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The libraries of that name that the process has loaded.
fn loaded() -> Vec<PathBuf> {
    unsafe extern "C" fn note(
        info: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader lends the structure, and `found` is the list below.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<PathBuf>>()) };
        found.extend(path_of(info.dlpi_name).filter(|path| {
            let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
            name.starts_with(b"libpcap.so")
        }));
        0
    }
    let mut found: Vec<PathBuf> = Vec::new();
    // SAFETY: the function takes what is passed for it, and is not called after the return.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut found).cast()) };
    found
}
