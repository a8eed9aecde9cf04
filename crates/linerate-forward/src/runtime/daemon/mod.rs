//! [`Daemon`]: attaches the programs, sends heartbeats, invalidates sessions after changes, and maintains sessions,
//! deny list and metrics. One thread sleeps until something is due or requested; the watch and the metrics each have
//! a thread.

mod accountant;
mod handle;
mod neighbours;
mod ports;
mod setup;
mod start;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::config::{Config, ConfigError, write_duration};
use crate::datapath::Mode;
use crate::maps::Maps;
use crate::metrics::{DaemonStatistics, Metrics};
use crate::runtime::datapath;
use crate::runtime::flows::Flows;
use crate::runtime::heartbeat::Heartbeat;
use crate::runtime::instance_reader::InstanceReader;
use crate::runtime::nexthops;
use crate::runtime::pins::instance_name;
use crate::runtime::program::Programs;
use crate::runtime::rules::{self, Policy};
use crate::runtime::upper_devices;
use crate::runtime::watch::{self, Cause, Causes, NetworkMonitor};
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::table::ageing::{Ageing, Limits};
use crate::table::clock::Clock;
use crate::table::control::Control;
use crate::table::deny::{DenyList, Target};
use crate::{Error, Result};
use accountant::Accountant;
use handle::InstanceHandle;
pub use handle::detach;
use linerate_net::Steering;
use linerate_net::link::Link;
use linerate_net::text::plural;
use linerate_service::{Manager, Published, Server};
use neighbours::NeighbourConfirmer;
use ports::Ports;
use start::Prepared;

/// How often it updates the metrics, sweeps the deny list and checks its pins.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Changes after which the rules are evaluated again; rules name interfaces.
const RULES: [Cause; 6] = [
    Cause::Start,
    Cause::Overrun,
    Cause::Nftables,
    Cause::Xtables,
    Cause::NetfilterLink,
    Cause::Link,
];

/// A request to the daemon.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// Stop, and detach unless configured to persist.
    Stop,
    /// Stop and detach.
    Detach,
    /// Reload the configuration.
    Reload,
    /// Log the counters.
    Report,
    /// Follow the interfaces: the kernel has reported these changes.
    Changed(Causes),
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    handle: InstanceHandle,
    control: Arc<Control>,
    table: Arc<Table>,
    clock: Clock,
    ports: Ports,
    /// What the configuration says of rules. The threads of the watch hold it while they evaluate them.
    policy: Arc<Mutex<Policy>>,
    watch: NetworkMonitor,
    /// The netlink port by which it changes tracked connections.
    own_port: u32,
    heart: Heartbeat,
    ageing: Ageing,
    flows: Option<Flows>,
    confirmer: NeighbourConfirmer,
    accountant: Accountant,
    published: Published<Metrics>,
    /// They serve what was published until they are dropped.
    servers: Vec<Server>,
    manager: Manager,
    /// What no message tells of the ports and the devices above them, when it was polled last.
    unreported: BTreeMap<u32, datapath::Unreported>,
    steering: Option<Steering>,
    /// The deny list may lack what the configuration blocks.
    block_pending: bool,
    /// The watch sends its events here.
    events: Sender<Event>,
}

impl Daemon {
    /// Attaches to the interfaces of the calling thread's network namespace and starts to forward. The watch sends
    /// changes of the network to `events`.
    ///
    /// # Errors
    /// When it cannot start; it then leaves nothing behind.
    pub fn start(config: Config, events: Sender<Event>) -> Result<Self> {
        let name = config.instance.clone().map_or_else(instance_name, Ok)?;
        let (mut handle, adopted) = InstanceHandle::open(&name, &config)?;
        let ports = Ports::adopted(adopted, &handle.programs.maps)?;
        let attached = Prepared::new(&config, &mut handle)
            .and_then(|prepared| prepared.attach(&config, &mut handle, ports, &events));
        match attached {
            Ok(attached) => Ok(attached.into_daemon(config, handle, events)),
            Err(error) => {
                // What was adopted stays: it may still forward, and fails open by itself.
                if handle.is_fresh
                    && let Err(error) = handle.detach()
                {
                    tracing::warn!(%error, "cannot clean up completely");
                }
                Err(error)
            }
        }
    }

