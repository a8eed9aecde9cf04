//! [`Published`]: the last published counts of a verb, for its servers.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use crate::encoder::MetricEncoder;
use crate::page::page;
use crate::process::Process;
use crate::server::{Body, HTML, JSON, OPEN_METRICS, Resource, Server};

/// How often a verb publishes its counts.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// The counts that a verb published last. Clones share them.
#[derive(Debug)]
pub struct Published<T> {
    last: Arc<Mutex<Option<T>>>,
    /// The process of the `process_…` metrics.
    process: u32,
}

impl<T> Clone for Published<T> {
    fn clone(&self) -> Self {
        Self { last: Arc::clone(&self.last), process: self.process }
    }
}

impl<T> Published<T> {
    /// Serves the `process_…` metrics of this process instead of the calling one's.
    #[must_use]
    pub fn for_process(process: u32) -> Self {
        Self { last: Arc::default(), process }
    }
}

impl<T> Default for Published<T> {
    fn default() -> Self {
        Self::for_process(std::process::id())
    }
}

impl<T: fmt::Debug + Send + 'static> Published<T> {
    /// Publishes `counts` in place of the last ones.
    pub fn publish(&self, counts: T) {
        *self.lock() = Some(counts);
    }

    /// Serves the published counts as metrics for Prometheus, at `/metrics`. `encode` writes the metric families of
    /// `verb`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn serve_metrics(
        &self,
        listener: TcpListener,
        verb: &'static str,
        encode: fn(&T, &mut MetricEncoder<'_, '_>) -> fmt::Result,
    ) -> io::Result<Server> {
        let landing = landing_page(verb);
        let page =
            Resource { path: "/", content_type: HTML, body: Box::new(move || Ok(landing.clone())) };
        Server::start(listener, "metrics", vec![self.metrics(verb, encode), page])
    }

    /// Serves a page with live charts at `/`, the published counts at `/data.json` (`null` before the first), and the
    /// metrics. `to_json` writes an object whose schema the page knows.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn serve_page(
        &self,
        listener: TcpListener,
        verb: &'static str,
        encode: fn(&T, &mut MetricEncoder<'_, '_>) -> fmt::Result,
        to_json: fn(&T) -> Result<String, String>,
    ) -> io::Result<Server> {
        let published = self.clone();
        let data: Box<Body> = Box::new(move || match published.lock().as_ref() {
            Some(last) => to_json(last),
            None => Ok("null".to_owned()),
        });
        let text = page(verb);
        let routes = vec![
            self.metrics(verb, encode),
            Resource { path: "/data.json", content_type: JSON, body: data },
            Resource { path: "/", content_type: HTML, body: Box::new(move || Ok(text.clone())) },
        ];
        Server::start(listener, "web", routes)
    }

    fn metrics(
        &self,
        verb: &'static str,
        encode: fn(&T, &mut MetricEncoder<'_, '_>) -> fmt::Result,
    ) -> Resource {
        let mut registry = Registry::default();
        let (published, process) = (self.clone(), Process::new(verb, self.process));
        registry.register_collector(Box::new(Families { published, encode, process }));
        let body: Box<Body> = Box::new(move || {
            let mut text = String::new();
            let encoded = prometheus_client::encoding::text::encode(&mut text, &registry);
            encoded.map(|()| text).map_err(|error| error.to_string())
        });
        Resource { path: "/metrics", content_type: OPEN_METRICS, body }
    }

    /// Nothing under the lock can leave partial state.
    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The page at `/`, for browsers.
fn landing_page(verb: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>linerate {verb}</title><body style=\"font-family: system-ui, sans-serif; margin: 2rem\">\
         <h1>linerate {verb}</h1><p>Version {version}. <a href=\"/metrics\">Metrics</a> for Prometheus \
         (OpenMetrics).</p></body></html>\n"
    )
}

#[derive(Debug)]
struct Families<T> {
    published: Published<T>,
    encode: fn(&T, &mut MetricEncoder<'_, '_>) -> fmt::Result,
    process: Process,
}

impl<T: fmt::Debug + Send + 'static> Collector for Families<T> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut encoder = MetricEncoder { encoder: &mut encoder };
        self.process.encode(&mut encoder)?;
        self.published.lock().as_ref().map_or(Ok(()), |last| (self.encode)(last, &mut encoder))
    }
}

#[cfg(test)]
mod tests;
