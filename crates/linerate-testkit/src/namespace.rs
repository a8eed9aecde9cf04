//! [`Namespace`]: a network namespace that is removed when it is dropped.

use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::thread;

use linerate_net::Connection;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::{Command, Error, Interface, Result};

/// Where iproute2 keeps the names of namespaces (`ip-netns(8)`).
const DIRECTORY: &str = "/run/netns";
/// The start of every name made here, so that [`Namespace::remove_orphans`] removes no others.
const MARK: &str = "lnr";

/// A network namespace with a name, removed when this value is dropped.
///
/// Processes that still run in it keep it alive without a name until they end.
#[derive(Debug)]
pub struct Namespace {
    handle: Arc<Handle>,
}

/// How a [`Namespace`] starts.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Send only what a program sends: IPv6 stays off on an interface until it is given an
    /// IPv6 address, and then works without duplicate address detection, router solicitations and
    /// link-local addresses. On by default.
    pub quiet: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { quiet: true }
    }
}

impl Namespace {
    /// Makes a quiet namespace named `lnr-PREFIX-PID-COUNT`, with its loopback interface up.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN, or where `/run/netns` cannot be written.
    pub fn create(prefix: &str) -> Result<Self> {
        Self::create_with(prefix, Options::default())
    }

    /// Makes a namespace as `options` say.
    ///
    /// # Errors
    /// As [`Namespace::create`].
    pub fn create_with(prefix: &str, options: Options) -> Result<Self> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| {
            Self::remove_orphans();
        });
        let (name, path) = reserve(prefix)?;
        let failed = |action, source| Error::Namespace { name: name.clone(), action, source };
        let made = thread::scope(|scope| {
            scope.spawn(|| enter_new(&path)).join().unwrap_or_else(|panic| resume_unwind(panic))
        });
        let (file, route) = made.map_err(|source| {
            let _ = fs::remove_file(&path);
            failed("create", source)
        })?;
        // From here on a failure drops the namespace, which removes it.
        let namespace = Self { handle: Arc::new(Handle { name: name.clone(), path, file, route }) };
        namespace.interface("lo")?.up()?;
        if options.quiet {
            namespace.disable_ipv6_chatter()?;
        }
        Ok(namespace)
    }

    /// Its name, as `ip netns` lists it.
    pub fn name(&self) -> &str {
        &self.handle.name
    }

    /// The file that stands for it, for programs that take one (`nsenter --net=FILE`).
    pub fn path(&self) -> &Path {
        &self.handle.path
    }

    /// Runs `work` on a thread inside the namespace. Threads and processes that it starts inherit
    /// the namespace; sockets that it opens stay in it wherever they are used afterwards.
    ///
    /// `/sys` still shows the interfaces of the caller's namespace: it belongs to the mount
    /// namespace, which stays the same. `/proc/sys/net` and `/proc/net` show this one.
    ///
    /// # Errors
    /// When the thread may not enter. A panic of `work` goes on in the caller.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.handle.run(work)
    }

    /// A program to start inside the namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        Command::new(self.handle.clone(), program.as_ref())
    }

    /// The same for a program that must not outlive this process: the kernel kills it when this
    /// process ends, also by `kill -9`. What it starts itself is not meant. Where util-linux's setpriv
    /// is missing, as [`Namespace::command`].
    pub fn command_killed_with_parent(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if std::env::split_paths(&path).any(|folder| folder.join("setpriv").is_file()) {
            return Command::killed_with_parent(self.handle.clone(), program.as_ref());
        }
        self.command(program)
    }

    /// An interface that is in the namespace.
    ///
    /// # Errors
    /// When no interface has that name.
    pub fn interface(&self, name: &str) -> Result<Interface> {
        Interface::find(self.handle.clone(), name)
    }

    /// Writes a setting: `("net.ipv4.ip_forward", "1")`. Dots or slashes separate.
    ///
    /// # Errors
    /// When the kernel has no such setting or refuses the value.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.handle.sysctl(key, value)
    }

    /// Turns forwarding on or off, for IPv4 and (where the kernel has it) IPv6.
    ///
    /// # Errors
    /// When the settings cannot be written.
    pub fn set_forwarding(&self, on: bool) -> Result<()> {
        let value = if on { "1" } else { "0" };
        self.sysctl("net.ipv4.ip_forward", value)?;
        if has_ipv6() { self.sysctl("net.ipv6.conf.all.forwarding", value) } else { Ok(()) }
    }

    /// Adds a route to `destination`/`prefix` through `gateway`; a prefix of 0 is the default
    /// route.
    ///
    /// # Errors
    /// When the gateway is not reachable, or the families differ.
    pub fn add_route(&self, destination: IpAddr, prefix: u8, gateway: IpAddr) -> Result<()> {
        self.handle.route.add_route(destination, prefix, gateway).map_err(|error| {
            let (name, source) = (self.name().to_owned(), error.into());
            Error::Namespace { name, action: "add a route in", source }
        })
    }

    /// A counter of the namespace's stack, as `/proc/net/snmp` names it: `("Ip", "InReceives")`.
    ///
    /// # Errors
    /// When the table cannot be read, or has no such counter.
    pub fn snmp_counter(&self, protocol: &str, name: &str) -> Result<u64> {
        let read = || {
            let table = fs::read_to_string("/proc/thread-self/net/snmp")?;
            snmp_counter(&table, protocol, name).ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, format!("no {protocol} {name}"))
            })
        };
        self.run(read)?.map_err(|source| Error::Namespace {
            name: self.name().to_owned(),
            action: "read a counter of /proc/net/snmp in",
            source,
        })
    }

    /// Removes what processes of this crate left behind when they died without unwinding.
    /// Returns the names. A namespace whose maker lives is never touched.
    pub fn remove_orphans() -> Vec<String> {
        let Ok(entries) = fs::read_dir(DIRECTORY) else { return Vec::new() };
        let _lock = lock_directory();
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| Self::is_orphan(name))
            .inspect(|name| remove(&Path::new(DIRECTORY).join(name)))
            .collect()
    }

    /// Whether a process of this crate that is dead made the namespace of this name; what is called as it can
    /// then be swept, too.
    pub fn is_orphan(name: &str) -> bool {
        maker(name).is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    fn disable_ipv6_chatter(&self) -> Result<()> {
        if !has_ipv6() {
            return Ok(());
        }
        // An address generation mode of 1 is "none": no link-local address, and with it neither
        // its detection nor solicitations for routers.
        let settings = [
            ("accept_dad", "0"),
            ("accept_ra", "0"),
            ("addr_gen_mode", "1"),
            ("autoconf", "0"),
            ("dad_transmits", "0"),
            ("disable_ipv6", "1"),
            ("router_solicitations", "0"),
        ];
        let handle = &self.handle;
        handle.run(|| {
            settings.iter().try_for_each(|(key, value)| {
                handle.write_sysctl(&format!("net.ipv6.conf.default.{key}"), value)
            })
        })?
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.handle.path);
    }
}

