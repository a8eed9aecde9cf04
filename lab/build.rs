//! Compiles the programs of `src/bpf` and generates their skeletons.

#[path = "../crates/linerate-bpf/build/compile.rs"]
mod compile;

/// The headers and programs of the accelerator, which the forwarding baseline is compiled with.
const FORWARD: &str = "../crates/linerate-forward/src/bpf";

fn main() {
    compile::compile(&["sink", "redirect", "redirect_tc", "xdp_loop"], &[]);
    println!("cargo:rerun-if-changed={FORWARD}");
    compile::compile(
        &["forward_fib"],
        &["-mcpu=v3", "-Wall", "-Isrc/bpf", &format!("-I{FORWARD}")],
    );
}
