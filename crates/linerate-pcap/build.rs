//! Gives the shared library the name by which programs ask for libpcap, so that one object serves those
//! that are linked to it, those that have it preloaded and those that look symbols up through a handle.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpcap.so.0.8");
    // Descriptors and handles of the program outlive a dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
