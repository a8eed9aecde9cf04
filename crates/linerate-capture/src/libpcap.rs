//! Where a system keeps its libpcap.

use std::path::{Path, PathBuf};

/// Names under which distributions have it; the first two are SONAMEs.
const NAMES: [&str; 3] = ["libpcap.so.0.8", "libpcap.so.1", "libpcap.so"];

/// Folders of libraries, beside those of the processor's own architecture.
const FOLDERS: [&str; 6] =
    ["/usr/lib64", "/lib64", "/usr/local/lib64", "/usr/local/lib", "/usr/lib", "/lib"];

/// The paths to look at, the likeliest first.
pub fn search_paths() -> impl Iterator<Item = PathBuf> {
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    let own = [format!("/usr/lib/{multiarch}"), format!("/lib/{multiarch}")];
    let folders = own.into_iter().chain(FOLDERS.map(str::to_owned));
    folders.flat_map(|folder| NAMES.map(|name| Path::new(&folder).join(name)))
}
