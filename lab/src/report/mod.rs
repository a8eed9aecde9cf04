//! The results of runs: their files, and one self-contained HTML page drawn from their summaries.

mod axis;
mod bars;
pub(crate) mod distribution;
pub(crate) mod environment;
mod lines;
pub(crate) mod ownership;
mod page;
pub(crate) mod store;
pub(crate) mod summary;
mod svg;
mod table;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

pub(crate) use page::page;

use summary::Summary;

pub(crate) fn write(path: &Path, summaries: &[Summary]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(path, page(summaries)).with_context(|| format!("cannot write {}", path.display()))?;
    ownership::chown_to_caller(path);
    Ok(())
}

#[cfg(test)]
mod tests;
