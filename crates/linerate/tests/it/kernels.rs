//! The table of docs/kernels.md is generated from docs/kernels.json, the report of `scripts/test-kernels record`.
//! Nobody edits either by hand. LINERATE_WRITE_TABLE=1 writes the table.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

const BEGIN: &str = "<!-- made by scripts/test-kernels table -->\n";
const END: &str = "<!-- end of the generated table -->\n";
/// The page that holds the table.
const PAGE: &str = "docs/kernels.md";

#[derive(Deserialize)]
struct Kernel {
    /// What it is called in scripts/kernels/kernels.
    name: String,
    /// Version of the package.
    version: String,
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    feature: String,
    result: Outcome,
    why: String,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn record() -> Vec<Kernel> {
    serde_json::from_str(&read("docs/kernels.json")).expect("docs/kernels.json")
}

/// The features in the order of scripts/kernels/features, each once.
fn features() -> Vec<String> {
    let text = read("scripts/kernels/features");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut names: Vec<_> =
        lines.filter_map(|line| Some(line.split_once('|')?.0.trim().to_owned())).collect();
    names.dedup();
    names
}

/// Whether a feature works on a kernel, and the reason if it does not.
fn verdict(kernel: &Kernel, feature: &str) -> (Outcome, String) {
    let tests: Vec<_> = kernel.tests.iter().filter(|test| test.feature == feature).collect();
    assert!(!tests.is_empty(), "{feature} has not been run on {}", kernel.name);
    for outcome in [Outcome::Failed, Outcome::Skipped] {
        if let Some(test) = tests.iter().find(|test| test.result == outcome) {
            return (outcome, test.why.clone());
        }
    }
    (Outcome::Passed, String::new())
}

fn table(kernels: &[Kernel]) -> String {
    let mut text = String::from("\n|");
    for kernel in kernels {
        let upstream = kernel.version.split('-').next().expect("a version");
        let _ = write!(text, " | Linux {upstream}, {}", kernel.name);
    }
    text += " |\n| ---";
    text += &" | ---".repeat(kernels.len());
    text += " |\n";
    let mut reasons: Vec<String> = Vec::new();
    for feature in features() {
        text += "| ";
        text += &feature;
        for kernel in kernels {
            let (outcome, why) = verdict(kernel, &feature);
            if outcome == Outcome::Passed {
                text += " | yes";
                continue;
            }
            let at = reasons.iter().position(|known| *known == why).unwrap_or_else(|| {
                reasons.push(why);
                reasons.len() - 1
            });
            let word = if outcome == Outcome::Failed { "**fails**" } else { "no" };
            let _ = write!(text, " | {word} ({})", at + 1);
        }
        text += " |\n";
    }
    text += "\n";
    for (number, reason) in reasons.iter().enumerate() {
        let _ = writeln!(text, "{}. {reason}.", number + 1);
    }
    if !reasons.is_empty() {
        text += "\n";
    }
    text
}

#[test]
fn the_table_is_what_the_record_says() {
    let page = read(PAGE);
    let (before, rest) = page.split_once(BEGIN).expect("the table begins");
    let (there, after) = rest.split_once(END).expect("the table ends");
    let made = table(&record());
    if std::env::var_os("LINERATE_WRITE_TABLE").is_some() {
        fs::write(path(PAGE), [before, BEGIN, &made, END, after].concat()).unwrap();
        return;
    }
    assert!(there == made, "{PAGE}: run scripts/test-kernels table; it would be\n{made}");
}

#[test]
fn the_record_is_of_three_kernels_and_knows_zero_copy() {
    let kernels = record();
    assert!(kernels.len() >= 3);
    let copies = |kernel: &Kernel| {
        let mut tests = kernel.tests.iter().filter(|test| test.feature.contains("zero-copy"));
        tests.any(|test| test.result == Outcome::Passed)
    };
    assert!(kernels.iter().any(copies), "no kernel shares frames without a copy");
    for kernel in &kernels {
        let known = features();
        let stray = kernel.tests.iter().find(|test| !known.contains(&test.feature));
        assert!(stray.is_none(), "scripts/kernels/features has no '{}'", stray.unwrap().feature);
    }
}

/// Whether the file of the test's module below the folder, or its `tests.rs`, defines the test.
fn defines(folder: &Path, test: &str) -> bool {
    let (modules, function) = test.rsplit_once("::").unwrap();
    let module = modules.strip_suffix("::tests").unwrap_or(modules).replace("::", "/");
    let files = [format!("{module}.rs"), format!("{module}/mod.rs"), format!("{module}/tests.rs")];
    files.iter().any(|file| {
        let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
        text.contains(&format!("fn {function}("))
    })
}

#[test]
fn every_feature_names_tests_that_exist() {
    let text = read("scripts/kernels/features");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [_, crate_name, target, tests] = line.split('|').map(str::trim).collect::<Vec<_>>()[..]
        else {
            panic!("four fields: {line}")
        };
        let folder = if target == "lib" { "src" } else { "tests/it" };
        let folder = path("crates").join(crate_name).join(folder);
        for test in tests.split_whitespace() {
            assert!(defines(&folder, test), "{crate_name} has no test {test}");
        }
    }
}
