//! The JSON of all verbs: each object names its schema, and is what the schema describes.

mod documents;
pub(crate) mod schema;
mod verbs;
