//! Links the command.

fn main() {
    // A tenth of the addresses that the loader has to mend; glibc 2.36 reads them so.
    println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    println!("cargo::rerun-if-changed=build.rs");
}
