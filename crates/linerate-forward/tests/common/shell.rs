//! The tools that configure a router, run in its namespace.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use linerate_netns::Namespace;

/// Runs `ip` with these words.
pub(crate) fn ip(namespace: &Namespace, words: &str) {
    run(namespace, "ip", &words.split(' ').collect::<Vec<_>>(), "");
}

/// Runs a batch of `ip` commands, one a line; those that begin with `-6` are of that family.
pub(crate) fn ip_batch(namespace: &Namespace, lines: &str) {
    let (v6, v4): (Vec<_>, Vec<_>) = lines.lines().partition(|line| line.starts_with("-6 "));
    let v6: Vec<_> = v6.iter().map(|line| &line[3..]).collect();
    run(namespace, "ip", &["-4", "-batch", "-"], &v4.join("\n"));
    run(namespace, "ip", &["-6", "-batch", "-"], &v6.join("\n"));
}

/// Loads a file of nftables.
pub(crate) fn nft(namespace: &Namespace, rules: &str) {
    run(namespace, "nft", &["-f", "-"], rules);
}

/// What `program` prints.
pub(crate) fn run(namespace: &Namespace, program: &str, words: &[&str], input: &str) -> String {
    let mut child = namespace
        .command(program)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{error}: install iproute2 and nftables"));
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("waited");
    let trouble = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {trouble}", words.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compiles `NAME.bpf.c` beside this file; where the object is.
pub(crate) fn compiled(name: &str) -> String {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let source = format!("{}/tests/common/{name}.bpf.c", env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Each test program makes its own: several may run at once.
    let object = folder.join(format!("{name}-{}.bpf.o", std::process::id()));
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let status = Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", &headers, "-c", &source, "-o"])
        .arg(&object)
        .status();
    assert!(status.expect("clang is installed").success(), "cannot compile {source}");
    object.to_str().expect("a path in UTF-8").to_owned()
}
