//! docs/json.md is made from the files of docs/schema. LINERATE_WRITE_TABLE=1 writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use linerate::cli::json::Schema;
use serde_json::Value;

use super::schema::files;

/// The generated part of the page starts here.
const BEGIN: &str = "<!-- made from docs/schema by the tests -->\n";

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Writes the rows of an object's fields, and of the fields of those.
struct Table<'a> {
    files: &'a BTreeMap<String, Value>,
    file: &'a str,
    /// Definitions that have rows already, with the field that has them.
    shown: BTreeMap<String, String>,
    rows: String,
}

impl<'a> Table<'a> {
    /// The definition that a reference leads to, its file, and its name.
    fn resolve(&self, reference: &str, file: &'a str) -> (&'a Value, &'a str, String) {
        let (to, pointer) = reference.split_once('#').unwrap();
        let name = to.strip_suffix(".json").unwrap_or(file);
        let (file, target) = self.files.get_key_value(name).unwrap();
        let target = target.pointer(pointer).unwrap_or_else(|| panic!("{reference} of {file}"));
        (target, file, format!("{file}#{pointer}"))
    }

    fn fields(&mut self, schema: &'a Value, file: &'a str, prefix: &str) {
        let required: BTreeSet<_> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if let Some(own) = schema["properties"].as_object() {
            for (name, field) in own {
                let path = format!("{prefix}{name}");
                self.field(field, file, &path, required.contains(name.as_str()));
            }
        }
        if let Some(reference) = schema["$ref"].as_str() {
            let (target, file, _) = self.resolve(reference, file);
            self.fields(target, file, prefix);
        }
    }

    fn field(&mut self, field: &'a Value, file: &'a str, path: &str, required: bool) {
        let (mut about, mut shape) =
            (field["description"].as_str().unwrap_or("").to_owned(), field);
        let (mut path, mut from, mut kind) = (path.to_owned(), file, String::new());
        let mut definition = None;
        let mut or_null = false;
        loop {
            if let Some(options) = shape["anyOf"].as_array() {
                or_null = true;
                shape = &options[0];
            } else if let Some(reference) = shape["$ref"].as_str() {
                let (target, file, name) = self.resolve(reference, from);
                (shape, from, definition) = (target, file, Some(name));
            } else if shape["type"] == "array" {
                path += "[]";
                kind += "list of ";
                shape = &shape["items"];
            } else if shape["additionalProperties"]["properties"].is_object() {
                path += ".*";
                kind += "by name: ";
                shape = &shape["additionalProperties"];
            } else {
                break;
            }
        }
        kind += &type_of(shape);
        if or_null {
            kind += " or null";
        }
        if !required {
            kind += ", optional";
        }
        if let Some(words) = shape["enum"].as_array() {
            let words: Vec<_> =
                words.iter().filter_map(Value::as_str).map(|word| format!("`{word}`")).collect();
            if words.iter().any(|word| !about.contains(word)) {
                let _ = write!(about, " One of {}.", words.join(", "));
            }
        }
        let has_fields = shape["properties"].is_object();
        let elsewhere = definition.as_ref().and_then(|name| self.shown.get(name)).cloned();
        let foreign = definition.as_ref().filter(|_| from != self.file);
        let expanded = has_fields && elsewhere.is_none() && foreign.is_none();
        if let Some(place) = elsewhere.filter(|_| has_fields) {
            let _ = write!(about, " As `{place}`.");
        } else if let Some(name) = foreign.filter(|_| has_fields) {
            let other = name.split('#').next().unwrap();
            let _ = write!(about, " As in [{other}](#{other}).");
        }
        let _ = writeln!(self.rows, "| `{path}` | {kind} | {} |", about.trim());
        if expanded {
            if let Some(name) = definition {
                self.shown.insert(name, path.clone());
            }
            self.fields(shape, from, &format!("{path}."));
        }
    }
}

fn type_of(shape: &Value) -> String {
    let word = |kind: &Value| match kind.as_str().unwrap() {
        "string" => "text".to_owned(),
        other => other.to_owned(),
    };
    match &shape["type"] {
        Value::Array(kinds) => kinds.iter().map(word).collect::<Vec<_>>().join(" or "),
        // Words, or one word.
        Value::Null => match shape["enum"].as_array() {
            Some(words) if words.contains(&Value::Null) => "text or null".to_owned(),
            _ => "text".to_owned(),
        },
        kind if shape["additionalProperties"].is_object() => format!("{} of counts", word(kind)),
        kind => word(kind),
    }
}

/// The sections of all schemas.
fn sections() -> String {
    let files = files();
    let mut text = String::new();
    for (file, schema) in &files {
        let about = schema["description"].as_str().unwrap();
        let _ = writeln!(text, "\n## {file}\n\n{about}\n\n| field | type | meaning |");
        text.push_str("| --- | --- | --- |\n");
        let shown = BTreeMap::new();
        let mut table = Table { files: &files, file, shown, rows: String::new() };
        table.fields(schema, file, "");
        text.push_str(&table.rows);
    }
    text
}

#[test]
fn the_page_describes_every_field_of_every_schema() {
    let path = repository().join("docs/json.md");
    let page = fs::read_to_string(&path).unwrap();
    let (head, made) = page.split_once(BEGIN).expect("the mark");
    let wanted = sections();
    if std::env::var_os("LINERATE_WRITE_TABLE").is_some() {
        fs::write(&path, format!("{head}{BEGIN}{wanted}")).unwrap();
    } else {
        assert_eq!(made, wanted, "LINERATE_WRITE_TABLE=1 writes docs/json.md");
    }
}

#[test]
fn every_schema_has_a_file_that_says_all() {
    let files = files();
    let named: BTreeSet<_> = Schema::ALL.iter().map(|schema| schema.name()).collect();
    assert_eq!(named, files.keys().map(String::as_str).collect());
    fn described(schema: &Value, place: &str) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let place = format!("{place}.{name}");
            let about = field["description"].as_str();
            // The severities of doctor explain themselves.
            let known = place.contains("linerate-doctor-1.counts");
            assert!(known || about.is_some_and(|about| about.ends_with('.')), "{place}");
            described(field, &place);
            described(&field["items"], &place);
        }
    }
    for (name, file) in &files {
        assert_eq!(file["title"], name.as_str());
        assert_eq!(file["properties"]["schema"]["const"], name.as_str());
        described(file, name);
        for (definition, shape) in file["$defs"].as_object().into_iter().flatten() {
            described(shape, &format!("{name}.{definition}"));
        }
    }
}

/// An object that is printed past `cli::json` would have no schema.
#[test]
fn objects_are_printed_in_one_place() {
    let mut folders = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            count += 1;
            let text = fs::read_to_string(&path).unwrap();
            let writes = text.contains("serde_json::to_") || text.contains("println(json");
            assert_eq!(writes, path.ends_with("cli/json.rs"), "{}", path.display());
        }
    }
    assert!(count > 40, "{count} files");
}
