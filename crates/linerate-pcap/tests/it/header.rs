//! Every function of the system's header files, and every one that its library exports, is in this library.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use crate::support::Library;

const HEADERS: &str = "#include <pcap/pcap.h>\n#include <pcap/namedb.h>\n";

/// The functions that the library exports.
fn exported(library: &std::path::Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let functions = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()? == "T").then(|| words.next())?
    });
    functions.map(str::to_owned).collect()
}

/// The functions that the installed header files declare.
fn declared() -> BTreeSet<String> {
    use std::io::Write;
    let mut child = Command::new("cc")
        .args(["-E", "-P", "-x", "c", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(HEADERS.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the header files of libpcap are missing");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices('(') {
        let before = text[..at].trim_end();
        let start = before.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
        let name = &before[start..];
        if ["pcap_", "bpf_"].iter().any(|prefix| name.starts_with(prefix)) {
            found.insert(name.to_owned());
        }
    }
    found
}

#[test]
fn every_function_of_the_header_files_is_taken_over_or_forwarded() {
    let library = Library::install();
    let (ours, declared) = (exported(&library.path()), declared());
    // Whatever the version, these are there; a list without them was not read right.
    for name in ["pcap_activate", "pcap_next_ex", "bpf_filter", "pcap_nametoport"] {
        assert!(declared.contains(name), "{declared:?}");
    }
    let missing: Vec<_> = declared.difference(&ours).collect();
    assert!(missing.is_empty(), "neither taken over nor forwarded: {missing:?}");
}

#[test]
fn every_function_that_the_systems_library_exports_is_in_ours() {
    let Some(system) =
        linerate_capture::libpcap::search_paths().find_map(|path| path.canonicalize().ok())
    else {
        linerate_testkit::skip!("there is no libpcap");
    };
    let library = Library::install();
    let ours = exported(&library.path());
    let system = exported(&system);
    let public = system.iter().filter(|name| name.starts_with("pcap_") || name.starts_with("bpf_"));
    let missing: Vec<_> = public.filter(|name| !ours.contains(*name)).collect();
    assert!(missing.is_empty(), "not in ours: {missing:?}");
}
