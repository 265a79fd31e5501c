//! The schemas of the JSON that the program prints, `docs/schemas`.

use jsonschema::{Registry, Validator};
use serde_json::Value;
use std::path::Path;

/// The file with the parts that the other schemas share.
const COMMON: &str = "common.json";

fn read(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// The faults that this file's schema finds in the value; empty if it fits.
pub(crate) fn faults(file: &str, value: &Value) -> Vec<String> {
    let common = read(COMMON);
    let id = common["$id"].as_str().expect("an id").to_owned();
    let registry = Registry::new().add(id, common).expect("an address");
    let registry = registry.prepare().expect("the common schema is one");
    let schema = read(file);
    let validator: Validator = jsonschema::options()
        .with_registry(&registry)
        .build(&schema)
        .unwrap_or_else(|error| panic!("{file}: {error}"));
    let say = |error: jsonschema::ValidationError| format!("{}: {error}", error.instance_path());
    validator.iter_errors(value).map(say).collect()
}

/// Panics unless the value fits the schema. The schema must also refuse one more field in any of
/// its objects.
pub(crate) fn check(file: &str, value: &Value) {
    assert_eq!(faults(file, value), Vec::<String>::new(), "{file}: {value:#}");
    for at in objects(value) {
        let mut more = value.clone();
        let object = more.pointer_mut(&at).and_then(Value::as_object_mut).expect("it is one");
        object.insert("undocumented".to_owned(), Value::Null);
        assert!(!faults(file, &more).is_empty(), "{file} allows any field at {at:?}");
    }
}

/// The paths of all objects in the value.
fn objects(value: &Value) -> Vec<String> {
    let below = |key: &str, part: &Value| {
        objects(part).into_iter().map(|at| format!("/{key}{at}")).collect::<Vec<_>>()
    };
    match value {
        Value::Object(fields) => {
            let parts = fields.iter().flat_map(|(key, part)| below(key, part));
            std::iter::once(String::new()).chain(parts).collect()
        }
        Value::Array(parts) => {
            parts.iter().enumerate().flat_map(|(at, part)| below(&at.to_string(), part)).collect()
        }
        _ => Vec::new(),
    }
}
