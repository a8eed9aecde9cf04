//! The results of runs: their files, and one self-contained HTML page drawn from their summaries.

mod axis;
mod bars;
pub mod distribution;
pub mod environment;
pub mod kernel;
mod lines;
pub mod ownership;
mod page;
pub mod store;
pub mod summary;
mod svg;
mod table;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

pub use page::page;

use summary::Summary;

/// Writes the page.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, summaries: &[Summary]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(path, page(summaries)).with_context(|| format!("cannot write {}", path.display()))?;
    ownership::give(path);
    Ok(())
}

#[cfg(test)]
mod tests;
