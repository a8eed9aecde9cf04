//! `--metrics` and `--web`, for all verbs that have them.

use std::fmt;
use std::net::TcpListener;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use linerate_service::{INTERVAL, ListenAddress, MetricEncoder, Published, Server};

use super::stdio;

/// The option.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Metrics {
    /// Serve Prometheus metrics at http://ADDRESS/metrics. ADDRESS is 127.0.0.1:9819, or 9819 for a port on the
    /// loopback interface. [default: off]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<ListenAddress>,
}

/// The option of the page.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Web {
    /// Serve a page with live charts at http://ADDRESS/. ADDRESS is 127.0.0.1:9820, or 9820 for a port on the loopback
    /// interface. [default: off]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) web: Option<ListenAddress>,
}

impl Web {
    /// Listens for the page and for metrics, in the network namespace that this thread is in. At one address the page's
    /// server has the metrics, too.
    pub(crate) fn listen(self, metrics: Metrics) -> Result<[Option<TcpListener>; 2]> {
        let web = self.web.unwrap_or_default();
        let page = web.listen().context("--web")?;
        let metrics =
            if page.is_some() && metrics.metrics == self.web { None } else { metrics.listen()? };
        Ok([page, metrics])
    }
}

impl Metrics {
    /// Listens, in the network namespace that this thread is in.
    pub(crate) fn listen(self) -> Result<Option<TcpListener>> {
        self.metrics.unwrap_or_default().listen().context("--metrics")
    }
}

/// What a verb serves while it runs.
#[derive(Debug)]
pub(crate) struct Publisher<T> {
    latest: Published<T>,
    servers: Vec<Server>,
    published: Option<Instant>,
}

impl<T> Default for Publisher<T> {
    fn default() -> Self {
        Self { latest: Published::default(), servers: Vec::new(), published: None }
    }
}

impl<T: fmt::Debug + Send + 'static> Publisher<T> {
    /// Serves the `process_…` metrics of this process instead of the calling one's.
    pub(crate) fn for_process(process: u32) -> Self {
        Self { latest: Published::for_process(process), ..Self::default() }
    }

    /// Serves the metrics of `verb` if there is a listener, and prints the address.
    pub(crate) fn metrics(
        mut self,
        listener: Option<TcpListener>,
        verb: &'static str,
        quiet: bool,
        encode: fn(&T, &mut MetricEncoder<'_, '_>) -> fmt::Result,
    ) -> Result<Self> {
        if let Some(listener) = listener {
            let server = self.latest.serve_metrics(listener, verb, encode);
            self.add(server.context("cannot serve the metrics")?, "metrics at", "/metrics", quiet);
        }
        Ok(self)
    }

    /// Serves the page, too, if there is a listener for it.
    pub(crate) fn page(
        mut self,
        listener: Option<TcpListener>,
        verb: &'static str,
        quiet: bool,
        encode: fn(&T, &mut MetricEncoder<'_, '_>) -> fmt::Result,
        to_json: fn(&T) -> std::result::Result<String, String>,
    ) -> Result<Self> {
        if let Some(listener) = listener {
            let server = self.latest.serve_page(listener, verb, encode, to_json);
            self.add(server.context("cannot serve the page")?, "page at", "/", quiet);
        }
        Ok(self)
    }

    fn add(&mut self, server: Server, what: &str, path: &str, quiet: bool) {
        if !quiet {
            let address = server.address();
            stdio::eprintln(format_args!("linerate: {what} http://{address}{path}"));
        }
        self.servers.push(server);
    }

    /// Publishes the counts if the interval has passed and something is served.
    pub(crate) fn update(&mut self, counts: impl FnOnce() -> T) {
        let is_due = self.published.is_none_or(|published| published.elapsed() >= INTERVAL);
        if is_due && !self.servers.is_empty() {
            self.latest.publish(counts());
            self.published = Some(Instant::now());
        }
    }
}
