//! The man pages and the completion scripts, which are made from the definitions of the command line.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use linerate_testkit::{Namespace, is_root, print_skipped, skip};

use crate::LINERATE;

fn linerate(arguments: &[&str]) -> Output {
    Command::new(LINERATE).args(arguments).output().unwrap()
}

/// The verbs below `path` that `--help` lists.
fn verbs(path: &[String]) -> Vec<String> {
    let output = Command::new(LINERATE).args(path).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let Some((_, list)) = help.split_once("Commands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|line| !line.is_empty());
    // A verb stands two columns in; what its line has no room for stands further in.
    let verbs = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    verbs.filter(|verb| !verb.is_empty() && *verb != "help").map(str::to_owned).collect()
}

/// Verbs whose help is that of another program, which may not be there.
const COMPANIONS: [&str; 2] = ["flows", "find"];

/// All verbs and the verbs below them, as paths.
pub(crate) fn all(path: &[String], into: &mut Vec<Vec<String>>) {
    for verb in verbs(path) {
        let below = [path, &[verb]].concat();
        if !COMPANIONS.contains(&below[0].as_str()) {
            all(&below, into);
        }
        into.push(below);
    }
}

/// Options with numbers: the verb with what it needs besides, options that take no 0, and options that do.
const NUMBERS: [(&str, &[&str], &[&str]); 8] = [
    (
        "capture -w /nowhere/x",
        &[
            "-c",
            "-B",
            "-C",
            "-G",
            "-W",
            "-b packets:",
            "-b duration:",
            "-b filesize:",
            "-b files:",
            "-a packets:",
            "-a duration:",
            "-a filesize:",
            "--threads",
            "--rate-limit",
            "--sample 1/",
            "--cutoff",
        ],
        &["-s", "--busy-poll", "--cpu"],
    ),
    (
        "replay -i nowhere nothing.pcap",
        &["--pps", "--mbps", "-x", "--loop-delay", "--duration", "-L"],
        &["--loop", "--cpu"],
    ),
    (
        "generate -i nowhere",
        &["-c", "--seconds", "--rate", "--flows", "--flows 9 --zipf"],
        &["--vlan", "--seed", "--cpu", "--ttl", "--dscp"],
    ),
    (
        "receive -b 127.0.0.1:0",
        &["--batch", "--message-size", "--threads", "-c", "--for", "--buffer", "--ring"],
        &["--cpu", "--busy-poll", "--coalesce-usecs"],
    ),
    ("send 127.0.0.1:9", &["-c", "--for", "--batch", "--rate"], &[]),
    (
        "segment nothing.pcap -w /nowhere/x",
        &["--mtu", "--mss", "--uso", "--max-burst"],
        &["--hold"],
    ),
    ("run --source packet", &["--threads", "--buffer-size"], &[]),
    ("uplink -i nowhere", &["--queues", "--mtu", "--max-burst"], &["--cpu"]),
];

/// More than any integer has room for.
const HUGE: &str = "99999999999999999999999999999";

/// Options with a number that may be that large.
const FLOATS: [&str; 5] = ["--pps", "--mbps", "-x", "--rate", "--flows 9 --zipf"];

#[test]
fn a_number_that_is_none_is_a_wrong_command_line() {
    for (verb, above_0, from_0) in NUMBERS {
        let wrong = ["nan", "inf", "-inf", "-1", "1e999", HUGE, "x", ""];
        let wrong_of = above_0.iter().map(|option| (option, &["0"][..]));
        for (option, more) in wrong_of.chain(from_0.iter().map(|option| (option, &[][..]))) {
            for value in wrong.iter().chain(more) {
                if *value == HUGE && FLOATS.contains(option) {
                    continue;
                }
                let mut words: Vec<String> = verb.split(' ').map(str::to_owned).collect();
                let start = option.split(' ').map(str::to_owned).collect::<Vec<_>>();
                let (last, before) = start.split_last().unwrap();
                words.extend(before.iter().cloned());
                match last.starts_with("--") {
                    true => words.push(format!("{last}={value}")),
                    // A value of its own word begins with no hyphen: these stand behind the letter or the prefix.
                    false if last.starts_with('-') && value.is_empty() => continue,
                    false => words.push(format!("{last}{value}")),
                }
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let output = linerate(&words);
                let said = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
                assert!(said.contains("invalid value"), "{words:?}: {said}");
            }
        }
    }
}

#[test]
fn every_verb_has_a_page_and_nothing_else_has_one() {
    let mut verbs = Vec::new();
    all(&[], &mut verbs);
    assert!(verbs.contains(&vec!["capture".into()]), "{verbs:?}");
    assert!(verbs.contains(&vec!["lab".into(), "demo".into()]), "{verbs:?}");

    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("new/man1");
    let made = linerate(&["manual", pages.to_str().unwrap()]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let found: BTreeSet<String> = fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let name = |path: &Vec<String>| format!("linerate-{}.1", path.join("-"));
    let wanted: BTreeSet<String> =
        verbs.iter().map(name).chain(["linerate.1".to_owned()]).collect();
    assert_eq!(found, wanted);
    for path in &verbs {
        let page = fs::read_to_string(pages.join(name(path))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{path:?}");
        if COMPANIONS.contains(&path[0].as_str()) {
            continue;
        }
        // The options of the verb's own --help are in its page, escaped as roff wants it.
        let help = Command::new(LINERATE).args(path).arg("--help").output().unwrap().stdout;
        let help = String::from_utf8(help).unwrap();
        let options = help.lines().filter_map(|line| {
            let line = line.trim_start();
            line.starts_with('-').then(|| line.split_once("--").map_or(line, |(_, long)| long))
        });
        for option in options {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
            let word = option.trim_start_matches('-').split(|c| !is_part(c)).next().unwrap();
            let escaped = word.replace('-', "\\-");
            assert!(page.contains(&escaped), "{path:?}: no {word} in its page");
        }
    }
}

#[test]
fn pages_have_the_sections_of_manuals_and_no_finding_of_mandoc() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(LINERATE)
        .arg("manual")
        .arg(folder.path())
        .env("SOURCE_DATE_EPOCH", "86400")
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut pages: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    for path in &pages {
        let page = fs::read_to_string(path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let title = page.lines().find(|line| line.starts_with(".TH ")).unwrap();
        assert!(title.starts_with(&format!(".TH {name} 1 1970-01-02 \"Linerate ")), "{title}");
        for section in ["\"EXIT STATUS\"", "EXAMPLES", "\"SEE ALSO\""] {
            assert!(page.contains(&format!("\n.SH {section}\n")), "{name}: no {section}");
        }
        // What a section says is not said again as plain text.
        assert!(!page.contains("EXTRA") && !page.contains("Exit status: "), "{name}: {page}");
    }
    let page = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(page("linerate-forward-run.1").contains("/etc/linerate/forward.toml"));
    assert!(page("linerate-doctor.1").contains("/var/lib/linerate/doctor.json"));
    // Every page that a page refers to exists.
    for path in &pages {
        let text = fs::read_to_string(path)
            .unwrap()
            .replace("\\-", "-")
            .replace("\\fR", "")
            .replace("\\fB", "");
        for (at, _) in text.match_indices("(1)") {
            let start = text[..at].rfind([' ', '\n', ',']).map_or(0, |blank| blank + 1);
            let other = &text[start..at];
            assert!(
                !other.starts_with("linerate") || folder.path().join(format!("{other}.1")).exists(),
                "{other}"
            );
        }
    }

    let linted = Command::new("mandoc").args(["-Tlint", "-Wwarning"]).args(&pages).output();
    let Ok(linted) = linted else { skip!("mandoc is not installed") };
    let findings = String::from_utf8_lossy(&linted.stdout).into_owned();
    assert!(linted.status.success() && findings.is_empty(), "{findings}");
}

#[test]
fn a_date_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(LINERATE)
        .arg("manual")
        .arg(folder.path())
        .env("SOURCE_DATE_EPOCH", "yesterday")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(!made.status.success() && said.contains("yesterday"), "{said}");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let below = file.path().join("pages");
    let made = linerate(&["manual", below.to_str().unwrap()]);
    assert!(!made.status.success());
    let printed = String::from_utf8(made.stderr).unwrap();
    assert!(printed.contains(below.to_str().unwrap()), "{printed}");
}

#[test]
fn the_help_of_capture_has_groups() {
    let help = String::from_utf8(linerate(&["capture", "--help"]).stdout).unwrap();
    let groups = help.lines().filter_map(|line| line.strip_suffix(':'));
    let groups: Vec<_> = groups.filter(|line| !line.starts_with(' ')).collect();
    let wanted = [
        "Arguments",
        "Options",
        "Interfaces",
        "Output files",
        "Flow records",
        "Selection of packets",
        "Sources",
        "Processes",
        "Printed packets",
        "Examples",
    ];
    assert_eq!(groups, wanted);
    let (_, general) = help.split_once("\nOptions:\n").unwrap();
    let (general, _) = general.split_once("\nInterfaces:\n").unwrap();
    let options = general.lines().filter(|line| line.trim_start().starts_with('-'));
    assert!(options.count() < 10, "options that are in no group: {general}");
}

/// The script for a shell, and what the shell says when it only reads it.
fn completion(shell: &str, arguments: &[&str]) -> Option<Output> {
    let made = linerate(&["completion", shell]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script");
    fs::write(&file, made.stdout).unwrap();
    Command::new(shell).args(arguments).arg(&file).output().ok()
}

fn is_read_by(test: &str, shell: &str, arguments: &[&str]) {
    let Some(read) = completion(shell, arguments) else {
        return print_skipped(test, &format!("{shell} is not installed"));
    };
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    assert!(read.stderr.is_empty(), "{}", String::from_utf8_lossy(&read.stderr));
}

#[test]
fn bash_reads_its_completion() {
    is_read_by("bash_reads_its_completion", "bash", &["-n"]);
}

#[test]
fn zsh_reads_its_completion() {
    is_read_by("zsh_reads_its_completion", "zsh", &["-n"]);
}

#[test]
fn fish_reads_its_completion() {
    is_read_by("fish_reads_its_completion", "fish", &["--no-execute"]);
}

/// The search path, with this program.
fn path() -> String {
    let folder = Path::new(LINERATE).parent().unwrap().display();
    format!("{folder}:{}", std::env::var("PATH").unwrap())
}

/// What bash offers for the last of these words, with the script and this program.
fn offered(words: &[&str]) -> Vec<String> {
    let script = String::from_utf8(linerate(&["completion", "bash"]).stdout).unwrap();
    let quoted: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
    let ask = format!(
        "{script}\nCOMP_WORDS=(linerate {}) COMP_CWORD={}\n_clap_complete_linerate linerate '{}' ''\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        words.len(),
        words.last().unwrap(),
    );
    let answer = Command::new("bash").args(["-c", &ask]).env("PATH", path()).output().unwrap();
    String::from_utf8(answer.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_verbs_options_and_what_the_host_has() {
    assert_eq!(offered(&["cap"]), ["capture"]);
    assert_eq!(offered(&["forward", "stat"]), ["status"]);
    assert_eq!(offered(&["capture", "--relin"]), ["--relinquish-privileges"]);
    assert_eq!(offered(&["capture", "--source", "tr"]), ["trace"]);
    for words in
        [&["capture", "-i", "l"][..], &["forward", "run", "-i", "l"], &["doctor", "-i", "l"]]
    {
        assert!(offered(words).contains(&"lo".to_owned()), "{words:?}: {:?}", offered(words));
    }
    assert!(offered(&["run", "--", "bas"]).contains(&"bash".to_owned()));
    assert!(offered(&["run", "--", "cat", "/etc/pass"]).contains(&"/etc/passwd".to_owned()));
    if is_root() {
        let namespace = Namespace::create("netns").unwrap();
        let name = namespace.name().to_owned();
        assert_eq!(offered(&["capture", "--netns", &name]), [name]);
    }
    let all = verbs(&[]);
    let top = offered(&[""]);
    assert!(all.iter().all(|verb| top.contains(verb)), "{top:?}");
    if Path::new(LINERATE).with_file_name("linerate-lab").is_file() {
        assert_eq!(offered(&["lab", "run", "capture-ra"]), ["capture-rate"]);
    }
}

#[test]
fn fish_completes_a_verb() {
    let ask = "linerate completion fish | source; complete -C 'linerate forward stat'";
    match Command::new("fish").args(["-c", ask]).env("PATH", path()).output() {
        Ok(answer) => assert!(answer.stdout.starts_with(b"status\t"), "{answer:?}"),
        Err(_) => print_skipped("fish_completes_a_verb", "fish is not installed"),
    }
}

/// As it is installed: zsh loads the script at the first completion, which is to offer something.
#[test]
fn zsh_completes_a_verb_from_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("_linerate"), linerate(&["completion", "zsh"]).stdout).unwrap();
    let ask = format!(
        "zmodload zsh/zpty
        TERM=dumb zpty shell zsh -f -i
        zpty -w shell \"fpath=({} \\$fpath); autoload -U compinit && compinit -u -D; print RE''ADY\"
        zpty -r -m shell out '*READY*'
        zpty -w -n shell $'linerate forward stat\\t'
        zpty -r -m shell out '*status *' && print completed
        zpty -d shell",
        folder.path().display()
    );
    let zsh = ["20", "zsh", "-f", "-c", &ask];
    let answer = Command::new("timeout").args(zsh).env("PATH", path()).output().unwrap();
    match answer.status.code() {
        // What `timeout` says of a command that it does not find.
        Some(127) => print_skipped("zsh_completes_a_verb_from_its_folder", "zsh is not installed"),
        _ => assert_eq!(String::from_utf8_lossy(&answer.stdout), "completed\n", "{answer:?}"),
    }
}
