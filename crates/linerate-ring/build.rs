//! Compiles the BPF programs of `src/bpf` and generates their skeletons into `OUT_DIR`.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed=src/bpf");
    for name in ["guard", "steer", "tee"] {
        let source = format!("src/bpf/{name}.bpf.c");
        if let Err(error) = SkeletonBuilder::new()
            .source(&source)
            .clang_args(include_directories())
            .build_and_generate(out.join(format!("{name}.skel.rs")))
        {
            eprintln!(
                "cannot compile {source}: {error:#}\n\
                 it takes clang with the BPF target (Debian and Ubuntu: apt install clang)"
            );
            std::process::exit(1);
        }
    }
}

/// Where `asm/types.h` lives: below the multiarch triple on Debian and its kin.
fn include_directories() -> Vec<OsString> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let directory = format!("/usr/include/{arch}-linux-gnu");
    if Path::new(&directory).is_dir() { vec!["-I".into(), directory.into()] } else { Vec::new() }
}
