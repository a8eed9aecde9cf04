//! A C program that calls every function of the live-capture interface: what it prints with this library is
//! what it prints with libpcap alone.

use std::path::Path;

use crate::support::{BUFFER, Cable, FAR, Libpcap, Library, NEAR, PACKET, SOCKET, TEE, compile};
use linerate_testkit::root_or_skip;

/// Runs it on a new veth pair, which it removes at the end.
fn run(library: &Library, libpcap: Libpcap, program: &Path, incoming: bool) -> String {
    let cable = Cable::new();
    let folder = tempfile::tempdir().unwrap();
    let program = program.display().to_string();
    let mut line = vec![program.as_str(), NEAR, FAR];
    if incoming {
        line.push("in");
    }
    let mut running = cable.start(library, libpcap, &line, folder.path());
    let status = running.ended();
    let text = format!("{}{}", running.stdout(), running.stderr());
    assert_eq!(status, Some(0), "{libpcap:?}: {text}");
    text
}

fn compare(libpcap: Libpcap, incoming: bool) {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("calls.c", folder.path(), &[]);
    let library = Library::install();
    let plain = run(&library, Libpcap::System, &program, incoming);
    assert!(plain.contains("-- gone") && plain.contains("The interface disappeared"), "{plain}");
    let ours = run(&library, libpcap, &program, incoming);
    for (number, (ours, plain)) in ours.lines().zip(plain.lines()).enumerate() {
        assert_eq!(ours, plain, "{libpcap:?}, line {}", number + 1);
    }
    assert_eq!(ours.lines().count(), plain.lines().count(), "{libpcap:?}");
}

#[test]
fn calls_on_a_packet_ring_are_libpcaps() {
    root_or_skip!();
    compare(Libpcap::Preloaded(PACKET), false);
    compare(Libpcap::InLibraryPath(PACKET), false);
}

#[test]
fn calls_on_a_tee_are_libpcaps() {
    root_or_skip!();
    compare(Libpcap::Preloaded(TEE), true);
}

#[test]
fn calls_on_a_ring_buffer_that_takes_are_libpcaps() {
    root_or_skip!();
    compare(Libpcap::InLibraryPath(BUFFER), true);
}

#[test]
fn calls_on_sockets_are_libpcaps() {
    root_or_skip!();
    compare(Libpcap::Preloaded(SOCKET), true);
}

/// The same with a sanitizer in the program: it watches what the library does with the program's memory and
/// what it hands over, and every allocation of the process.
fn under_sanitizer(test: &str, flag: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("calls.c", folder.path(), &[flag]).display().to_string();
    let library = Library::install();
    for variables in [PACKET, BUFFER] {
        let (cable, folder) = (Cable::new(), tempfile::tempdir().unwrap());
        // Sanitizers want to be the first library that is loaded.
        let libpcap = Libpcap::InLibraryPath(variables);
        let line = [program.as_str(), NEAR, FAR, "in"];
        let mut running = cable.start(&library, libpcap, &line, folder.path());
        let status = running.ended();
        let printed = format!("{}{}", running.stdout(), running.stderr());
        if printed.contains("unexpected memory mapping") {
            return linerate_testkit::print_skipped(
                test,
                "the sanitizer cannot lay out its memory here",
            );
        }
        assert!(
            status == Some(0) && printed.contains("-- gone"),
            "{variables:?}: {status:?} {printed}"
        );
    }
}

#[test]
fn calls_are_sound_for_the_address_sanitizer() {
    root_or_skip!();
    under_sanitizer("calls_are_sound_for_the_address_sanitizer", "-fsanitize=address,undefined");
}

#[test]
fn calls_are_sound_for_the_thread_sanitizer() {
    root_or_skip!();
    under_sanitizer("calls_are_sound_for_the_thread_sanitizer", "-fsanitize=thread");
}
