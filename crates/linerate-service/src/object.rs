//! [`Object`]: a JSON object that names its schema.

use serde::Serialize;

/// The fields of `T`, after `schema`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Object<'a, T> {
    /// The name of its schema, with a version.
    pub schema: &'static str,
    /// A struct or a map.
    #[serde(flatten)]
    pub fields: &'a T,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_names_its_schema_before_its_fields() {
        let fields = std::collections::BTreeMap::from([("packets", 7)]);
        let object = Object { schema: "test-1", fields: &fields };
        let text = serde_json::to_string(&object).unwrap();
        assert_eq!(text, r#"{"schema":"test-1","packets":7}"#);
    }
}
