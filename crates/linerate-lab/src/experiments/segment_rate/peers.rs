//! Building the peers of `segment-rate`, whose sources are in `peers/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A peer that was built, or why not.
pub(super) struct Built {
    pub(super) name: &'static str,
    /// The program, and what comes behind the common arguments.
    pub(super) program: Result<PathBuf, String>,
    pub(super) last: Option<&'static str>,
    /// Bytes of link header that it does not take, nor give.
    pub(super) without: usize,
}

const RTE_GSO: &str = include_str!("../../../peers/rte_gso/main.c");
const TUN_RS: [(&str, &str); 3] = [
    ("Cargo.toml", include_str!("../../../peers/tun-rs/Cargo.toml")),
    ("Cargo.lock", include_str!("../../../peers/tun-rs/Cargo.lock")),
    ("src/main.rs", include_str!("../../../peers/tun-rs/src/main.rs")),
];

/// The names of all lines, in order, and how each is built and called.
pub(super) const NAMES: [&str; 4] = [
    "tun-rs",
    "rte_gso, packaged flags",
    "rte_gso, -O3 -march=native",
    "rte_gso, -O3 -march=native, copied",
];

/// Builds those of [`NAMES`] that are `wanted`, in `folder`.
pub(super) fn build(folder: &Path, wanted: &[&'static str]) -> Vec<Built> {
    let native = ["-O3", "-march=native"].as_slice();
    let mut built = Vec::new();
    for &name in wanted {
        let (program, last, without) = match name {
            "tun-rs" => (tun_rs(folder), None, 14),
            "rte_gso, packaged flags" => (rte_gso(folder, "packaged", &["-O2"]), Some("parts"), 0),
            "rte_gso, -O3 -march=native" => (rte_gso(folder, "native", native), Some("parts"), 0),
            _ => (rte_gso(folder, "native", native), Some("copy"), 0),
        };
        built.push(Built { name, program, last, without });
    }
    built
}

/// Which versions of the splitters are measured, for people.
pub(super) fn versions() -> String {
    let locked = TUN_RS[1].1.split_once("name = \"tun-rs\"\nversion = \"");
    let tun_rs = locked.and_then(|(_, rest)| rest.split_once('"')).map_or("unknown", |(v, _)| v);
    let dpdk = done(Command::new("pkg-config").args(["--modversion", "libdpdk"]));
    let dpdk = dpdk.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let compiler = done(Command::new("cc").arg("--version"));
    let compiler = compiler.map(|output| {
        String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
    });
    let or_none = |version: Result<String, String>| version.unwrap_or_else(|_| "none".into());
    format!("peers: tun-rs {tun_rs}; DPDK {}; cc is {}", or_none(dpdk), or_none(compiler))
}

fn rte_gso(folder: &Path, name: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let program = folder.join(name);
    if program.is_file() {
        return Ok(program);
    }
    let packaged = |what| {
        let output = done(Command::new("pkg-config").args([what, "libdpdk"]))
            .map_err(|_| "DPDK is not installed (Debian: apt install dpdk-dev)".to_owned())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok::<Vec<String>, String>(text.split_whitespace().map(str::to_owned).collect())
    };
    let source = folder.join("rte_gso.c");
    fs::write(&source, RTE_GSO).map_err(|error| error.to_string())?;
    done(
        Command::new("cc")
            .args(["-D_GNU_SOURCE", "-DALLOW_EXPERIMENTAL_API"])
            .args(packaged("--cflags")?)
            .args(flags)
            .arg(source)
            .arg("-o")
            .arg(&program)
            .args(packaged("--libs")?),
    )?;
    Ok(program)
}

fn tun_rs(folder: &Path) -> Result<PathBuf, String> {
    let source = folder.join("tun-rs");
    fs::create_dir_all(source.join("src")).map_err(|error| error.to_string())?;
    for (name, text) in TUN_RS {
        fs::write(source.join(name), text).map_err(|error| error.to_string())?;
    }
    done(
        Command::new("cargo")
            .args(["build", "--quiet", "--release", "--locked", "--target-dir"])
            .arg(source.join("target"))
            .current_dir(&source)
            .env_remove("CARGO_TARGET_DIR"),
    )?;
    Ok(source.join("target/release/peer-tun-rs"))
}

fn done(command: &mut Command) -> Result<Output, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find(|line| line.contains("error")).unwrap_or("it failed");
    Err(format!("{program} could not build it: {line}"))
}
