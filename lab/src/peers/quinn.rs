//! quinn-udp's reader, whose source is in `peers/quinn-udp`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::build;

const SOURCES: build::Sources = [
    ("Cargo.toml", include_str!("../../peers/quinn-udp/Cargo.toml")),
    ("Cargo.lock", include_str!("../../peers/quinn-udp/Cargo.lock")),
    ("src/main.rs", include_str!("../../peers/quinn-udp/src/main.rs")),
];

/// Builds it in `folder`.
pub(crate) fn build(folder: &Path) -> Result<PathBuf> {
    build::cargo(folder, "quinn-udp", &SOURCES)
}