/// What interfaces and commands share with their namespace: enough to work in it, not its name's
/// life.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) name: String,
    path: PathBuf,
    file: File,
    pub(crate) route: Connection,
}

impl Handle {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let inside = || {
            self.enter()?;
            Ok(work())
        };
        thread::scope(|scope| {
            scope.spawn(inside).join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Moves the calling thread into the namespace.
    pub(crate) fn enter(&self) -> Result<()> {
        setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET).map_err(|errno| Error::Namespace {
            name: self.name.clone(),
            action: "enter",
            source: errno.into(),
        })
    }

    pub(crate) fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.run(|| self.write_sysctl(key, value))?
    }

    fn write_sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = Path::new("/proc/sys").join(key.replace('.', "/"));
        fs::write(path, value).map_err(|source| Error::Sysctl {
            key: key.to_owned(),
            value: value.to_owned(),
            namespace: self.name.clone(),
            source,
        })
    }
}

/// Whether the kernel has IPv6, which can be compiled out or switched off at boot.
pub(crate) fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6/conf/default").exists()
}

/// A counter of `/proc/net/snmp`, which has a line of names and a line of values for each protocol.
fn snmp_counter(table: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut rows = table.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(": "));
    let (names, values) = (rows.next()?, rows.next()?);
    names.split(' ').zip(values.split(' ')).find(|(one, _)| *one == name)?.1.parse().ok()
}

/// Takes the next free name, by making the file that the namespace is mounted on.
fn reserve(prefix: &str) -> Result<(String, PathBuf)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let plain: String = prefix.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{MARK}-{plain}-{}-{count}", std::process::id());
        let path = Path::new(DIRECTORY).join(&name);
        let made = share_directory().and_then(|()| File::create_new(&path));
        match made {
            Ok(_) => return Ok((name, path)),
            // Left by a process of the same number that died before us.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => remove(&path),
            Err(source) => return Err(Error::Namespace { name, action: "create", source }),
        }
    }
}

/// Makes `/run/netns` a shared mount, as iproute2 does, so that a namespace that is
/// unmounted here is unmounted in every other mount namespace too.
fn share_directory() -> io::Result<()> {
    let directory = Path::new(DIRECTORY);
    fs::create_dir_all(directory)?;
    let _lock = lock_directory()?;
    let none = None::<&str>;
    let share = || mount(none, directory, none, MsFlags::MS_SHARED | MsFlags::MS_REC, none);
    match share() {
        Err(nix::Error::EINVAL) => {
            let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
            mount(Some(directory), directory, none, bind, none).and_then(|()| share())
        }
        other => other,
    }
    .map_err(io::Error::from)
}

/// iproute2 takes the same lock before it changes mounts; without it two processes could stack a mount
/// each, or remove what the other is making.
fn lock_directory() -> io::Result<Flock<File>> {
    Flock::lock(File::open(DIRECTORY)?, FlockArg::LockExclusive)
        .map_err(|(_, errno)| io::Error::from(errno))
}

/// Runs on a separate thread, which stays in the new namespace until it ends.
fn enter_new(path: &Path) -> io::Result<(File, Connection)> {
    const THIS_THREAD: &str = "/proc/thread-self/ns/net";
    unshare(CloneFlags::CLONE_NEWNET)?;
    mount(Some(THIS_THREAD), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    let opened = File::open(THIS_THREAD).and_then(|file| Ok((file, Connection::open()?)));
    if opened.is_err() {
        remove(path);
    }
    opened
}

fn remove(path: &Path) {
    // Fails when nothing is mounted, which is what is wanted.
    let _ = umount2(path, MntFlags::MNT_DETACH);
    let _ = fs::remove_file(path);
}

/// The process that made the namespace of this name, if one of this crate did.
fn maker(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(MARK)?.strip_prefix('-')?;
    let mut parts = rest.rsplitn(3, '-');
    let (count, pid) = (parts.next()?, parts.next()?);
    parts.next()?;
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (number(count) && number(pid)).then_some(pid)
}

#[cfg(test)]
mod tests;
