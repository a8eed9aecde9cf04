//! Gives the shared library the name that programs look for when they start. A change that programs
//! built before cannot take gets another number.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liblinerate-udp.so.0");
}
