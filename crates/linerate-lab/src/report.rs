//! One self-contained HTML page out of the summaries of runs.

mod axis;
mod bars;
mod lines;
mod page;
mod svg;
mod table;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

pub use page::page;

use crate::model::Summary;
use crate::owner;

/// Writes the page.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, summaries: &[Summary]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(path, page(summaries)).with_context(|| format!("cannot write {}", path.display()))?;
    owner::give(path);
    Ok(())
}

#[cfg(test)]
mod tests;
