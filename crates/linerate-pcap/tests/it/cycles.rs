//! Handles that are opened, activated and closed again and again leave nothing behind; neither does a
//! program that is killed.

use crate::support::{BUFFER, Cable, FAR, Libpcap, Library, PACKET, SOCKET, TEE, compile};
use linerate_testkit::root_or_skip;
use nix::sys::signal::Signal;

/// Processes for each of the four sources, and the cycles of each; `LINERATE_THOROUGH=1` makes 10,000 of them all.
fn times() -> (usize, &'static str) {
    if std::env::var_os("LINERATE_THOROUGH").is_some() { (10, "250") } else { (1, "40") }
}

#[test]
fn cycles_leave_no_memory_and_no_descriptor() {
    root_or_skip!();
    let (library, folder) = (Library::install(), tempfile::tempdir().unwrap());
    let program = compile("cycles.c", folder.path(), &[]).display().to_string();
    let (processes, cycles) = times();
    let sources = [PACKET, TEE, BUFFER, SOCKET];
    for variables in sources.into_iter().flat_map(|one| std::iter::repeat_n(one, processes)) {
        let (cable, folder) = (Cable::new(), tempfile::tempdir().unwrap());
        let line = [program.as_str(), FAR, cycles];
        let mut running =
            cable.start(&library, Libpcap::Preloaded(variables), &line, folder.path());
        let status = running.ended();
        let printed = format!("{variables:?}: {}{}", running.stdout(), running.stderr());
        assert_eq!(status, Some(0), "{printed}");
        assert!(!cable.has_program(), "{printed}");
    }
}

#[test]
fn a_program_that_is_killed_leaves_nothing_attached() {
    root_or_skip!();
    let library = Library::install();
    for variables in [TEE, BUFFER, SOCKET] {
        let (cable, folder) = (Cable::new(), tempfile::tempdir().unwrap());
        let libpcap = Libpcap::Preloaded(variables);
        let line = ["tcpdump", "-i", FAR, "-w", "out"];
        let mut running = cable.start(&library, libpcap, &line, folder.path());
        cable.wait_until_it_listens(libpcap, &mut running);
        assert!(cable.has_program(), "{variables:?}");
        running.interrupt(Signal::SIGKILL);
        running.ended();
        // The kernel takes the program off when the last descriptor has gone.
        let deadline = std::time::Instant::now() + crate::support::TIMEOUT;
        while cable.has_program() {
            assert!(std::time::Instant::now() < deadline, "{variables:?} is still attached");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // And again.
        let mut running = cable.start(&library, libpcap, &line, folder.path());
        cable.wait_until_it_listens(libpcap, &mut running);
        assert!(cable.has_program(), "{variables:?}");
    }
}
