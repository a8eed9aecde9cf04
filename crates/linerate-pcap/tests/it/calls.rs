//! A C program that calls every function of the live-capture interface: what it prints with this library is
//! what it prints with libpcap alone.

use std::path::Path;

use crate::support::{BUFFER, Cable, FAR, Library, NEAR, PACKET, SOCKET, TEE, Way, compile};
use linerate_testkit::root_or_skip;

/// Runs it on a cable of its own, which it removes at the end.
fn run(library: &Library, way: Way, program: &Path, incoming: bool) -> String {
    let cable = Cable::lay();
    let folder = tempfile::tempdir().unwrap();
    let program = program.display().to_string();
    let mut line = vec![program.as_str(), NEAR, FAR];
    if incoming {
        line.push("in");
    }
    let mut running = cable.start(library, way, &line, folder.path());
    let status = running.ended();
    let text = format!("{}{}", running.stdout(), running.stderr());
    assert_eq!(status, Some(0), "{way:?}: {text}");
    text
}

fn compare(way: Way, incoming: bool) {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("calls.c", folder.path(), &[]);
    let library = Library::install();
    let plain = run(&library, Way::Plain, &program, incoming);
    assert!(plain.contains("-- gone") && plain.contains("The interface disappeared"), "{plain}");
    let ours = run(&library, way, &program, incoming);
    for (number, (ours, plain)) in ours.lines().zip(plain.lines()).enumerate() {
        assert_eq!(ours, plain, "{way:?}, line {}", number + 1);
    }
    assert_eq!(ours.lines().count(), plain.lines().count(), "{way:?}");
}

#[test]
fn calls_on_a_packet_ring_are_libpcaps() {
    root_or_skip!("calls_on_a_packet_ring_are_libpcaps");
    compare(Way::Preload(PACKET), false);
    compare(Way::Named(PACKET), false);
}

#[test]
fn calls_on_a_tee_are_libpcaps() {
    root_or_skip!("calls_on_a_tee_are_libpcaps");
    compare(Way::Preload(TEE), true);
}

#[test]
fn calls_on_a_ring_buffer_that_takes_are_libpcaps() {
    root_or_skip!("calls_on_a_ring_buffer_that_takes_are_libpcaps");
    compare(Way::Named(BUFFER), true);
}

#[test]
fn calls_on_sockets_are_libpcaps() {
    root_or_skip!("calls_on_sockets_are_libpcaps");
    compare(Way::Preload(SOCKET), true);
}

/// The same with a sanitizer in the program: it watches what the library does with the program's memory and
/// what it hands over, and every allocation of the process.
fn under_sanitizer(test: &str, flag: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("calls.c", folder.path(), &[flag]).display().to_string();
    let library = Library::install();
    for variables in [PACKET, BUFFER] {
        let (cable, folder) = (Cable::lay(), tempfile::tempdir().unwrap());
        // Sanitizers want to be the first library that is loaded.
        let way = Way::Named(variables);
        let line = [program.as_str(), NEAR, FAR, "in"];
        let mut running = cable.start(&library, way, &line, folder.path());
        let status = running.ended();
        let said = format!("{}{}", running.stdout(), running.stderr());
        if said.contains("unexpected memory mapping") {
            return linerate_testkit::say_skipped(
                test,
                "the sanitizer cannot lay out its memory here",
            );
        }
        assert!(status == Some(0) && said.contains("-- gone"), "{variables:?}: {status:?} {said}");
    }
}

#[test]
fn calls_are_sound_for_the_address_sanitizer() {
    root_or_skip!("calls_are_sound_for_the_address_sanitizer");
    under_sanitizer("calls_are_sound_for_the_address_sanitizer", "-fsanitize=address,undefined");
}

#[test]
fn calls_are_sound_for_the_thread_sanitizer() {
    root_or_skip!("calls_are_sound_for_the_thread_sanitizer");
    under_sanitizer("calls_are_sound_for_the_thread_sanitizer", "-fsanitize=thread");
}
