//! [`Daemon`]: what runs beside the programs: attaches them, tells them of changes and that it lives, and looks
//! after sessions, deny list and metrics. One thread sleeps until something is due or asked for; the watch and the
//! metrics have one of their own.

mod ground;
mod owned;
mod ports;
mod service;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::ageing::Limits;
use crate::clock::Clock;
use crate::config::{Config, Invalid, Metrics as MetricsAt, write_duration};
use crate::control::Control;
use crate::deny::Target;
use crate::heartbeat::Heartbeat;
use crate::instance::LockedDenyList;
use crate::link;
use crate::metrics::{Counts, Endpoint, Metrics};
use crate::pins::{Lock, Pins, instance_name};
use crate::program::Programs;
use crate::snapshot::Snapshot;
use crate::store::{Cleaner, Store};
use crate::uppers;
use crate::view::View;
use crate::watch::{self, Cause, Causes, Watch};
use crate::{Error, Result};
use linerate_net::link::Link;
use owned::Owned;
use ports::Ports;
use service::Service;

/// How often what nobody asks for is looked at: metrics, deny list, whether the pins are still there.
const LOOK: Duration = Duration::from_secs(1);

/// What a daemon is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// To end, and to take everything away unless it was configured to leave it.
    Stop,
    /// To end and to take everything away.
    Detach,
    /// To read its configuration again.
    Reload,
    /// To log what it has counted.
    Report,
    /// To look at its interfaces: the kernel has told of this.
    Changed(Causes),
}

/// A daemon that forwards.
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    owned: Owned,
    control: Arc<Control>,
    store: Store,
    clock: Clock,
    ports: Ports,
    watch: Watch,
    heart: Heartbeat,
    ageing: Cleaner,
    metrics: Metrics,
    /// Held: it serves until it is dropped.
    _endpoint: Option<Endpoint>,
    service: Service,
    /// What the watch sends into.
    events: Sender<Event>,
}

impl Daemon {
    /// Attaches everything in the network namespace of the calling thread and begins to forward. What the kernel
    /// tells of interfaces is sent into `events`.
    ///
    /// # Errors
    /// Whatever stands in the way; nothing is left behind then.
    pub fn start(config: Config, events: Sender<Event>) -> Result<Self> {
        let name = config.instance.clone().map_or_else(instance_name, Ok)?;
        let (mut owned, adopted) = Owned::open(&name, &config)?;
        let mut ports = Ports::adopted(adopted, &owned.programs.maps)?;
        let metrics = Metrics::default();
        let mut prepare = || -> Result<_> {
            let maps = &owned.programs.maps;
            let control = Arc::new(Control::open(maps)?);
            let program = |name: &str| owned.programs.share(name);
            let store = Store::open(maps, control.statistics(), program)?;
            let clock = Clock::estimated();
            control.set_refresh(config.relearn, &clock);
            let mut heart = Heartbeat::new(&control, config.hand_back, &clock);
            let ageing = Cleaner::new(&store, maps, Limits::from(&config), clock)?;
            let endpoint = serve(&metrics, config.metrics)?;
            ports.configure(&config.interfaces, &mut owned);
            block(owned.deny_list(&control, clock)?, &config)?;
            // The programs forward from the moment that they are attached: the first beat comes before, and
            // before that the watch, so that whatever has changed while nobody watched is followed by a bump.
            let links = links()?;
            let early = start_watch(link::indices(&links, &config.interfaces), &control, &events)?;
            let clock = heart.beat(&owned.programs, &control)?.unwrap_or(clock);
            let mut alive = |programs: &Programs| heart.beat(programs, &control).map(drop);
            let (_, failures) = ports.follow(&links, &config, &mut owned, &mut alive)?;
            failures.into_iter().next().map_or(Ok(()), Err)?;
            // Anew, before the other ends: it has nothing to say of what was attached just now.
            let watch = start_watch(ports.indices(), &control, &events)?;
            drop(early);
            note_uppers(&owned, &ports, &control)?;
            heart.beat(&owned.programs, &control)?;
            Ok((control, store, clock, heart, ageing, endpoint, watch))
        };
        match prepare() {
            Ok((control, store, clock, heart, ageing, endpoint, watch)) => Ok(Self {
                config,
                owned,
                control,
                store,
                clock,
                ports,
                watch,
                heart,
                ageing,
                metrics,
                _endpoint: endpoint,
                service: Service::find(),
                events,
            }),
            Err(error) => {
                // What was adopted stays as it was: it may forward still, and hands itself back.
                if owned.is_fresh
                    && let Err(error) = owned.detach()
                {
                    tracing::warn!(%error, "something is left");
                }
                Err(error)
            }
        }
    }

