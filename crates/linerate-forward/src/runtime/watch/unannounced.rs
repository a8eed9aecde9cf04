//! [`Unannounced`]: what the kernel reports to nobody, and what is therefore polled.
//!
//! - Settings: those of each interface by one dump of the links (also the IPv6 MTU, which router advertisements set),
//!   and the others in `/proc/sys/net`.
//! - IPv6 routes that have expired: the kernel ignores them at once, and reports them when it collects them, which may
//!   be half a minute later. Router advertisements change the time silently.
//! - Exceptions of routes: redirects and path MTUs that were learned. The kernel lists an IPv4 exception only once a
//!   packet has used it, so that a received redirect is a change by itself.
//! - Legacy x_tables, changed without the lock of iptables or with one that this process does not see.
//! - BPF programs at netfilter's hooks.
//!
//! Each is a digest that is compared with the one before. A poll takes about a millisecond. If one takes longer, the
//! next comes later, so that all of them take at most a twentieth of a CPU.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_bpf::netfilter::NetfilterLinks;
use linerate_net::netlink::{Message, Protocol, Socket, attribute, attributes, bytes_at, put_attr};

use super::causes::{Cause, Causes};
use super::links::LINK_HEADER;
use super::routing;
use super::xtables::Tables;

/// The time between two polls.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// A poll is followed by a pause of at least this many times its own time.
const PAUSE: u32 = 19;

/// Leaves the counters out of a dump of links.
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
/// `IFLA_INET6_CONF`: the settings of an interface for IPv6.
const INET6_CONF: u16 = 2;

/// Polls. It stays in the network namespace of the thread that opened it, and is used by threads there.
pub(super) struct Unannounced {
    socket: Socket,
    hooks: Option<NetfilterLinks>,
    /// There are IPv6 routes that expire.
    has_expiring: Arc<AtomicBool>,
    tables: Tables,
    digests: BTreeMap<Cause, u64>,
    errors: IcmpErrors,
    has_exceptions: bool,
}

/// Received ICMP messages that may make exceptions of routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct IcmpErrors {
    redirects: u64,
    unreachable: u64,
    /// Those of IPv6: redirects, and packets that are too big.
    of_ipv6: u64,
}

impl Unannounced {
    pub(super) fn open(has_expiring: Arc<AtomicBool>, tables: Tables) -> io::Result<Self> {
        let mut polled = Self {
            socket: Socket::open(Protocol::Route)?,
            // A kernel without such links.
            hooks: NetfilterLinks::open().ok(),
            has_expiring,
            tables,
            digests: BTreeMap::new(),
            errors: IcmpErrors::read()?,
            has_exceptions: true,
        };
        let _ = polled.poll()?;
        Ok(polled)
    }

    /// What has changed since the last call, and when to call again.
    ///
    /// # Errors
    /// Where the kernel does not list its links or routes.
    pub(super) fn poll(&mut self) -> io::Result<(Causes, Duration)> {
        let began = Instant::now();
        let mut causes = Causes::default();
        let mut settings = DefaultHasher::new();
        (self.interfaces()?, digest_of(Path::new("/proc/sys/net"))?).hash(&mut settings);
        let hooks =
            self.hooks.as_ref().map(|hooks| hooks.list().map_err(|error| error.to_string()));
        let hooks = hooks.map(|hooks| hash(&format!("{hooks:?}")));
        for (cause, digest) in [
            (Cause::Setting, settings.finish()),
            (Cause::Route, self.routes(&mut causes)?),
            (Cause::NetfilterLink, hooks.unwrap_or(0)),
        ] {
            if self.digests.insert(cause, digest).is_some_and(|before| before != digest) {
                causes.insert(cause);
            }
        }
        if self.tables.have_changed() {
            causes.insert(Cause::Xtables);
        }
        Ok((causes, POLL_INTERVAL.max(began.elapsed() * PAUSE)))
    }

    /// The settings of all interfaces, which `/proc/sys/net/*/conf` has in a file each.
    fn interfaces(&self) -> io::Result<u64> {
        let mut body = vec![0; LINK_HEADER];
        put_attr(&mut body, libc::IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
        let mut digest = 0u64;
        let add = |message: Message<'_>| {
            let index: Option<[u8; 4]> = bytes_at(message.body, 4);
            let own = message.body.get(LINK_HEADER..).unwrap_or_default();
            let families = attribute(own, libc::IFLA_AF_SPEC).unwrap_or_default();
            for (family, settings) in attributes(families) {
                let settings = match i32::from(family) {
                    libc::AF_INET => settings,
                    libc::AF_INET6 => attribute(settings, INET6_CONF).unwrap_or_default(),
                    _ => continue,
                };
                digest = digest.wrapping_add(hash(&(index, family, settings)));
            }
        };
        let _ = self.socket.dump(libc::RTM_GETLINK, &body, add)?;
        Ok(digest)
    }

