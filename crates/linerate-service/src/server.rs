//! [`Server`]: an HTTP server that only answers GET.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::sync::oneshot;

use crate::connection::LimitedListener;

/// The content type of OpenMetrics 1.0 text.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// That of JSON.
pub(crate) const JSON: &str = "application/json";
/// That of a page.
pub(crate) const HTML: &str = "text/html; charset=utf-8";

/// The Content-Security-Policy: a page loads nothing from elsewhere, and no other page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                      img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Builds the body of a response, for each request.
pub(crate) type Body = dyn Fn() -> Result<String, String> + Send + Sync;

/// A path and its response.
pub(crate) struct Resource {
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Box<Body>,
}

/// A server with one thread of its own, which ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a thread of this name that serves `routes`.
    pub(crate) fn start(
        listener: TcpListener,
        name: &'static str,
        routes: Vec<Resource>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_io().enable_time().build()?;
        let serve = async move {
            let mut listener = LimitedListener::new(tokio::net::TcpListener::from_std(listener)?);
            let router = router(routes).layer(middleware::from_fn(refuse_other_hosts));
            let service = TowerToHyperService::new(router);
            // Clients such as `nc -N` close their side after the request.
            let mut http = http1::Builder::new();
            http.half_close(true);
            let accept = async {
                loop {
                    let connection = TokioIo::new(listener.accept().await);
                    tokio::spawn(http.serve_connection(connection, service.clone()));
                }
            };
            // A response in progress does not delay the end: dropping the runtime closes its connection.
            tokio::select! {
                () = accept => Ok(()),
                _ = stopped => io::Result::Ok(()),
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            if let Err(error) = runtime.block_on(serve) {
                tracing::error!(%address, %error, "{name} no longer served");
            }
        })?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address that it listens on, with the port that the kernel chose if 0 was requested.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// How long a client may take to ask.
const MAX_REQUEST_TIME: Duration = Duration::from_millis(100);

/// Clients that are answered at once: more must not keep the caller from its work.
const MAX_CLIENTS: usize = 8;

/// Answers those who ask at `listener`, for which there is no [`Server`] yet: 503, and why.
///
/// # Errors
/// The listener failed.
pub fn answer_unavailable(listener: &TcpListener, why: &str) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    for _ in 0..MAX_CLIENTS {
        let Ok((mut client, _)) = listener.accept() else { break };
        let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8";
        let length = why.len() + 1;
        let response =
            format!("{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{why}\n");
        // What is unread at the close would reset the connection. Who is gone needs no answer.
        let _ = client
            .set_nonblocking(false)
            .and_then(|()| client.set_read_timeout(Some(MAX_REQUEST_TIME)))
            .and_then(|()| client.read(&mut [0; 4096]))
            .and_then(|_| client.set_write_timeout(Some(MAX_REQUEST_TIME)))
            .and_then(|()| client.write_all(response.as_bytes()));
    }
    Ok(())
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resource").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Refuses requests for another host than this one. A page of a stranger, whose name leads a browser to this address (DNS
/// rebinding), could read the answers otherwise.
async fn refuse_other_hosts(request: Request, next: Next) -> Response {
    if is_this_host(request.headers()) {
        return next.run(request).await;
    }
    let text =
        "this host has no such name: ask for an address, localhost, or a name in its /etc/hosts\n";
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

/// Whether the request names an IP address, `localhost` or this host, as hosts(5) may, too; HTTP/1.0 may name none.
fn is_this_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let Ok(authority) = Authority::try_from(host.as_bytes()) else { return false };
    let name = authority.host();
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    let own = rustix::system::uname();
    let hosts = || std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    is_address
        || name.eq_ignore_ascii_case("localhost")
        || own.nodename().to_str().is_ok_and(|own| name.eq_ignore_ascii_case(own))
        || is_in_hosts(&hosts(), name)
}

/// Whether hosts(5) gives this name to an address: an address and its names in each line, `#` before comments.
fn is_in_hosts(hosts: &str, name: &str) -> bool {
    let names = |line: &str| {
        let entry = line.split('#').next().unwrap_or_default();
        entry.split_whitespace().skip(1).any(|one| one.eq_ignore_ascii_case(name))
    };
    hosts.lines().any(names)
}

fn router(routes: Vec<Resource>) -> Router {
    routes.into_iter().fold(Router::new(), |router, Resource { path, content_type, body }| {
        let body: Arc<Body> = Arc::from(body);
        let answer = move || async move {
            let headers = [
                (header::CONTENT_TYPE, content_type),
                (header::CACHE_CONTROL, "no-store"),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (header::CONTENT_SECURITY_POLICY, POLICY),
            ];
            match body() {
                Ok(text) => Ok((headers, text)),
                Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error)),
            }
        };
        router.route(path, get(answer))
    })
}

#[cfg(test)]
pub(crate) mod tests;
