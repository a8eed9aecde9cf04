//! Compiles the programs of `src/bpf` and generates their skeletons.

#[path = "../linerate-bpf/build/compile.rs"]
mod compile;

fn main() {
    compile::compile(&["sink", "redirect", "xdp_loop"], &[]);
}
