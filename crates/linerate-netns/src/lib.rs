//! Network namespaces, veth pairs and neighbours that remove themselves.
#![forbid(unsafe_code)]
