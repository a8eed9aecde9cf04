//! What must not be written to.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use datafusion::common::cast::as_string_array;
use datafusion::prelude::SessionContext;

use super::{Options, located, sensor};
use crate::source::TABLE;

/// Endings of names that promise another format, or a compression.
const OTHER_FORMATS: [&str; 7] = ["pcap", "cap", "gz", "zst", "lz4", "xz", "bz2"];

/// The first bytes of a file of records.
const PARQUET_MAGIC: &[u8] = b"PAR1";

/// Refuses names that promise what the file will not be.
pub(super) fn check_name(out: &Path) -> Result<()> {
    let ending = out.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    if OTHER_FORMATS.iter().any(|other| ending.eq_ignore_ascii_case(other)) {
        bail!(
            "find writes pcapng, uncompressed, and {} ends in .{ending}: name it .pcapng, or pipe -w - to another \
             program",
            out.display()
        );
    }
    Ok(())
}

/// Refuses to write over what is read: packet files, by any name or link, and files of records.
pub(super) fn check_inputs<'p>(
    out: &Path,
    packet_files: impl IntoIterator<Item = &'p PathBuf>,
) -> Result<()> {
    let Some(place) = place(out) else { return Ok(()) };
    for input in packet_files {
        if self::place(input) == Some(place) {
            bail!(
                "{} would be emptied before it is read; write into another file",
                input.display()
            );
        }
    }
    let mut magic = Vec::new();
    let read = File::open(out).and_then(|file| file.take(4).read_to_end(&mut magic));
    if read.is_ok() && magic == PARQUET_MAGIC {
        bail!("{} has flow records, which would be lost; write into another file", out.display());
    }
    Ok(())
}

/// Refuses to write over a packet file that other records point at.
pub(super) async fn check_records(context: &SessionContext, options: &Options<'_>) -> Result<()> {
    let Some(place) = place(options.out) else { return Ok(()) };
    let sql = format!(
        "SELECT DISTINCT arrow_cast(\"packetFile\", 'Utf8'), {} FROM {TABLE} WHERE \"packetFile\" IS NOT NULL",
        sensor(context).await?
    );
    for batch in context.sql(&sql).await?.collect().await? {
        let sensors = as_string_array(batch.column(1))?;
        for (file, sensor) in as_string_array(batch.column(0))?.iter().zip(sensors) {
            let path = located(file.unwrap_or_default(), sensor, options.folder);
            if self::place(&path) == Some(place) {
                let path = path.display();
                bail!(
                    "flow records point at {path}, which would be emptied; write into another file"
                );
            }
        }
    }
    Ok(())
}

/// Device and inode of a regular file.
pub(super) fn place(path: &Path) -> Option<(u64, u64)> {
    let found = path.metadata().ok().filter(Metadata::is_file)?;
    Some((found.dev(), found.ino()))
}
