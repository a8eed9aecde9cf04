//! Programs that set up a namespace: `ip`, `nft`, `tc`, and clang for BPF programs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Namespace;

/// Runs `program` in the namespace, with `input` as its standard input, and returns what it prints.
///
/// # Panics
/// Where it fails.
#[track_caller]
pub fn run(namespace: &Namespace, program: &str, arguments: &[&str], input: &str) -> String {
    let mut child = namespace
        .command(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{error}"));
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("it is ours to wait for");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {errors}", arguments.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `ip` with the words of `line`.
///
/// # Panics
/// Where it fails.
#[track_caller]
pub fn ip(namespace: &Namespace, line: &str) {
    run(namespace, "ip", &line.split_whitespace().collect::<Vec<_>>(), "");
}

/// Runs `ip -batch` with these lines; those that begin with `-6` are of IPv6.
///
/// # Panics
/// Where it fails.
#[track_caller]
pub fn ip_batch(namespace: &Namespace, lines: &str) {
    let (v6, v4): (Vec<_>, Vec<_>) = lines.lines().partition(|line| line.starts_with("-6 "));
    let v6: Vec<_> = v6.iter().map(|line| &line[3..]).collect();
    run(namespace, "ip", &["-4", "-batch", "-"], &v4.join("\n"));
    run(namespace, "ip", &["-6", "-batch", "-"], &v6.join("\n"));
}

/// Loads a file of nftables rules.
///
/// # Panics
/// Where it fails.
#[track_caller]
pub fn nft(namespace: &Namespace, rules: &str) {
    run(namespace, "nft", &["-f", "-"], rules);
}

/// Compiles a BPF program into `folder` (`env!("CARGO_TARGET_TMPDIR")`): each call makes an object file with
/// a unique name.
///
/// # Panics
/// Where clang fails.
#[track_caller]
pub fn compile_bpf(source: &Path, folder: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = source.file_stem().expect("a file").to_string_lossy().into_owned();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let object = folder.join(format!("{name}-{}-{count}.o", std::process::id()));
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let status = Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", &headers, "-c"])
        .arg(source)
        .arg("-o")
        .arg(&object)
        .status();
    assert!(status.expect("clang is installed").success(), "cannot compile {}", source.display());
    object
}
