//! What programs do with a handle beside reading it, and with packet sockets of their own: a C program prints
//! with this library what it prints without it. And what libpcap does not have: handles that share the packets of
//! an interface.

use std::path::Path;

use crate::support::{Cable, EVERY_SOURCE, FAR, Libpcap, Library, NEAR, PACKET, SOCKET, compile};
use linerate_testkit::root_or_skip;

/// Runs a program on a new veth pair; what it printed.
fn run(library: &Library, libpcap: Libpcap, line: &[&str], cable: &Cable) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut running = cable.start(library, libpcap, line, folder.path());
    let status = running.ended();
    let text = format!("{}{}", running.stdout(), running.stderr());
    assert_eq!(status, Some(0), "{libpcap:?}: {text}");
    text
}

fn compiled(source: &str, folder: &Path) -> String {
    compile(source, folder, &[]).display().to_string()
}

#[test]
fn filters_privileges_forks_and_threads_are_as_with_libpcap() {
    root_or_skip!();
    let (library, folder) = (Library::install(), tempfile::tempdir().unwrap());
    let program = compiled("life.c", folder.path());
    let line = [program.as_str(), NEAR, FAR];
    let plain = run(&library, Libpcap::System, &line, &Cable::new());
    assert!(plain.ends_with("-- end\n") && plain.contains("by the next thread: 0 2501"), "{plain}");
    for libpcap in EVERY_SOURCE {
        if libpcap == Libpcap::Preloaded(SOCKET) {
            // Their memory stays with the process, and they cannot pass on what a filter rejects that runs in the
            // program.
            let ours = run(&library, libpcap, &line, &Cable::new());
            let (plain, _) = without(&plain, "-- closed by the parent\n", "-- cancelled\n");
            let (ours, child) = without(&ours, "-- closed by the parent\n", "-- cancelled\n");
            assert!(child.contains("cannot be read by a forked process"), "{child}");
            assert!(child.ends_with("child: 0\n"), "{child}");
            let (plain, _) = without(&plain, "-- without privileges\n", "-- one by one\n");
            let (ours, nobody) = without(&ours, "-- without privileges\n", "-- one by one\n");
            assert_eq!(ours, plain, "{libpcap:?}");
            assert!(nobody.contains("AF_XDP sockets would take frames"), "{nobody}");
        } else {
            let ours = run(&library, libpcap, &line, &Cable::new());
            assert_eq!(ours, plain, "{libpcap:?}");
        }
    }
}

/// What was printed without the part between these lines, and that part.
fn without<'p>(printed: &'p str, from: &str, to: &str) -> (String, &'p str) {
    let (before, rest) = printed.split_once(from).unwrap();
    let (part, after) = rest.split_once(to).unwrap();
    (format!("{before}{to}{after}"), part)
}

#[test]
fn handles_share_the_packets_of_an_interface() {
    root_or_skip!();
    let (library, folder) = (Library::install(), tempfile::tempdir().unwrap());
    let program = compiled("share.c", folder.path());
    let line = [program.as_str(), NEAR, FAR];
    let libpcap = Libpcap::Preloaded(&[("LINERATE_THREADS", "2")]);
    let printed = run(&library, libpcap, &line, &Cable::new());
    assert_eq!(
        printed,
        "one alone: 201 packets, each one once\n\
         two: 201 packets, each one once, some to each\n\
         the third: 201 packets, each one once\n\
         one of two: 201 packets, each one once\n"
    );
    // Each sees all where nothing was said of sharing.
    let printed = run(&library, Libpcap::Preloaded(crate::support::PACKET), &line, &Cable::new());
    assert!(printed.contains("two: 402 packets, some to each\n"), "{printed}");
}

/// An option of the program's, as capture threads of their own use it.
#[test]
fn a_program_may_share_packets_by_fanout_on_packet_sockets() {
    root_or_skip!();
    let (library, folder) = (Library::install(), tempfile::tempdir().unwrap());
    let program = compiled("fanout.c", folder.path());
    let line = [program.as_str(), NEAR, FAR];
    assert_eq!(run(&library, Libpcap::System, &line, &Cable::new()), "100 and 100\n");
    for libpcap in EVERY_SOURCE {
        let printed = run(&library, libpcap, &line, &Cable::new());
        match libpcap {
            Libpcap::Preloaded(PACKET) | Libpcap::InLibraryPath(PACKET) => {
                assert_eq!(printed, "100 and 100\n", "{libpcap:?}");
            }
            _ => assert_eq!(printed, "fanout: Operation not supported\n", "{libpcap:?}"),
        }
    }
    let said = Libpcap::Preloaded(&[("LINERATE_SOURCE", "tee"), ("LINERATE_QUIET", "0")]);
    let printed = run(&library, said, &line, &Cable::new());
    assert!(printed.contains("use --source packet"), "{printed}");
}

#[test]
fn packets_of_several_queues_come_in_their_order() {
    root_or_skip!();
    let (library, folder) = (Library::install(), tempfile::tempdir().unwrap());
    let program = compiled("queues.c", folder.path());
    let line = [program.as_str(), NEAR, FAR];
    let printed = run(&library, Libpcap::Preloaded(SOCKET), &line, &Cable::with_queues(4));
    assert_eq!(printed, "complete 1 ordered 1\n");
}

/// `kernel/rings.c` on a kernel without the patches; one with them is in a virtual machine (`kernel/linerate`).
#[test]
fn rings_of_a_program_are_usual_ones_where_the_kernel_has_no_other() {
    root_or_skip!();
    let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernel");
    let (library, folder) = (Library::install(), tempfile::tempdir().unwrap());
    let rings = compile(&format!("{kernel}/rings.c"), folder.path(), &["-shared", "-fPIC"]);
    let preload = folder.path().join("librings.so");
    std::fs::rename(rings, &preload).unwrap();
    let program = compiled(&format!("{kernel}/tests/rings.c"), folder.path());
    let cable = Cable::new();
    let plain = run(&library, Libpcap::System, &[&program], &cable);
    assert!(plain.ends_with("after it was closed: 0\nhuge pages kept: 0\n"), "{plain}");
    let preload = format!("LD_PRELOAD={}", preload.display());
    for memory in ["hugetlb", "transhuge", "vzalloc"] {
        let memory = format!("LINERATE_RING_ALLOCATION={memory}");
        let printed = run(&library, Libpcap::System, &["env", &preload, &memory, &program], &cable);
        let (rest, lines) = printed.split_at(plain.len());
        assert_eq!(rest.replace("pages of 2048 kB", "pages of 4 kB"), plain, "{memory}");
        assert!(lines.starts_with(&memory) && lines.lines().count() == 1, "{memory}: {lines}");
    }
}
