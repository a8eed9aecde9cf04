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
    /// Deletes files, and counts them. A file that cannot be deleted costs no other; the first error is returned.
    pub(super) fn apply(
        self,
        folder: &Path,
        sensor: &str,
        now: SystemTime,
        deleted: &mut u64,
    ) -> Result<()> {
        let mut missing = self.keep_free.and_then(|free| free.missing(folder, 0)).unwrap_or(0);
        let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let oldest = self.keep.and_then(|keep| since_1970.checked_sub(keep));
        let oldest = oldest.map(|oldest| folder.join(partition(oldest.as_secs() / 3600, sensor)));
        let mut outcome = Ok(());
        if missing == 0 && oldest.is_none() {
            return outcome;
        }
        for partition in partitions(folder, sensor) {
            let partition = match partition {
                Ok(partition) => partition,
                Err(error) => {
                    outcome = outcome.and(Err(error));
                    continue;
                }
            };
            let is_old = oldest.as_ref().is_some_and(|oldest| partition < *oldest);
            if !is_old && missing == 0 {
                break;
            }
            let files = list(&partition).unwrap_or_else(|error| {
                outcome = std::mem::replace(&mut outcome, Ok(())).and(Err(error));
                Vec::new()
            });
            for file in files {
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
                    Ok(()) => *deleted += 1,
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => {
                        outcome = outcome.and(Err(Error::io("delete", &file)(error)));
                        continue;
                    }
                }
                missing = missing.saturating_sub(found.blocks() * 512);
            }
            // The first that is not empty ends this.
            let above = partition.ancestors().take(3);
            let _ = above.map(fs::remove_dir).take_while(std::result::Result::is_ok).count();
        }
        outcome
    }
}
