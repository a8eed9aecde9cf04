//! Lines on standard error have one style; in the journal each has a syslog priority.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::LINERATE;

/// Standard error of a command line. JOURNAL_STREAM names that stream, or another one.
fn printed(command: &mut Command, is_journal: bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stderr");
    let file = File::create(&path).unwrap();
    let about = file.metadata().unwrap();
    let inode = about.ino() + u64::from(!is_journal);
    command.env("JOURNAL_STREAM", format!("{}:{inode}", about.dev())).stderr(file);
    command.output().unwrap();
    std::fs::read_to_string(&path).unwrap()
}

/// Both outputs of a command line: elsewhere, and in the journal.
fn both(mut command: impl FnMut() -> Command) -> [String; 2] {
    [false, true].map(|is_journal| printed(&mut command(), is_journal))
}

#[test]
fn each_line_in_the_journal_has_its_priority() {
    let with = |line: &'static str| {
        both(move || {
            let mut command = Command::new(LINERATE);
            command.args(line.split(' '));
            command
        })
    };
    let empty = tempfile::NamedTempFile::new().unwrap();
    // A pcap file without packets.
    let header: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1];
    std::fs::write(&empty, header.map(u32::to_le_bytes).as_flattened()).unwrap();
    let [text, journal] = both(|| {
        let mut command = Command::new(LINERATE);
        command.args(["capture", "--immediate-mode", "--discard", "-r"]).arg(empty.path());
        command
    });
    assert!(
        text.starts_with("linerate: warning: --immediate-mode has no effect on a file\n"),
        "{text}"
    );
    assert!(journal.starts_with("<4>--immediate-mode has no effect on a file\n"), "{journal}");
    assert!(journal.lines().skip(1).all(|line| line.starts_with("<6>")), "{journal}");

    let [text, journal] = with("capture -r /no/such/file");
    assert!(text.starts_with("linerate: ") && text.contains("/no/such/file"), "{text}");
    assert_eq!(journal, text.replacen("linerate: ", "<3>", 1));

    let [text, journal] = with("capture --no-such-option");
    assert!(text.starts_with("error: "), "{text}");
    assert!(journal.lines().all(|line| line.starts_with("<3>")), "{journal}");
}
