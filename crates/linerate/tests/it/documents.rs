//! Documents stay true: words that Linerate has replaced by the field's terms (CONTRIBUTING.md) stay out of them, of help
//! texts and of options; files that they name exist; lists are those of the code.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use linerate::Cli;
use linerate_doctor::Job;
use linerate_doctor::checks::CHECKS;
use linerate_forward::config::Config;
use linerate_forward::reason::Reason;
use linerate_forward::refusal::Refusal;

/// Replaced words, each with its replacement. They are matched as whole words, without regard to case.
const WORDS: &[(&str, &str)] = &[
    ("affairs", "shared state"),
    ("circumstances", "context"),
    ("tempo", "rate estimator"),
    ("nap", "interrupt coalescing"),
    ("naps", "interrupt coalescing"),
    ("glance", "poll"),
    ("judge", "change detector"),
    ("uppers", "upper devices"),
    ("books", "statistics"),
    ("tally", "statistics"),
    ("fate", "outcome"),
    ("wish", "options"),
    ("wishes", "options"),
    ("taker", "handler"),
    ("keeper", "guard"),
    ("outlet", "transmit queue"),
    ("obstacle", "reason"),
    ("patience", "heartbeat timeout"),
    ("stray", "remote-CPU counters"),
    ("road", "topology, datapath"),
    ("hand-back", "fail-open-after"),
    ("relearn", "revalidate"),
    ("mend", "fix"),
    ("obey", "apply"),
    ("obeyed", "applied"),
    ("obeys", "applies"),
    ("seed", "author, title, year and section of the paper"),
    ("seeds", "author, title, year and section of the paper"),
];

/// Replaced phrases. They stay out of the sources too, whose texts users see.
const PHRASES: &[(&str, &str)] = &[
    ("unless said", "default:"),
    ("not to be had", "unavailable"),
    ("configured anew", "configuration reloaded"),
    ("frames leave by it", "egress enabled"),
    ("ask the kernel again", "sessions invalidated"),
    ("shall stay as they are", "stay unchanged"),
    ("seed 00", "author, title, year and section of the paper"),
    ("the seed's", "author, title, year and section of the paper"),
];

/// Where a replaced word is right: the end of the place's name, the word, and the reason.
const EXCEPTIONS: &[(&str, &str, &str)] =
    &[("linerate generate --help", "seed", "the seed of a random number generator")];