    /// Looks after the programs until it is told to stop, or somebody else has detached them. `configure` reads
    /// the configuration again.
    ///
    /// # Errors
    /// When it can look after them no longer: the kernel refuses a beat, or the network cannot be watched.
    pub fn run(
        mut self,
        events: &Receiver<Event>,
        configure: impl Fn() -> std::result::Result<Config, Invalid>,
    ) -> Result<()> {
        self.look()?;
        tracing::info!(
            instance = self.owned.pins.instance(),
            ports = self.ports.names(),
            "ready: forwarding"
        );
        self.service.ready(&self.status());
        let mut looked = Instant::now();
        let detach = loop {
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look()?;
            }
            if let Some(clock) = self.heart.beat(&self.owned.programs, &self.control)? {
                self.clock = clock;
            }
            self.ageing.tick()?;
            self.watch.check()?;
            self.service.beat();
            match events.recv_timeout(crate::ageing::TICK) {
                Err(RecvTimeoutError::Timeout) => {}
                // Whoever could ask is gone: nobody else can end it.
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break !self.config.leave,
                Ok(Event::Detach) => break true,
                Ok(Event::Report) => self.report()?,
                Ok(Event::Reload) => self.reload(configure())?,
                Ok(Event::Changed(causes)) => self.changed(causes)?,
            }
        };
        self.service.stopping();
        self.end(detach)
    }

    /// Leaves everything, or takes everything away.
    fn end(self, detach: bool) -> Result<()> {
        let Self { config, owned, control, ports, watch, .. } = self;
        if !detach {
            tracing::info!(
                bound = write_duration(config.hand_back),
                "left; without another run the kernel forwards everything after the bound"
            );
            return Ok(());
        }
        // The fast path ends at once on all ports, and not on one after the other.
        control.hand_back();
        drop((watch, ports));
        owned.detach()?;
        tracing::info!("detached");
        Ok(())
    }

    fn view(&self) -> View<'_> {
        let Self { owned, control, store, clock, .. } = self;
        let (name, maps) = (owned.pins.instance(), &owned.programs.maps);
        View { name, maps, control, store, clock: *clock }
    }

    fn snapshot(&self) -> Result<Snapshot> {
        self.view().snapshot(self.ageing.aged().held, self.control.denied().into())
    }

    /// Once a second.
    fn look(&mut self) -> Result<()> {
        for entry in self.owned.deny_list(&self.control, self.clock)?.sweep()? {
            tracing::info!(target = %entry.target, dropped = entry.dropped, "no longer blocked");
        }
        let snapshot = self.snapshot()?;
        self.service.status(&self.status());
        let aged = self.ageing.aged();
        let counts = self.watch.counts();
        let causes = Cause::ALL.iter().zip(counts.causes);
        let counts = Counts {
            invalidations: causes.map(|(cause, bumps)| (cause.name(), bumps)).collect(),
            ended: vec![
                ("idle", aged.idle),
                ("lifetime", aged.expired),
                ("abandoned", aged.abandoned),
            ],
        };
        self.metrics.show(snapshot, counts);
        Ok(())
    }

    /// The line of `systemctl status`.
    fn status(&self) -> String {
        format!("{} sessions between {}", self.ageing.aged().held, self.ports.names())
    }

    /// Logs what was counted.
    fn report(&self) -> Result<()> {
        let snapshot = self.snapshot()?;
        tracing::info!(
            sessions = snapshot.sessions.held,
            generation = snapshot.generation,
            "counts"
        );
        for (what, list) in [("slow path", &snapshot.reasons), ("refusal", &snapshot.refusals)] {
            for one in list.iter().filter(|one| one.packets > 0) {
                tracing::info!(what, reason = one.name, packets = one.packets, "counts");
            }
        }
        Ok(())
    }

    /// The kernel has told of changes. Sessions know already.
    fn changed(&mut self, causes: Causes) -> Result<()> {
        let names: Vec<_> = causes.iter().map(Cause::name).collect();
        tracing::debug!(causes = names.join(", "), "all sessions ask again");
        if causes.contains(Cause::Link) || causes.contains(Cause::Overrun) {
            self.follow()?;
        }
        Ok(())
    }

    /// Looks for interfaces that have come or gone.
    fn follow(&mut self) -> Result<()> {
        let Self { config, owned, control, ports, heart, .. } = self;
        let mut alive = |programs: &Programs| heart.beat(programs, control).map(drop);
        let (changed, failures) = ports.follow(&links()?, config, owned, &mut alive)?;
        for error in failures {
            tracing::warn!(%error, "an interface is not accelerated");
        }
        if changed {
            self.watch = start_watch(self.ports.indices(), &self.control, &self.events)?;
        }
        note_uppers(&self.owned, &self.ports, &self.control)
    }

    /// Takes over what of a configuration can be changed while sessions are forwarded.
    fn reload(&mut self, read: std::result::Result<Config, Invalid>) -> Result<()> {
        self.service.reloading();
        match read {
            Err(error) => tracing::error!(%error, "the configuration stays as it was"),
            Ok(config) => self.reconfigure(config)?,
        }
        self.service.ready(&self.status());
        Ok(())
    }

    fn reconfigure(&mut self, new: Config) -> Result<()> {
        let old = &self.config;
        for (name, differs) in [
            ("instance", new.instance != old.instance),
            ("mode", new.mode != old.mode),
            ("statistics", new.statistics != old.statistics),
            ("max-sessions", new.max_sessions != old.max_sessions),
            ("metrics", new.metrics != old.metrics),
        ] {
            if differs {
                tracing::warn!(key = name, "changed, but only a restart takes it over");
            }
        }
        self.control.set_refresh(new.relearn, &self.clock);
        if new.hand_back != old.hand_back {
            self.heart = Heartbeat::new(&self.control, new.hand_back, &self.clock);
        }
        self.ageing.set_limits(Limits::from(&new));
        self.ports.configure(&new.interfaces, &mut self.owned);
        self.config = Config {
            instance: old.instance.clone(),
            mode: old.mode,
            statistics: old.statistics,
            max_sessions: old.max_sessions,
            metrics: old.metrics,
            ..new
        };
        self.follow()?;
        block(self.owned.deny_list(&self.control, self.clock)?, &self.config)?;
        tracing::info!(ports = self.ports.names(), "configured anew");
        Ok(())
    }
}

