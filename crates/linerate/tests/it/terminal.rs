//! What verbs print on a terminal of 80 columns: lines that it does not have to break.

use std::fs;
use std::process::Stdio;

use linerate_testkit::{Command, print_skipped, root_or_skip, test_name};

use crate::LINERATE;
use crate::capture::support::{Cable, write_mixed};
use crate::surface::all;

/// The lines that this command line draws on such a terminal, also those that others replace. A verb that does not end
/// is interrupted after a second. `None` without script(1).
fn lines(mut script: Command, arguments: &str) -> Option<Vec<String>> {
    let inner = format!(
        "stty rows 24 cols 80; exec timeout --foreground --signal=INT 1 {LINERATE} {arguments}"
    );
    script.args(["--quiet", "--command", &inner, "/dev/null"]).stdin(Stdio::null());
    let output = script.output().ok()?;
    let drawn = String::from_utf8(output.stdout).unwrap();
    // Without codes of colours and of the cursor: ESC [ and parameters, up to a letter.
    let mut parts = drawn.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    let plain = parts.fold(first, |text, part| {
        text + part.trim_start_matches(|c: char| !c.is_alphabetic()).get(1..).unwrap_or_default()
    });
    Some(plain.split(['\r', '\n']).map(str::to_owned).collect())
}

/// Lines that a user copies into a shell stay whole.
#[test]
fn examples_fit_a_terminal_of_80_columns() {
    let mut verbs = vec![Vec::new()];
    all(&[], &mut verbs);
    for path in verbs {
        let mut command = std::process::Command::new(LINERATE);
        // The programs of others may not be there: their help is also in the command.
        let output = command.arg("help").args(&path).env("COLUMNS", "200").output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let examples = help.split_once("Examples:").map_or("", |(_, examples)| examples);
        let mut examples = examples.lines().filter(|line| line.starts_with("  "));
        let long = examples.find(|line| line.chars().count() > 80);
        assert_eq!(long, None, "{path:?}");
    }
}

#[test]
fn packets_are_not_written_to_a_terminal() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    let input = input.display();
    for arguments in [
        format!("capture -r {input} -w -"),
        "capture -i far --print -w -".to_owned(),
        format!("capture -r {input} -w /dev/stdout"),
        format!("capture -r {input} -w /dev/tty"),
        "capture -i far -w -".to_owned(),
        "capture -i far -w - --flows flows".to_owned(),
        format!("segment {input} -w -"),
        format!("segment {input} -w /dev/stdout"),
    ] {
        let Some(lines) = lines(cable.far.command("script"), &arguments) else {
            return print_skipped(test_name!(), "needs script");
        };
        let text = lines.join(" ");
        for words in ["to a terminal", "binary", "> FILE", "| PROGRAM"] {
            assert!(text.contains(words), "{arguments}: {text:?}");
        }
    }
}

#[test]
fn no_line_is_longer_than_a_terminal_of_80_columns() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    let (at, input) = (folder.path().display(), input.display());
    let mut verbs = Vec::new();
    all(&[], &mut verbs);
    let helps = verbs.iter().map(|path| format!("{} --help", path.join(" ")));
    let runs = [
        "capture -D".to_owned(),
        "capture -L".to_owned(),
        format!("capture -i far -w {at}/a.pcap"),
        format!("capture -v -i far --source xdp -w {at}/b.pcapng -C 1M -W 3 --threads 2"),
        format!("capture -i far --source tee --immediate-mode --pages small -w {at}/c.pcap udp"),
        format!("capture -i far --flows {at}/flows --flows ipfix://10.9.0.1"),
        format!("capture -r {input} --discard"),
        "capture -i nosuch".to_owned(),
        "capture --wait -i nosuch".to_owned(),
        "capture -w /nowhere/with/a/long/name/that/does/not/exist/packets.pcapng".to_owned(),
        "doctor".to_owned(),
        "doctor --all".to_owned(),
        "doctor forward -i far".to_owned(),
        "send 10.9.0.1:9".to_owned(),
        "receive --bind 10.9.0.2:7000".to_owned(),
        "receive --bind 10.9.0.2:7000 --backend xdp --interface far --threads 2".to_owned(),
        "generate -i far --seconds 1".to_owned(),
        "generate -i nosuch --seconds 1".to_owned(),
        format!("replay -i far {input}"),
        format!("segment {input} -w {at}/d.pcap"),
        "run -- nosuchprogram".to_owned(),
        "uplink -i far".to_owned(),
        "forward status".to_owned(),
        "forward run -i far".to_owned(),
        "lab list".to_owned(),
    ];
    for arguments in helps.chain(runs) {
        let Some(lines) = lines(cable.far.command("script"), &arguments) else {
            return print_skipped(test_name!(), "needs script");
        };
        assert!(lines.iter().any(|line| !line.is_empty()), "{arguments} prints nothing");
        // The usage of clap stays in one line.
        let mut lines = lines.iter().filter(|line| !line.starts_with("Usage: "));
        let long = lines.find(|line| line.chars().count() > 80);
        assert_eq!(long, None, "{arguments}");
    }
    fs::remove_dir_all(folder.path().join("flows")).unwrap();
}
