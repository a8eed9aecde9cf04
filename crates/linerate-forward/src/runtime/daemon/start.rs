//! How a daemon starts: [`Prepared`], then [`Attached`], then it runs.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use super::accountant::Accountant;
use super::handle::InstanceHandle;
use super::neighbours::NeighbourConfirmer;
use super::ports::Ports;
use super::{Changes, Daemon, Event, block, links, note_uppers, revalidate_within};
use crate::config::{Config, DEFAULT_METRICS};
use crate::metrics::Metrics;
use crate::runtime::datapath;
use crate::runtime::flows::Flows;
use crate::runtime::heartbeat::Heartbeat;
use crate::runtime::link;
use crate::runtime::program::Programs;
use crate::runtime::rules::Policy;
use crate::runtime::timeouts::ConnectionTimeouts;
use crate::runtime::watch::NetworkMonitor;
use crate::table::Table;
use crate::table::ageing::{Ageing, Limits};
use crate::table::clock::Clock;
use crate::table::control::Control;
use crate::{Error, Result};
use linerate_net::Steering;
use linerate_net::lock::MAX_WAIT;
use linerate_service::{Manager, Published, Server};

/// All is there that the programs and the table need. No program is attached to a new port yet.
pub(super) struct Prepared {
    control: Arc<Control>,
    table: Arc<Table>,
    clock: Clock,
    policy: Arc<Mutex<Policy>>,
    heart: Heartbeat,
    confirmer: NeighbourConfirmer,
    ageing: Ageing,
    /// The netlink port by which it changes tracked connections.
    own_port: u32,
    flows: Option<Flows>,
    published: Published<Metrics>,
    servers: Vec<Server>,
}

/// The programs forward, and the network is watched.
pub(super) struct Attached {
    prepared: Prepared,
    ports: Ports,
    watch: NetworkMonitor,
    accountant: Accountant,
}

impl Prepared {
    pub(super) fn new(config: &Config, handle: &mut InstanceHandle) -> Result<Self> {
        let maps = &handle.programs.maps;
        let control = Arc::new(Control::open(maps)?);
        let table = Arc::new(Table::open(maps)?);
        let clock = Clock::from_boot_time();
        control.set_revalidate_after(revalidate_within(config), &clock);
        control.set_verify_checksums(config.verify_checksums);
        control.set_admission(config.after_packets);
        let heart = Heartbeat::new(&control, config.fail_open_after, &clock);
        let confirmer = NeighbourConfirmer::open()?;
        let mut ageing = Ageing::new(Arc::clone(&table), maps, Limits::from(config), clock)?;
        if !handle.is_fresh {
            ageing.skip_counted();
        }
        let refresh = handle.programs.get("refresh")?.try_clone_to_owned();
        let refresh = refresh.map_err(|error| Error::system("keep a BPF program", error))?;
        let timeouts = ConnectionTimeouts::new(Arc::clone(&table), refresh);
        let own_port = timeouts.port();
        ageing.set_timeouts(Box::new(timeouts));
        let pins = (&handle.pins, &handle.lock);
        let has_lost_sessions = handle.has_lost_sessions;
        let flows = Flows::start(config, pins, has_lost_sessions, &table, &mut ageing, clock)?;
        let published = Published::default();
        let servers = serve(&published, config)?;
        let policy = Arc::new(Mutex::new(Policy::from(config)));
        let mut list = handle.deny_list(&control, clock, MAX_WAIT)?;
        block(&mut list, config)?;
        drop(list);
        Ok(Self {
            control,
            table,
            clock,
            policy,
            heart,
            confirmer,
            ageing,
            own_port,
            flows,
            published,
            servers,
        })
    }