    /// Runs until it is stopped, or until another process has detached the programs. `configure` reads
    /// the configuration again.
    ///
    /// # Errors
    /// When the kernel refuses a heartbeat, or the network cannot be watched any more.
    pub fn run(
        mut self,
        events: &Receiver<Event>,
        configure: impl Fn() -> std::result::Result<Config, ConfigError>,
    ) -> Result<()> {
        self.look()?;
        self.handle.set_ready()?;
        tracing::info!(
            instance = self.handle.pins.instance(),
            ports = self.ports.names(),
            "ready: forwarding"
        );
        self.manager.ready(&self.status());
        let mut looked = Instant::now();
        let detach = loop {
            if looked.elapsed() >= POLL_INTERVAL {
                looked = Instant::now();
                self.look()?;
            }
            if let Some(clock) = self.heart.beat(&self.handle.programs, &self.control)? {
                self.clock = clock;
            }
            self.ageing.tick()?;
            self.control.settle_routes();
            self.confirmer.tick(&self.table, &self.handle.programs.maps, &self.clock);
            self.poll_unreported()?;
            self.watch.check()?;
            self.manager.beat();
            match events.recv_timeout(crate::table::ageing::TICK_INTERVAL) {
                Err(RecvTimeoutError::Timeout) => {}
                // Nobody is left to send a stop.
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    break !self.config.persist;
                }
                Ok(Event::Detach) => break true,
                Ok(Event::Report) => self.report()?,
                Ok(Event::Reload) => self.reload(configure())?,
                Ok(Event::Changed(causes)) => self.changed(causes)?,
            }
        };
        self.manager.stopping();
        self.end(detach)
    }

    /// Leaves everything in place, or detaches.
    fn end(self, detach: bool) -> Result<()> {
        let Self { config, handle, control, ports, watch, mut ageing, flows, .. } = self;
        if !detach {
            flows.into_iter().for_each(|flows| flows.finish(&mut ageing, false));
            tracing::info!(
                fail_open_after = write_duration(config.fail_open_after),
                "programs persist; they fail open to the kernel unless another run adopts them"
            );
            return Ok(());
        }
        // The fast path stops on all ports at once, and not one after the other.
        control.fail_open();
        drop((watch, ports));
        let detached = handle.detach();
        // Nothing counts any more.
        flows.into_iter().for_each(|flows| flows.finish(&mut ageing, true));
        detached?;
        tracing::info!("detached");
        Ok(())
    }

    fn instance_reader(&self) -> InstanceReader<'_> {
        let Self { handle, control, table, clock, .. } = self;
        let (name, maps) = (handle.pins.instance(), &handle.programs.maps);
        InstanceReader { name, maps, control, table, clock: *clock }
    }

    fn snapshot(&self) -> Result<Snapshot> {
        self.instance_reader().snapshot(
            Some(std::process::id()),
            self.ageing.statistics().active,
            self.control.denied().into(),
        )
    }

    /// Once a second.
    fn look(&mut self) -> Result<()> {
        self.handle.follow_sysctls()?;
        self.update_deny_list()?;
        self.manager.status(&self.status());
        if !self.servers.is_empty() {
            self.publish()?;
        }
        Ok(())
    }

    /// Removes expired entries, and adds those of the configuration. If a command has the lock, it returns at once: the
    /// heartbeat must go on.
    fn update_deny_list(&mut self) -> Result<()> {
        let mut list = match self.handle.deny_list(&self.control, self.clock, Duration::ZERO) {
            Ok(list) => list,
            Err(Error::System { source, .. }) if source.kind() == ErrorKind::TimedOut => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for entry in list.sweep()? {
            tracing::info!(target = %entry.target, dropped = entry.dropped, "block expired");
        }
        if std::mem::take(&mut self.block_pending) {
            block(&mut list, &self.config)?;
        }
        Ok(())
    }

    /// Gives the metrics to those who serve them. It takes hundreds of system calls.
    fn publish(&self) -> Result<()> {
        let snapshot = self.snapshot()?;
        let aged = self.ageing.statistics();
        let counts = self.watch.counts();
        let causes = Cause::ALL.iter().zip(counts.causes);
        let counts = DaemonStatistics {
            invalidations: causes.map(|(cause, bumps)| (cause.name(), bumps)).collect(),
            ended: vec![
                ("idle", aged.idle),
                ("lifetime", aged.expired),
                ("abandoned", aged.abandoned),
            ],
            datapaths: aged.datapaths.to_vec(),
            flows: self
                .flows
                .as_ref()
                .map(|flows| flows.statistics(self.ageing.meter_statistics().unwrap_or_default())),
            connections: self.accountant.largest(),
        };
        self.published.publish(Metrics { time: SystemTime::now(), snapshot, daemon: counts });
        Ok(())
    }

    /// The line of `systemctl status`.
    fn status(&self) -> String {
        let sessions = plural(self.ageing.statistics().active, "session");
        format!("{sessions} between {}", self.ports.names())
    }

    /// Logs the counters.
    fn report(&self) -> Result<()> {
        let snapshot = self.snapshot()?;
        tracing::info!(
            sessions = snapshot.sessions.active,
            generation = snapshot.generation,
            "counters"
        );
        for (what, list) in
            [("slow path", &snapshot.reasons), ("learn refusal", &snapshot.refusals)]
        {
            for one in list.iter().filter(|one| one.packets > 0) {
                tracing::info!(what, reason = one.name, packets = one.packets, "counters");
            }
        }
        Ok(())
    }

    /// The kernel has reported changes. The sessions are already invalid.
    fn changed(&mut self, causes: Causes) -> Result<()> {
        tracing::debug!(%causes, "sessions invalidated");
        self.handle.follow_sysctls()?;
        if causes.contains(Cause::Link) || causes.contains(Cause::Overrun) {
            self.follow()?;
        }
        if causes.contains(Cause::Nexthop) || causes.contains(Cause::Overrun) {
            self.control.set_revalidate_after(revalidate_within(&self.config), &self.clock);
            self.control.bump_generation();
        }
        Ok(())
    }

    /// Follows interfaces that have appeared or disappeared.
    fn follow(&mut self) -> Result<()> {
        let Self { config, handle, control, ports, heart, .. } = self;
        let mut alive = |programs: &Programs| heart.beat(programs, control).map(drop);
        let (changed, failures) = ports.follow(&links()?, config, handle, &mut alive)?;
        for error in failures {
            tracing::warn!(%error, "interface not accelerated");
        }
        if changed {
            let Self { control, handle, config, policy, events, own_port, .. } = &*self;
            let (maps, mode, own_port) = (&handle.programs.maps, config.datapath, *own_port);
            let changes = Changes { control, maps, mode, policy, events, own_port };
            self.watch = changes.watch(self.ports.indices())?;
        }
        note_uppers(&self.handle, &self.ports, &self.control)?;
        self.refresh_datapaths()
    }

    /// Decides again which datapaths sessions may take.
    fn refresh_datapaths(&self) -> Result<()> {
        if datapath::refresh(&self.handle.programs.maps, self.config.datapath)? {
            self.control.bump_generation();
        }
        Ok(())
    }

    /// The kernel does not tell of tcx programs of others, nor of packet steering: they are polled.
    fn poll_unreported(&mut self) -> Result<()> {
        let (maps, ports) = (&self.handle.programs.maps, self.ports.indices());
        let now = datapath::unreported(maps, &ports, self.steering.as_ref())?;
        if now != self.unreported {
            self.unreported = now;
            self.refresh_datapaths()?;
        }
        Ok(())
    }

    /// Applies what can be changed at run time.
    fn reload(&mut self, read: std::result::Result<Config, ConfigError>) -> Result<()> {
        self.manager.reloading();
        match read {
            Err(error) => tracing::error!(%error, "configuration not reloaded"),
            Ok(config) => self.reconfigure(config)?,
        }
        self.manager.ready(&self.status());
        Ok(())
    }

    fn reconfigure(&mut self, mut new: Config) -> Result<()> {
        let old = &self.config;
        macro_rules! keep {
            ($($field:ident),*) => { $(
                if new.$field != old.$field {
                    tracing::warn!(key = stringify!($field).replace('_', "-"), "change needs a restart");
                    new.$field.clone_from(&old.$field);
                }
            )* };
        }
        keep!(instance, datapath, statistics, max_sessions, flows, sensor, group, active_timeout);
        keep!(flow_file_time, flows_keep, flows_keep_free, metrics, metrics_connections, web);
        self.control.set_revalidate_after(revalidate_within(&new), &self.clock);
        if new.fail_open_after != old.fail_open_after {
            self.heart = Heartbeat::new(&self.control, new.fail_open_after, &self.clock);
        }
        self.ageing.set_limits(Limits::from(&new));
        if new.verify_checksums != old.verify_checksums {
            self.control.set_verify_checksums(new.verify_checksums);
            self.control.bump_generation();
        }
        if Policy::from(&new) != Policy::from(old) {
            self.control.set_admission(new.after_packets);
            // Those that were learned after fewer packets may be too young for a rule. Before it is evaluated again.
            if new.after_packets > old.after_packets {
                self.table.end(|_| true);
            }
            *lock(&self.policy) = Policy::from(&new);
            refresh_rules(&self.control, &self.handle.programs.maps, &self.policy)?;
        }
        self.ports.configure(&new.interfaces, &mut self.handle);
        self.config = new;
        self.follow()?;
        self.block_pending = true;
        self.update_deny_list()?;
        if self.block_pending {
            tracing::warn!(
                "`block` of the configuration takes effect when another process unlocks the deny list"
            );
        }
        tracing::info!(ports = self.ports.names(), "configuration reloaded");
        Ok(())
    }
}

