//! The files of docs/schema, held against objects. They allow fields that a later version may add; here an object has
//! no field that its file does not describe.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Value, json};

/// Where a file's relative references start; nothing is read from there.
const BASE: &str = "file:///schema/";

/// The folder of the schema files.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema")
}

/// All files, by the name of the schema.
pub(crate) fn files() -> BTreeMap<String, Value> {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let file = serde_json::from_str(&text);
        (name, file.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    entries.map(read).collect()
}

/// Lets no field pass that this schema does not describe. A definition may be a part of an object: the place that
/// refers to it says that.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            for (key, below) in map.iter_mut() {
                match below {
                    Value::Object(definitions) if key == "$defs" => {
                        for definition in definitions.values_mut() {
                            let parts = definition.as_object_mut().unwrap().values_mut();
                            parts.for_each(close);
                        }
                    }
                    // Names of fields, not keywords.
                    Value::Object(properties) if key == "properties" => {
                        properties.values_mut().for_each(close);
                    }
                    other => close(other),
                }
            }
            if map.contains_key("properties") || map.contains_key("$ref") {
                map.insert("unevaluatedProperties".to_owned(), json!(false));
            }
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}

struct Compiled {
    schemas: Schemas,
    places: BTreeMap<String, SchemaIndex>,
}

static COMPILED: LazyLock<Compiled> = LazyLock::new(|| {
    let mut files = files();
    // A log event has fields of its own.
    let open = BTreeSet::from(["linerate-log-1"]);
    let mut compiler = Compiler::new();
    for (name, file) in &mut files {
        if !open.contains(name.as_str()) {
            close(file);
        }
        compiler.add_resource(&format!("{BASE}{name}.json"), file.take()).unwrap();
    }
    let mut schemas = Schemas::new();
    let compile = |name: String| {
        let place = compiler.compile(&format!("{BASE}{name}.json"), &mut schemas);
        (name, place.unwrap_or_else(|error| panic!("{error:#}")))
    };
    let places = files.into_keys().map(compile).collect();
    Compiled { schemas, places }
});

/// Holds an object against the schema that it names, and returns the name.
#[track_caller]
pub(crate) fn check(object: &Value) -> String {
    let name = object["schema"].as_str().unwrap_or_else(|| panic!("no schema in {object}"));
    let place = COMPILED.places.get(name).unwrap_or_else(|| panic!("no file for {name}"));
    if let Err(error) = COMPILED.schemas.validate(object, *place) {
        panic!("{error:#}\nin {object:#}");
    }
    name.to_owned()
}

#[test]
fn what_a_schema_does_not_describe_is_found() {
    let good = json!({ "schema": "linerate-forward-flush-1", "ended": 2 });
    assert_eq!(check(&good), "linerate-forward-flush-1");
    let wrong = [
        json!({ "schema": "linerate-forward-flush-1" }),
        json!({ "schema": "linerate-forward-flush-1", "ended": -1 }),
        json!({ "schema": "linerate-forward-flush-1", "ended": 2, "more": 1 }),
        json!({ "schema": "linerate-unknown-1", "ended": 2 }),
        json!({ "ended": 2 }),
    ];
    for object in wrong {
        assert!(std::panic::catch_unwind(|| check(&object)).is_err(), "{object}");
    }
}
