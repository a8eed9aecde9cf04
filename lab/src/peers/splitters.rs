//! Building the peers of `segment-rate`, whose sources are in `peers/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, anyhow};

use super::build::{self, output};

/// A peer that was built, or why not.
pub(crate) struct BuiltPeer {
    pub(crate) name: &'static str,
    /// The program.
    pub(crate) program: Result<PathBuf>,
    /// The arguments after the common ones.
    pub(crate) last: Option<&'static str>,
    /// Bytes of link header that it does not take, nor give.
    pub(crate) without: usize,
}

const RTE_GSO: &str = include_str!("../../peers/rte_gso/main.c");
const TUN_RS: build::Sources = [
    ("Cargo.toml", include_str!("../../peers/tun-rs/Cargo.toml")),
    ("Cargo.lock", include_str!("../../peers/tun-rs/Cargo.lock")),
    ("src/main.rs", include_str!("../../peers/tun-rs/src/main.rs")),
];

/// The names of all lines, in order, and how each is built and called.
pub(crate) const NAMES: [&str; 4] = [
    "tun-rs",
    "rte_gso, packaged flags",
    "rte_gso, -O3 -march=native",
    "rte_gso, -O3 -march=native, copied",
];

/// Builds those of [`NAMES`] that are `wanted`, in `folder`.
pub(crate) fn build(folder: &Path, wanted: &[&'static str]) -> Vec<BuiltPeer> {
    let native = ["-O3", "-march=native"].as_slice();
    let mut built = Vec::new();
    for &name in wanted {
        let (program, last, without) = match name {
            "tun-rs" => (build::cargo(folder, "tun-rs", &TUN_RS), None, 14),
            "rte_gso, packaged flags" => (rte_gso(folder, "packaged", &["-O2"]), Some("parts"), 0),
            "rte_gso, -O3 -march=native" => (rte_gso(folder, "native", native), Some("parts"), 0),
            _ => (rte_gso(folder, "native", native), Some("copy"), 0),
        };
        built.push(BuiltPeer { name, program, last, without });
    }
    built
}

/// Which versions of the splitters are measured, for people.
pub(crate) fn versions() -> String {
    let locked = TUN_RS[1].1.split_once("name = \"tun-rs\"\nversion = \"");
    let tun_rs = locked.and_then(|(_, rest)| rest.split_once('"')).map_or("unknown", |(v, _)| v);
    let dpdk = output(Command::new("pkg-config").args(["--modversion", "libdpdk"]));
    let dpdk = dpdk.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let compiler = output(Command::new("cc").arg("--version"));
    let compiler = compiler.map(|output| {
        String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
    });
    let or_none = |version: Result<String>| version.unwrap_or_else(|_| "none".into());
    format!("peers: tun-rs {tun_rs}; DPDK {}; cc is {}", or_none(dpdk), or_none(compiler))
}

fn rte_gso(folder: &Path, name: &str, flags: &[&str]) -> Result<PathBuf> {
    let program = folder.join(name);
    if program.is_file() {
        return Ok(program);
    }
    let packaged = |what| -> Result<Vec<String>> {
        let output = output(Command::new("pkg-config").args([what, "libdpdk"]))
            .map_err(|_| anyhow!("DPDK is not installed (Debian: apt install dpdk-dev)"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text.split_whitespace().map(str::to_owned).collect())
    };
    let source = folder.join("rte_gso.c");
    fs::write(&source, RTE_GSO)?;
    output(
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