    /// The routes that have expired, and the exceptions.
    fn routes(&mut self, causes: &mut Causes) -> io::Result<u64> {
        let mut digest = 0u64;
        if self.has_expiring.load(Ordering::Relaxed) {
            self.dump_routes(libc::AF_INET6, 0, |route, expires| {
                if expires < 0 {
                    digest = digest.wrapping_add(route);
                }
            })?;
        }
        let errors = IcmpErrors::read()?;
        let before = std::mem::replace(&mut self.errors, errors);
        let uses_path_mtu = || {
            let setting = fs::read("/proc/sys/net/ipv4/ip_forward_use_pmtu").unwrap_or_default();
            setting != b"0\n"
        };
        if errors.redirects != before.redirects
            || errors.unreachable != before.unreachable && uses_path_mtu()
        {
            causes.insert(Cause::Route);
        }
        if errors != before || self.has_exceptions {
            self.has_exceptions = false;
            for family in [libc::AF_INET, libc::AF_INET6] {
                let mut found = false;
                self.dump_routes(family, libc::RTM_F_CLONED, |route, _| {
                    digest = digest.wrapping_add(route);
                    found = true;
                })?;
                self.has_exceptions |= found;
            }
        }
        Ok(digest)
    }

    /// Passes on a digest of each route, or of each exception with `RTM_F_CLONED`, and when it expires.
    fn dump_routes(
        &self,
        family: i32,
        flags: u32,
        mut take: impl FnMut(u64, i32),
    ) -> io::Result<()> {
        let mut header = [0; routing::HEADER];
        header[0] = family as u8;
        header[8..].copy_from_slice(&flags.to_ne_bytes());
        let _ = self.socket.dump(libc::RTM_GETROUTE, &header, |message| {
            let Some((head, own)) = message.body.split_at_checked(routing::HEADER) else { return };
            let mut digest = DefaultHasher::new();
            head.hash(&mut digest);
            for attribute in attributes(own).filter(|(kind, _)| *kind != libc::RTA_CACHEINFO) {
                attribute.hash(&mut digest);
            }
            take(digest.finish(), routing::expires(own));
        })?;
        Ok(())
    }
}

impl IcmpErrors {
    fn read() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/thread-self/net/snmp")?;
        let mut lines = text.lines().filter(|line| line.starts_with("Icmp: "));
        let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
        let of = |wanted: &str| {
            let mut pairs = names.split(' ').zip(values.split(' '));
            pairs.find(|(name, _)| *name == wanted).and_then(|(_, value)| value.parse().ok())
        };
        let text = match fs::read_to_string("/proc/thread-self/net/snmp6") {
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let of_ipv6 = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
        let of_ipv6 = of_ipv6
            .filter(|(name, _)| matches!(*name, "Icmp6InPktTooBigs" | "Icmp6InRedirects"))
            .filter_map(|(_, value)| value.trim().parse::<u64>().ok());
        Ok(Self {
            redirects: of("InRedirects").unwrap_or(0),
            unreachable: of("InDestUnreachs").unwrap_or(0),
            of_ipv6: of_ipv6.sum(),
        })
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Whether a file or folder below `/proc/sys/net` says nothing about forwarding: what an interface's dump has, what
/// concerns the host's own sockets or is reported, and what counts.
fn is_skipped(path: &Path) -> bool {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let (own, above) = (name(path).unwrap_or_default(), path.parent().and_then(name));
    let is_of_interface = above.as_deref() == Some("conf") && own != "all";
    is_of_interface
        || matches!(&*own, "neigh" | "unix" | "mptcp" | "flush")
        || own.starts_with("tcp_")
        || own.starts_with("udp_")
        || own.ends_with("_count")
}

/// A digest of the files in a folder and below it. One that cannot be read, as one that has gone meanwhile, or that can
/// only be written to, counts as empty.
///
/// # Errors
/// Where the folder itself cannot be read.
fn digest_of(folder: &Path) -> io::Result<u64> {
    let mut digest = 0u64;
    for path in fs::read_dir(folder)?.flatten().map(|entry| entry.path()) {
        if is_skipped(&path) {
            continue;
        }
        let of = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                digest_of(&path).unwrap_or(0)
            }
            read => hash(&read.unwrap_or_default()),
        };
        digest = digest.wrapping_add(hash(&(path, of)));
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_or_concerns_sockets_is_skipped() {
        let skipped = |path: &str| is_skipped(Path::new(path));
        for path in ["ipv4/conf/eth0", "ipv6/conf/default", "ipv4/neigh", "ipv4/tcp_rmem"] {
            assert!(skipped(path), "{path}");
        }
        assert!(skipped("netfilter/nf_conntrack_count") && skipped("ipv4/route/flush"));
        for path in
            ["ipv4/conf/all", "ipv4/conf", "ipv4/ip_forward", "bridge/bridge-nf-call-iptables"]
        {
            assert!(!skipped(path), "{path}");
        }
    }
}