/// Updates the upper devices of the ports. The watch bumped at the change; sessions learned since then may
/// rely on the former entries.
fn note_uppers(handle: &InstanceHandle, ports: &Ports, control: &Control) -> Result<()> {
    if upper_devices::refresh(&handle.programs.maps, &ports.indices())? {
        control.bump_generation();
    }
    Ok(())
}

fn lock(policy: &Mutex<Policy>) -> MutexGuard<'_, Policy> {
    policy.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Evaluates the rules. Two watches overlap while the ports change: one at a time evaluates.
fn refresh_rules(control: &Control, maps: &Maps, policy: &Mutex<Policy>) -> Result<()> {
    rules::refresh(control, maps, &lock(policy))
}

/// The configured time until sessions are revalidated, or less where buckets of nexthop groups depend on it.
fn revalidate_within(config: &Config) -> Duration {
    let idle_timer = nexthops::shortest_idle_timer().unwrap_or_else(|error| {
        tracing::warn!(%error, "buckets of resilient nexthop groups may be idle too early");
        None
    });
    nexthops::revalidate_within(idle_timer, config.revalidate)
}

/// All interfaces of the network namespace of the calling thread.
fn links() -> Result<Vec<Link>> {
    linerate_net::link::all().map_err(|error| Error::system("ask for the interfaces", error.into()))
}

