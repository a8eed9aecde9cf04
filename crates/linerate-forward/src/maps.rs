//! [`Maps`]: the maps that the programs and user space share.

use std::collections::BTreeMap;

use libbpf_rs::MapHandle;

use crate::{Error, Result};

/// The maps by name: those of the headers in `bpf/`, and `control` for the section `.data.control`.
#[derive(Debug, Default)]
pub struct Maps(BTreeMap<String, MapHandle>);

impl Maps {
    /// The map of this name.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the instance has no such map.
    pub fn get(&self, name: &str) -> Result<&MapHandle> {
        let missing = || {
            Error::Invalid(format!(
                "the instance has no map {name}; `linerate forward run` replaces the instance"
            ))
        };
        self.0.get(name).ok_or_else(missing)
    }

    /// The same maps, for another thread.
    ///
    /// # Errors
    /// [`Error::System`] where the process has no descriptors left.
    pub fn try_clone(&self) -> Result<Self> {
        let clone = |(name, map): (&String, &MapHandle)| {
            let map = MapHandle::try_from(map).map_err(|error| Error::bpf("keep a map", &error))?;
            Ok((name.clone(), map))
        };
        self.0.iter().map(clone).collect()
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &MapHandle)> {
        self.0.iter().map(|(name, map)| (name.as_str(), map))
    }
}

impl FromIterator<(String, MapHandle)> for Maps {
    fn from_iter<I: IntoIterator<Item = (String, MapHandle)>>(maps: I) -> Self {
        Self(maps.into_iter().collect())
    }
}
