//! `--config`: the options of `linerate capture` in a file (TOML). Its keys are the long options, so the file says
//! what the command line says.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use toml::{Table, Value};

/// Options that have no place in a file.
const NOT_IN_FILES: [&str; 6] =
    ["check", "config", "read", "help", "list_interfaces", "list_data_link_types"];

/// The words that stand for the keys of the file: options, and the filter expression. Options that the command line
/// gives (`given`) win over those of the file.
///
/// # Errors
/// When the file cannot be read, is no TOML, or has a key or value that no option has.
pub(crate) fn words(file: &Path, verb: &Command, given: &ArgMatches) -> Result<[Vec<String>; 2]> {
    let name = file.display();
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the configuration {name}"))?;
    let table: Table = text.parse().map_err(|error| anyhow!("{name}: {error}"))?;
    let mut words = Vec::new();
    let mut expression = Vec::new();
    for (key, value) in &table {
        let Some(option) = find(verb, key) else {
            bail!(
                "{name}: there is no key {key:?}; keys are the long options of `linerate capture --help`, and {}",
                nameless(verb).join(", ")
            );
        };
        if given.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine) {
            continue;
        }
        let values = values(value).map_err(|reason| anyhow!("{name}: {key}: {reason}"))?;
        if option.is_positional() {
            expression = values;
        } else {
            add(&mut words, option, values).map_err(|reason| anyhow!("{name}: {key}: {reason}"))?;
        }
    }
    Ok([words, expression])
}

/// The command line of a capture without `--check` and `--config`, as a shell reads it.
pub(super) fn command_line(words: &[OsString]) -> String {
    let mut words = words.iter().map(|word| word.to_string_lossy());
    let mut shown = vec!["linerate".to_owned()];
    words.next();
    while let Some(word) = words.next() {
        match &*word {
            "--" => {
                shown.push(word.into_owned());
                shown.extend(words.by_ref().map(Cow::into_owned));
            }
            "--check" => {}
            "--config" => _ = words.next(),
            word if word.starts_with("--config=") => {}
            word => shown.push(word.to_owned()),
        }
    }
    shlex::try_join(shown.iter().map(String::as_str)).unwrap_or_else(|_| shown.join(" "))
}

/// The key of an option: its long name, or what the manual calls its value.
fn key(option: &Arg) -> String {
    option.get_long().map_or_else(|| option.get_id().as_str().replace('_', "-"), str::to_owned)
}

fn find<'c>(verb: &'c Command, wanted: &str) -> Option<&'c Arg> {
    let mut options = verb.get_arguments().filter(|one| is_key(one));
    options.find(|option| key(option) == wanted)
}

fn is_key(option: &Arg) -> bool {
    !NOT_IN_FILES.contains(&option.get_id().as_str())
}

/// The keys of options that have no long name.
fn nameless(verb: &Command) -> Vec<String> {
    let options = verb.get_arguments().filter(|one| is_key(one) && one.get_long().is_none());
    options.filter(|one| !one.is_hide_set()).map(key).collect()
}

/// The values of a key, as words; for a switch `true` or `false`.
fn values(value: &Value) -> Result<Vec<String>, String> {
    Ok(match value {
        Value::String(text) => vec![text.clone()],
        Value::Integer(number) => vec![number.to_string()],
        Value::Boolean(on) => vec![on.to_string()],
        Value::Array(list) => {
            list.iter().map(values).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect()
        }
        other => return Err(format!("an option has no {} as its value", other.type_str())),
    })
}

fn add(words: &mut Vec<String>, option: &Arg, values: Vec<String>) -> Result<(), String> {
    let switch = match (option.get_long(), option.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => return Err("this is not an option".to_owned()),
    };
    // An option that may be given several times is written as on the command line: "tt" for -tt.
    let letter = option.get_short().filter(|_| matches!(option.get_action(), ArgAction::Count));
    let is_switch = matches!(option.get_action(), ArgAction::SetTrue | ArgAction::Count);
    for value in values {
        match (is_switch, value.as_str()) {
            (true, "true") => words.push(switch.clone()),
            (true, "false") => {}
            (true, text) => match letter {
                Some(letter) if is_repeated(text, letter) => words.push(format!("-{text}")),
                Some(letter) => {
                    return Err(format!(
                        "write true, false, or how often: \"{letter}{letter}\" for -{letter}{letter}"
                    ));
                }
                None => return Err("write true or false".to_owned()),
            },
            // In one word, so that a value may begin with a hyphen.
            (false, _) if option.get_long().is_some() => words.push(format!("{switch}={value}")),
            (false, _) => words.push(format!("{switch}{value}")),
        }
    }
    Ok(())
}

/// Whether this is the letter, once or several times.
fn is_repeated(text: &str, letter: char) -> bool {
    !text.is_empty() && text.chars().all(|one| one == letter)
}
