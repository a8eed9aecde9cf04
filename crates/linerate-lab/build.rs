//! Compiles the programs of `src/bpf` and generates their skeletons.

/// The headers and programs of the accelerator, which the forwarding baselines are compiled with.
const FORWARD: &str = "../linerate-forward/src/bpf";

fn main() {
    linerate_bpf_build::compile(&["sink", "redirect", "xdp_loop"], &[]);
    println!("cargo:rerun-if-changed={FORWARD}");
    linerate_bpf_build::compile(
        &["forward_hashed", "forward_fib"],
        &["-mcpu=v3", "-Wall", "-Isrc/bpf", &format!("-I{FORWARD}")],
    );
}