/// Notes what lies on the ports. The watch has bumped at the change; what was learned since then may have gone by
/// the former entries.
fn note_uppers(owned: &Owned, ports: &Ports, control: &Control) -> Result<()> {
    if uppers::refresh(&owned.programs.maps, &ports.indices())? {
        control.bump();
    }
    Ok(())
}

/// All interfaces of the network namespace of the calling thread.
fn links() -> Result<Vec<Link>> {
    linerate_net::link::all().map_err(|error| Error::system("ask for the interfaces", error.into()))
}

/// Blocks what is configured. What was taken out of the configuration stays blocked: others may want it.
fn block(mut list: LockedDenyList, config: &Config) -> Result<()> {
    let mut block = |prefix| list.block(Target::Prefix(prefix), None).map(|_| ());
    config.block.iter().try_for_each(|prefix| block(*prefix))
}

/// Takes an instance away, whoever ran it: programs, tables and pins, and undoes what was put right for it.
///
/// # Errors
/// The first of what failed; the rest is done all the same.
pub fn detach(pins: &Pins, lock: Lock) -> Result<()> {
    ground::detach(pins, lock)
}

/// Bumps the generation at every change, and tells the daemon why.
fn start_watch(ports: Vec<u32>, control: &Arc<Control>, events: &Sender<Event>) -> Result<Watch> {
    let (control, events) = (Arc::clone(control), events.clone());
    let options = watch::Options { ports, ..watch::Options::default() };
    let watch = Watch::start(&options, move |causes| {
        control.bump();
        // A daemon that has ended needs not know.
        let _ = events.send(Event::Changed(causes));
    })?;
    for blind in watch.blind() {
        tracing::warn!("{blind}");
    }
    Ok(watch)
}

/// Serves metrics. Where nobody has asked for that, forwarding does not fail for want of them.
fn serve(metrics: &Metrics, at: MetricsAt) -> Result<Option<Endpoint>> {
    let MetricsAt::At(address) = at else { return Ok(None) };
    match metrics.serve(address) {
        Ok(endpoint) => {
            let url = format!("http://{}/metrics", endpoint.address());
            tracing::info!(url, "serving metrics");
            Ok(Some(endpoint))
        }
        Err(error) if at == MetricsAt::default() => {
            tracing::warn!(%address, %error, "no metrics are served");
            Ok(None)
        }
        Err(source) => Err(Error::system(format!("serve metrics at {address}"), source)),
    }
}