    /// Attaches to the interfaces. The programs forward as soon as they are attached. So the first heartbeat comes before
    /// that, and the watch before the heartbeat: a bump follows every change that nobody watched.
    pub(super) fn attach(
        mut self,
        config: &Config,
        handle: &mut InstanceHandle,
        mut ports: Ports,
        events: &Sender<Event>,
    ) -> Result<Attached> {
        ports.configure(&config.interfaces, handle);
        let links = links()?;
        let early =
            self.watch(config, handle, events, link::indices(&links, &config.interfaces))?;
        let Self { control, heart, .. } = &mut self;
        let clock = heart.beat(&handle.programs, control)?;
        let mut alive = |programs: &Programs| heart.beat(programs, control).map(drop);
        let (_, failures) = ports.follow(&links, config, handle, &mut alive)?;
        failures.into_iter().next().map_or(Ok(()), Err)?;
        self.clock = clock.unwrap_or(self.clock);
        // Started before the early one ends, it reports nothing about the ports just attached.
        let watch = self.watch(config, handle, events, ports.indices())?;
        drop(early);
        note_uppers(handle, &ports, &self.control)?;
        datapath::refresh(&handle.programs.maps, config.datapath)?;
        self.control.bump_generation();
        self.heart.beat(&handle.programs, &self.control)?;
        let accountant = Accountant::start(config, &self.table, self.clock)?;
        Ok(Attached { prepared: self, ports, watch, accountant })
    }

    fn watch(
        &self,
        config: &Config,
        handle: &InstanceHandle,
        events: &Sender<Event>,
        ports: Vec<u32>,
    ) -> Result<NetworkMonitor> {
        let Self { control, policy, own_port, .. } = self;
        let (maps, mode, own_port) = (&handle.programs.maps, config.datapath, *own_port);
        Changes { control, maps, mode, policy, events, own_port }.watch(ports)
    }
}

impl Attached {
    /// The daemon that goes on from here.
    pub(super) fn into_daemon(
        self,
        config: Config,
        handle: InstanceHandle,
        events: Sender<Event>,
    ) -> Daemon {
        let Self { prepared, ports, watch, accountant } = self;
        let Prepared { control, table, clock, policy, heart, confirmer, .. } = prepared;
        let Prepared { ageing, own_port, flows, published, servers, .. } = prepared;
        Daemon {
            config,
            handle,
            control,
            table,
            clock,
            ports,
            policy,
            watch,
            own_port,
            heart,
            ageing,
            flows,
            confirmer,
            accountant,
            published,
            servers,
            manager: Manager::find(),
            unreported: BTreeMap::new(),
            steering: open_steering(),
            block_pending: false,
            events,
        }
    }
}

/// Where packet steering (RPS) is read.
fn open_steering() -> Option<Steering> {
    Steering::open()
        .inspect_err(|error| {
            tracing::warn!(%error, "where packets are steered (RPS), some may be overtaken");
        })
        .ok()
}

/// Serves metrics, and the page. At the default address, a failure does not stop forwarding.
fn serve(published: &Published<Metrics>, config: &Config) -> Result<Vec<Server>> {
    let mut servers = Vec::new();
    // The page's server has the metrics, too.
    if let Some(listener) =
        config.web.listen().map_err(|error| Error::system("serve the page", error))?
    {
        let served = published.serve_page(listener, "forward", Metrics::encode, Metrics::to_json);
        let server = served.map_err(|error| Error::system("serve the page", error))?;
        tracing::info!(url = format!("http://{}/", server.address()), "serving the page");
        servers.push(server);
    }
    if config.metrics == config.web {
        return Ok(servers);
    }
    let served = config.metrics.listen().and_then(|listener| {
        let serve = |listener| published.serve_metrics(listener, "forward", Metrics::encode);
        listener.map(serve).transpose()
    });
    match served {
        Ok(server) => {
            if let Some(server) = &server {
                let url = format!("http://{}/metrics", server.address());
                tracing::info!(url, "serving metrics");
            }
            servers.extend(server);
        }
        Err(error) if config.metrics == DEFAULT_METRICS => {
            tracing::warn!(%error, "metrics unavailable");
        }
        Err(source) => return Err(Error::system("serve metrics", source)),
    }
    Ok(servers)
}
