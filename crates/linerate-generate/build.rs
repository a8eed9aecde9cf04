//! Compiles the generating program of `src/bpf` and generates its skeleton.

#[path = "build/compile.rs"]
mod compile;

fn main() {
    compile::compile(&["generate"], &[]);
}