/// A text and where it stands.
struct Text {
    place: String,
    text: String,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below `folder` whose names end in one of `endings`.
fn files(folder: &str, endings: &[&str], into: &mut Vec<Text>) {
    for entry in fs::read_dir(repository().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let place = if folder == "." { name.clone() } else { format!("{folder}/{name}") };
        if entry.file_type().unwrap().is_dir() {
            if folder != "." && name != "target" {
                files(&place, endings, into);
            }
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            let text = fs::read_to_string(entry.path()).unwrap();
            into.push(Text { place, text });
        }
    }
}

/// The documents that readers see.
fn documents() -> Vec<Text> {
    let mut documents = Vec::new();
    files(".", &[".md"], &mut documents);
    files("docs", &[".md", ".json", ".svg"], &mut documents);
    files("packaging", &[""], &mut documents);
    files("fuzz", &["README.md"], &mut documents);
    assert!(documents.iter().any(|page| page.place == "README.md"));
    documents
}

/// The help text of a command and of all commands below it.
fn help(command: &mut Command, path: &str, into: &mut Vec<Text>) {
    let name = format!("{path}{}", command.get_name());
    let text = command.render_long_help().to_string();
    into.push(Text { place: format!("{name} --help"), text });
    for below in command.get_subcommands_mut() {
        help(below, &format!("{name} "), into);
    }
}

fn helps() -> Vec<Text> {
    let mut helps = Vec::new();
    help(&mut Cli::command(), "", &mut helps);
    assert!(helps.iter().any(|text| text.place == "linerate generate --help"));
    helps
}

/// Whether `text` has `word` with nothing beside it that `is_part` of words.
fn has(text: &str, word: &str, is_part: fn(char) -> bool) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// The lines of `texts` in which `found` sees one of `words`, with what to write instead.
fn lines_with(
    texts: &[Text],
    words: &[(&str, &str)],
    found: impl Fn(&str, &str) -> bool,
) -> Vec<String> {
    let mut lines = Vec::new();
    for Text { place, text } in texts {
        for (number, line) in text.to_lowercase().lines().enumerate() {
            for (word, instead) in words {
                let excepted =
                    EXCEPTIONS.iter().any(|(end, of, _)| of == word && place.ends_with(end));
                if !excepted && found(line, word) {
                    lines.push(format!("{place}:{}: '{word}', write: {instead}", number + 1));
                }
            }
        }
    }
    lines
}

#[test]
fn documents_and_help_texts_have_the_fields_words() {
    let mut texts = documents();
    texts.extend(helps());
    let mut lines = lines_with(&texts, WORDS, |line, word| has(line, word, char::is_alphanumeric));
    lines.extend(lines_with(&texts, PHRASES, |line, word| line.contains(word)));
    assert!(lines.is_empty(), "\n{}", lines.join("\n"));
}

/// Linerate's options in the prose of a page: in code such as `--name VALUE` and `linerate verb --name`. Code blocks are
/// commands, which another test runs.
fn options_in(page: &str) -> Vec<&str> {
    page.split("```")
        .step_by(2)
        .flat_map(|prose| prose.split('`').skip(1).step_by(2))
        .filter(|code| code.starts_with("--") || code.starts_with("linerate "))
        .flat_map(|code| code.split(" -- ").next().unwrap().split_whitespace())
        .filter(|word| word.len() > 2 && word.starts_with("--"))
        .map(|word| {
            let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '-';
            word.split(is_end).next().unwrap()
        })
        .collect()
}

/// An option of another program is written with that program: `editcap --skip`. The pages of docs/from begin with such
/// options, and linerate-flows has a command of its own.
#[test]
fn options_in_documents_exist() {
    let is_part = |c: char| c.is_alphanumeric() || c == '-';
    let helps = helps();
    let mut flows = Vec::new();
    files("flows", &[".rs"], &mut flows);
    let is_option = |option: &str| {
        let field = format!("{}:", option[2..].replace('-', "_"));
        helps.iter().any(|help| has(&help.text, option, is_part))
            || flows
                .iter()
                .any(|source| has(&source.text, &field, |c| c == '_' || c.is_alphanumeric()))
    };
    let mut unknown = Vec::new();
    for page in documents() {
        let is_checked = page.place.ends_with(".md")
            && !page.place.starts_with("docs/from/")
            && page.place != "CHANGELOG.md";
        if is_checked {
            let options = options_in(&page.text).into_iter().filter(|option| !is_option(option));
            unknown.extend(options.map(|option| format!("{}: {option}", page.place)));
        }
    }
    assert!(unknown.is_empty(), "no verb has these options:\n{}", unknown.join("\n"));
}

#[test]
fn sources_have_no_replaced_phrases() {
    let mut texts = Vec::new();
    for folder in ["crates", "lab"] {
        files(folder, &[".rs", ".c", ".h"], &mut texts);
    }
    texts.retain(|text| !text.place.ends_with("tests/it/documents.rs"));
    assert!(texts.len() > 100, "{} files", texts.len());
    let lines = lines_with(&texts, PHRASES, |line, word| line.contains(word));
    assert!(lines.is_empty(), "\n{}", lines.join("\n"));
}

/// Nouns that the output of the command counts.
const COUNTED: &[&str] = &[
    "packets",
    "frames",
    "messages",
    "records",
    "queues",
    "sessions",
    "files",
    "segments",
    "super-packets",
    "requests",
    "checksums",
    "threads",
    "flows",
    "gaps",
    "CPUs",
];

/// Whether a line has a noun in the plural whatever its count is: `{} packets`, but not `{} of {total} packets`.
fn has_fixed_plural(line: &str) -> bool {
    COUNTED.iter().any(|noun| {
        line.match_indices(&format!("}} {noun}")).any(|(at, _)| {
            let counted = line[..at].rfind('{').map_or(line, |brace| &line[..brace]);
            !counted.ends_with(" of ")
        })
    })
}

#[test]
fn one_of_something_is_in_the_singular() {
    assert!(has_fixed_plural(r#""{} packets read""#) && has_fixed_plural(r#""x {count} flows""#));
    assert!(!has_fixed_plural(r#""{} of {all} packets""#) && !has_fixed_plural(r#""{} {noun}""#));
    let mut texts = Vec::new();
    for folder in
        ["linerate", "linerate-capture", "linerate-uplink", "linerate-generate", "linerate-doctor"]
    {
        files(&format!("crates/{folder}/src"), &[".rs"], &mut texts);
    }
    let lines = texts.iter().flat_map(|Text { place, text }| {
        let code =
            text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        code.filter(|(_, line)| !line.contains("assert") && has_fixed_plural(line))
            .map(move |(number, line)| format!("{place}:{}: {}", number + 1, line.trim()))
    });
    let lines: Vec<_> = lines.collect();
    assert!(lines.is_empty(), "use `plural`:\n{}", lines.join("\n"));
}

#[test]
fn a_word_is_found_alone_and_not_inside_of_another() {
    let is = |text: &str, word| has(text, word, char::is_alphanumeric);
    assert!(is("the seed of", "seed") && is("seed", "seed") && is("(seed)", "seed"));
    assert!(!is("reseed", "seed") && !is("seeds", "seed"));
    let words = [("seed", "paper")];
    let text = |place: &str| Text { place: place.into(), text: "one\nA seed".into() };
    let found = |text| lines_with(&[text], &words, |line, word| line.contains(word));
    assert_eq!(found(text("docs/x.md")), ["docs/x.md:2: 'seed', write: paper"]);
    assert!(found(text("linerate generate --help")).is_empty());
}

/// What stands between backquotes, and what links lead to.
fn names(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let links = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    quoted.chain(links).collect()
}

#[test]
fn files_that_documents_name_exist() {
    let mut documents = documents();
    documents.retain(|page| page.place.ends_with(".md"));
    let mut count = 0;
    let mut missing = Vec::new();
    for Text { place, text } in &documents {
        let folder = Path::new(place).parent().unwrap();
        for name in names(text) {
            let name = name.split_once('#').map_or(name, |(file, _)| file);
            let is_path = !name.is_empty()
                && !name.contains(['*', ' ', ':', '$', '<'])
                && !name.contains("NAME");
            let path = if !is_path {
                continue;
            } else if name.starts_with("linerate") && name.contains("/src/") {
                Path::new("crates").join(name)
            } else if ["crates/", "docs/", "kernel/", "lab/", "scripts/"]
                .iter()
                .any(|top| name.starts_with(top))
            {
                // What scripts make is not there yet.
                if name == "kernel/proven" {
                    continue;
                }
                PathBuf::from(name)
            } else if name.ends_with(".md") || name.starts_with("../") {
                folder.join(name)
            } else {
                continue;
            };
            count += 1;
            if !repository().join(&path).exists() {
                missing.push(format!("{place}: {}", path.display()));
            }
        }
    }
    assert!(count > 50, "{count} names");
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

#[test]
fn the_manual_of_forward_has_every_reason_and_key() {
    let page = fs::read_to_string(repository().join("docs/forward.md")).unwrap();
    let reasons = Reason::ALL.iter().map(|reason| (reason.name(), reason.description()));
    let refusals = Refusal::ALL.iter().map(|refusal| (refusal.name(), refusal.description()));
    for (name, about) in reasons.chain(refusals) {
        let row = format!("| `{name}` | {about} |\n");
        assert!(page.contains(&row), "docs/forward.md has no row {row}");
    }
    let keys = Config::default().to_toml();
    for key in keys.lines().filter_map(|line| Some(line.split_once(" = ")?.0)) {
        assert!(page.contains(&format!("\n| `{key}` |")), "docs/forward.md has no key {key}");
    }
}

#[test]
fn the_site_has_every_page_once() {
    let summary = fs::read_to_string(repository().join("docs/SUMMARY.md")).unwrap();
    let mut pages = Vec::new();
    files("docs", &[".md"], &mut pages);
    for Text { place, .. } in pages.iter().filter(|page| page.place != "docs/SUMMARY.md") {
        let link = format!("]({})", place.strip_prefix("docs/").unwrap());
        assert_eq!(summary.matches(&link).count(), 1, "{place} in docs/SUMMARY.md");
    }
}

#[test]
fn every_check_has_a_symptom() {
    let page = fs::read_to_string(repository().join("docs/troubleshooting.md")).unwrap();
    for check in CHECKS {
        assert!(
            page.contains(&format!("`{}`", check.id)),
            "docs/troubleshooting.md has no {}",
            check.id
        );
    }
}

#[test]
fn the_manual_of_doctor_has_every_check() {
    let page = fs::read_to_string(repository().join("docs/doctor.md")).unwrap();
    for check in CHECKS {
        let jobs: Vec<_> = check.jobs.iter().map(|job| job.name()).collect();
        let jobs = if check.jobs == Job::ALL { "all".to_owned() } else { jobs.join(", ") };
        let linerate_doctor::checks::Check { id, question, measured, cost, .. } = check;
        let row = format!("| `{id}` | {jobs} | {question} | {measured} | {cost} |\n");
        assert!(page.contains(&row), "docs/doctor.md has no row {row}");
    }
}
