//! [`Namespace`]: the network namespace of an instance, and the default instance name derived from it.

use std::fmt;

use linerate_net::namespace;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its inode number, which is unique among those that exist.
    #[serde(rename = "namespace")]
    inode: u64,
    /// What it shares with none of this boot, if known.
    #[serde(rename = "namespace_cookie", default)]
    cookie: Option<u64>,
}

impl Namespace {
    /// That of the calling thread.
    ///
    /// # Errors
    /// [`Error::System`] where `/proc` is not mounted.
    pub fn current() -> Result<Self> {
        let found = namespace::Namespace::current();
        found.map(|found| Self { inode: found.inode(), cookie: namespace::cookie() }).map_err(
            |error| Error::system("find the network namespace of a thread in /proc", error.into()),
        )
    }

    /// Whether it is the machine's own, which exists from the boot on. Unlike a look at process 1, this takes no privilege.
    fn is_of_machine(self) -> bool {
        // From Linux 6.18 on it has a fixed inode (`NET_NS_INIT_INO` of `linux/nsfs.h`), which is below those of others;
        // before that it has the first cookie.
        self.inode == 0xefff_fff9 || (self.inode >= 0xf000_0000 && self.cookie == Some(1))
    }

    /// The name that `ip netns` has for it.
    pub fn name(self) -> Option<String> {
        namespace::name_of(self.inode)
    }

    /// Whether it is the same, and not a later one with the inode of one that is gone.
    pub fn is(self, other: Self) -> bool {
        let differs = self.cookie.zip(other.cookie).is_some_and(|(one, other)| one != other);
        self.inode == other.inode && !differs
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(&name),
            None => write!(f, "net:[{}]", self.inode),
        }
    }
}

/// Default name of an instance in this thread's network namespace: `default` in that of the machine, otherwise the name
/// that `ip netns` has for it, or its number. Process 1 does not decide: services with few capabilities cannot see its
/// namespace.
///
/// # Errors
/// [`Error::System`] where `/proc` is not mounted.
pub fn instance_name() -> Result<String> {
    let own = Namespace::current()?;
    if own.is_of_machine() {
        return Ok("default".to_owned());
    }
    let fits = |name: &String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        name.len() <= 64 && name != "default" && name.chars().all(plain)
    };
    Ok(own.name().filter(fits).unwrap_or_else(|| format!("net-{}", own.inode)))
}

#[cfg(test)]
mod tests {
    use linerate_testkit::root_or_skip;

    use super::*;

    #[test]
    fn the_machines_own_namespace_is_known_by_itself() {
        let is_of_machine = |inode, cookie| Namespace { inode, cookie }.is_of_machine();
        // Linux 6.18, and earlier.
        assert!(is_of_machine(4_026_531_833, Some(3)) && is_of_machine(4_026_531_840, Some(1)));
        assert!(!is_of_machine(4_026_532_177, Some(4097)) && !is_of_machine(4_026_532_177, None));
    }

    #[test]
    fn each_namespace_has_its_own_name() {
        root_or_skip!();
        let space = linerate_testkit::Namespace::create("instance").unwrap();
        let (name, inside) =
            space.run(|| (instance_name().unwrap(), Namespace::current().unwrap())).unwrap();
        assert_eq!(name, space.name());
        assert!(inside.is(inside) && !inside.is(Namespace::current().unwrap()));
        // The inode of one that is gone, and a record of a version that kept no cookie.
        let cookie = inside.cookie.map(|cookie| cookie + 1);
        assert!(cookie.is_none() || !inside.is(Namespace { cookie, ..inside }));
        assert!(inside.is(Namespace { cookie: None, ..inside }));
        assert_eq!(inside.to_string(), space.name());
        drop(space);
        assert!(inside.to_string().starts_with("net:["), "{inside}");
    }
}
