//! Deletes complete files by [`Retention`].

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use super::{HIDDEN, list, partition, partitions};
use crate::file::Retention;
use crate::{Error, Result};

impl Retention {
    /// Deletes files. Returns how many.
    pub(super) fn apply(self, folder: &Path, sensor: &str, now: SystemTime) -> Result<u64> {
        let mut missing = self.keep_free.and_then(|free| free.missing(folder, 0)).unwrap_or(0);
        let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let oldest = self.keep.and_then(|keep| since_1970.checked_sub(keep));
        let oldest = oldest.map(|oldest| folder.join(partition(oldest.as_secs() / 3600, sensor)));
        let mut deleted = 0;
        if missing == 0 && oldest.is_none() {
            return Ok(deleted);
        }
        for partition in partitions(folder, sensor) {
            let partition = partition?;
            let is_old = oldest.as_ref().is_some_and(|oldest| partition < *oldest);
            if !is_old && missing == 0 {
                break;
            }
            for file in list(&partition)? {
                let is_complete = file.extension().is_some_and(|end| end == "parquet")
                    && !file
                        .file_name()
                        .is_some_and(|name| name.as_encoded_bytes().starts_with(HIDDEN.as_bytes()));
                let Some(found) =
                    file.symlink_metadata().ok().filter(|found| is_complete && found.is_file())
                else {
                    continue;
                };
                if !is_old && missing == 0 {
                    break;
                }
                match fs::remove_file(&file) {
                    Ok(()) => deleted += 1,
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(Error::io("delete", &file)(error)),
                }
                missing = missing.saturating_sub(found.blocks() * 512);
            }
            // The first that is not empty ends this.
            let above = partition.ancestors().take(3);
            let _ = above.map(fs::remove_dir).take_while(std::result::Result::is_ok).count();
        }
        Ok(deleted)
    }
}
