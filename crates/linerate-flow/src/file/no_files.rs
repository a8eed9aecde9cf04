//! [`Files`] of a build without Parquet: there are none, since no [`Destination`](crate::outputs::Destination) is a
//! folder.

use std::path::Path;
use std::time::Instant;

use super::{FilesOptions, FilesStatistics};
use crate::{Error, FlowRecord, Result};

/// Nothing.
pub enum Files {}

#[allow(missing_docs)]
impl Files {
    pub fn new(options: FilesOptions) -> Result<Self> {
        Err(Error::io("create", options.folder)(std::io::ErrorKind::Unsupported.into()))
    }

    pub fn folder(&self) -> &Path {
        match *self {}
    }

    pub fn statistics(&self) -> FilesStatistics {
        match *self {}
    }

    pub fn push(&mut self, _: FlowRecord) -> Result<()> {
        match *self {}
    }

    pub fn maintain(&mut self, _: Instant) -> Result<()> {
        match *self {}
    }

    pub fn delete_old(&mut self, _: Instant) -> Result<()> {
        match *self {}
    }

    pub fn complete(&mut self) -> Result<()> {
        match *self {}
    }

    pub fn seal(&mut self, _: u64) -> Result<()> {
        match *self {}
    }

    pub fn publish(&mut self) -> Result<()> {
        match *self {}
    }

    pub fn discard(&mut self) -> u64 {
        match *self {}
    }

    pub fn finish(self) -> Result<FilesStatistics> {
        match self {}
    }
}
