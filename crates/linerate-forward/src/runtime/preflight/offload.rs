//! Turning an offload off.

use std::io;

use linerate_net::ethtool;
use linerate_net::link::Link;
use linerate_net::namespace::Namespace;

use super::Options;
use super::report::{Fix, Outcome, refused};

/// Turns an offload off in the interface's namespace, and verifies that. `prefix` is the command prefix for
/// that namespace, `short` the offload's name in ethtool(8).
pub(super) fn turn_off(
    namespace: &Namespace,
    prefix: &str,
    link: &Link,
    what: &str,
    offload: &str,
    short: &str,
    options: &Options,
) -> io::Result<(Outcome, Option<Fix>)> {
    let command = format!("`{prefix}ethtool -K {} {short} off`", link.name);
    if !options.fix {
        return Ok((refused(what, command), None));
    }
    let (error, now) = namespace.run(|| {
        let error = ethtool::set_feature(link.index, offload, false).err();
        ethtool::features(link.index).map(|now| (error, now))
    })??;
    if now.is_active(offload) {
        let reason = match error {
            Some(error) => format!("the kernel says: {error}"),
            None if now.is_fixed(offload) => "its driver does not let it be turned off".to_owned(),
            None => "it stays on".to_owned(),
        };
        return Ok((refused(format!("{what}, and {reason}"), format!("try {command}")), None));
    }
    let fix = Fix::Offload {
        interface: link.name.clone(),
        index: link.index,
        namespace: namespace.inode(),
        offload: offload.to_owned(),
    };
    Ok((Outcome::Fixed(format!("{what}: {short} of {} was turned off", link.name)), Some(fix)))
}
