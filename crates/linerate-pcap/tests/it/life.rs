//! What programs do with a handle beside reading it, and with packet sockets of their own: a C program prints
//! with this library what it prints without it. And what libpcap does not have: handles that share the packets of
//! an interface.

use std::path::Path;

use crate::support::{Cable, FAR, Library, NEAR, SOCKET, WAYS, Way, compile};
use linerate_testkit::root_or_skip;

/// Runs a program on a cable of its own; what it printed.
fn run(library: &Library, way: Way, line: &[&str], cable: &Cable) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut running = cable.start(library, way, line, folder.path());
    let status = running.ended();
    let text = format!("{}{}", running.stdout(), running.stderr());
    assert_eq!(status, Some(0), "{way:?}: {text}");
    text
}

fn compiled(source: &str, folder: &Path) -> String {
    compile(source, folder, &[]).display().to_string()
}

#[test]
fn filters_privileges_forks_and_threads_are_as_with_libpcap() {
    root_or_skip!("filters_privileges_forks_and_threads_are_as_with_libpcap");
    let (library, folder) = (Library::install(), tempfile::tempdir().unwrap());
    let program = compiled("life.c", folder.path());
    let line = [program.as_str(), NEAR, FAR];
    let plain = run(&library, Way::Plain, &line, &Cable::lay());
    assert!(plain.ends_with("-- end\n") && plain.contains("by the next thread: 0 2501"), "{plain}");
    for way in WAYS {
        assert_eq!(run(&library, way, &line, &Cable::lay()), plain, "{way:?}");
    }
}

#[test]
fn handles_share_the_packets_of_an_interface() {
    root_or_skip!("handles_share_the_packets_of_an_interface");
    let (library, folder) = (Library::install(), tempfile::tempdir().unwrap());
    let program = compiled("share.c", folder.path());
    let line = [program.as_str(), NEAR, FAR];
    let way = Way::Preload(&[("LINERATE_THREADS", "2")]);
    let said = run(&library, way, &line, &Cable::lay());
    assert_eq!(
        said,
        "one alone: 201 packets, each one once\n\
         two: 201 packets, each one once, some to each\n\
         the third: 201 packets, each one once\n\
         one of two: 201 packets, each one once\n"
    );
    // Each sees all where nothing was said of sharing.
    let said = run(&library, Way::Preload(crate::support::PACKET), &line, &Cable::lay());
    assert!(said.contains("two: 402 packets, some to each\n"), "{said}");
}

#[test]
fn packets_of_several_queues_come_in_their_order() {
    root_or_skip!("packets_of_several_queues_come_in_their_order");
    let (library, folder) = (Library::install(), tempfile::tempdir().unwrap());
    let program = compiled("queues.c", folder.path());
    let line = [program.as_str(), NEAR, FAR];
    let said = run(&library, Way::Preload(SOCKET), &line, &Cable::with_queues(4));
    assert_eq!(said, "complete 1 ordered 1\n");
}

#[test]
fn rings_that_a_program_makes_do_what_they_do_without_this_library() {
    root_or_skip!("rings_that_a_program_makes_do_what_they_do_without_this_library");
    let (library, folder) = (Library::install(), tempfile::tempdir().unwrap());
    let line = [compiled("rings.c", folder.path())];
    let cable = Cable::lay();
    let say = |way| run(&library, way, &[&line[0]], &cable);
    let plain = say(Way::Plain);
    assert!(plain.ends_with("after it was closed: 0\nhuge pages kept: 0\n"), "{plain}");
    // A kernel that lets programs choose has other pages; that one is in a virtual machine (kernel/linerate).
    for way in [
        Way::Preload(&[]),
        Way::Preload(&[("LINERATE_RING_ALLOCATION", "hugetlb")]),
        Way::Preload(&[("LINERATE_RING_ALLOCATION", "transhuge")]),
        Way::Preload(&[("LINERATE_RING_ALLOCATION", "vzalloc")]),
    ] {
        assert_eq!(say(way).replace("pages of 2048 kB", "pages of 4 kB"), plain, "{way:?}");
    }
}
