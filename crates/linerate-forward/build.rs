//! Compiles the BPF programs of `src/bpf` and generates their skeletons into `OUT_DIR`.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

const NAMES: [&str; 2] = ["forward", "preflight"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed=src/bpf");
    for name in NAMES {
        let source = format!("src/bpf/{name}.bpf.c");
        if let Err(error) = SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{name}.bpf.o")))
            .clang_args(arguments())
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

fn arguments() -> Vec<OsString> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    // Atomics that return what was there: Linux 5.12.
    let mut arguments: Vec<OsString> = vec!["-mcpu=v3".into(), "-Wall".into()];
    // Where loads stay in order with loads, and stores with stores (`session.h`).
    if matches!(arch.as_str(), "x86" | "x86_64") {
        arguments.push("-DFORWARD_ORDERED".into());
    }
    // Where asm/types.h lives: below the multiarch triple on Debian and its kin.
    let directory = format!("/usr/include/{arch}-linux-gnu");
    if Path::new(&directory).is_dir() {
        arguments.extend(["-I".into(), directory.into()]);
    }
    arguments
}