/// Blocks the configured entries. An entry that was removed from the configuration stays blocked: commands may
/// have added it too.
fn block(list: &mut DenyList, config: &Config) -> Result<()> {
    list.block_all(config.block.iter().copied().map(Target::Prefix), None).map(drop)
}

/// What changes of the network act on.
struct Changes<'a> {
    control: &'a Arc<Control>,
    maps: &'a Maps,
    mode: Mode,
    policy: &'a Arc<Mutex<Policy>>,
    events: &'a Sender<Event>,
    own_port: u32,
}

impl Changes<'_> {
    /// Starts a watch that invalidates sessions at every change, and tells the daemon why if it is all sessions. A
    /// change of qdiscs, filters and rules takes effect before the daemon hears of it.
    fn watch(&self, ports: Vec<u32>) -> Result<NetworkMonitor> {
        let (control, events, mode) = (Arc::clone(self.control), self.events.clone(), self.mode);
        let (maps, own_port) = (self.maps.try_clone()?, self.own_port);
        let policy = Arc::clone(self.policy);
        let options = watch::Options { ports, own_port, ..watch::Options::default() };
        let watch = NetworkMonitor::start(&options, move |causes| {
            // There may be thousands of the others a second.
            let all = causes.invalidate(&control);
            if RULES.into_iter().any(|cause| causes.contains(cause))
                && let Err(error) = refresh_rules(&control, &maps, &policy)
            {
                tracing::error!(%error, "cannot keep sessions with the kernel that rules have to see");
            }
            if [Cause::TrafficControl, Cause::Nftables, Cause::Overrun]
                .into_iter()
                .any(|cause| causes.contains(cause))
            {
                match datapath::refresh(&maps, mode) {
                    Ok(false) => {}
                    Ok(true) => {
                        control.bump_generation();
                    }
                    Err(error) => tracing::error!(%error, "cannot choose datapaths again"),
                }
            }
            if all {
                // The daemon may have ended.
                let _ = events.send(Event::Changed(causes));
            }
        })?;
        for unmonitored in watch.unmonitored() {
            tracing::warn!("{unmonitored}");
        }
        Ok(watch)
    }
}
