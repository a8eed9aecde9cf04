//! The interfaces of each namespace: `-i NAME` means one in each `--netns`, `-i NAMESPACE/NAME` means one in that
//! namespace.

use anyhow::{Result, bail};
use linerate_capture::interface::ANY;

use super::arguments::Arguments;

/// The names for each `--netns`, in their order; one list without `--netns`. An empty list means the default.
///
/// # Errors
/// An interface is given twice, its namespace is not given, or a namespace has no interface.
pub(super) fn interfaces(arguments: &Arguments) -> Result<Vec<Vec<String>>> {
    let (given, namespaces) = (&arguments.interface, &arguments.netns);
    let twice = namespaces.iter().enumerate().find(|(at, netns)| namespaces[..*at].contains(netns));
    if let Some((_, netns)) = twice {
        bail!("--netns {netns} is given twice: each packet would be captured twice");
    }
    let mut names = vec![Vec::new(); namespaces.len().max(1)];
    for one in given {
        let own = |netns: &String| one.strip_prefix(netns.as_str())?.strip_prefix('/');
        let named = namespaces.iter().enumerate().find_map(|(at, netns)| Some((at, own(netns)?)));
        // A kernel interface has no slash in its name.
        match (named, one.rsplit_once('/')) {
            (Some((at, name)), _) => add(&mut names[at], name, one)?,
            (None, Some(("", _))) => {
                bail!("-i {one} names no network namespace: write -i NAMESPACE{one}");
            }
            (None, Some((netns, _))) => {
                bail!("-i {one} is in another network namespace: give --netns {netns}, too");
            }
            (None, None) => {
                names.iter_mut().try_for_each(|names| add(names, one, one))?;
            }
        }
    }
    let has_any = |names: &Vec<String>| names.iter().any(|name| name == ANY);
    if names.iter().any(has_any) && !names.iter().all(has_any) {
        bail!(
            "-i any in one network namespace, and interfaces by name in another, take two captures: the link types differ"
        );
    }
    let without = namespaces.iter().zip(&names).find(|(_, names)| names.is_empty());
    if let Some((netns, _)) = without.filter(|_| !given.is_empty()) {
        bail!(
            "--netns {netns} is given, but every -i is of another network namespace: give -i {netns}/NAME, or leave \
             --netns {netns} out"
        );
    }
    Ok(names)
}

fn add(names: &mut Vec<String>, name: &str, given: &str) -> Result<()> {
    if names.iter().any(|other| other == name) {
        bail!("-i {given} is given twice: each packet of {given} would be captured twice");
    }
    names.push(name.to_owned());
    Ok(())
}
