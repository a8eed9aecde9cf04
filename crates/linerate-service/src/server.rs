//! [`Server`]: an HTTP server that only answers GET.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
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
            let listener = LimitedListener::new(tokio::net::TcpListener::from_std(listener)?);
            let router = router(routes).layer(middleware::from_fn(refuse_other_hosts));
            // A response in progress does not delay the end: dropping the runtime closes its connection.
            tokio::select! {
                result = axum::serve(listener, router) => result,
                _ = stopped => Ok(()),
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
pub(crate) mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::connection::MAX_CONNECTIONS;

    pub(crate) fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        ask_for(&mut stream, "localhost", path);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn ask_for(stream: &mut TcpStream, host: &str, path: &str) {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    }

    fn start(body: Box<Body>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let route = Resource { path: "/metrics", content_type: OPEN_METRICS, body };
        Server::start(listener, "test", vec![route]).unwrap()
    }

    #[test]
    fn it_answers_until_it_is_dropped() {
        let server = start(Box::new(|| Ok("linerate_sessions 3\n# EOF\n".to_owned())));
        let address = server.address();
        let answer = ask(address, "/metrics");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains(OPEN_METRICS), "{answer}");
        assert!(answer.ends_with("linerate_sessions 3\n# EOF\n"), "{answer}");
        assert!(ask(address, "/other").starts_with("HTTP/1.1 404"));
        // A client that connects and sends nothing does not delay the end.
        let silent = TcpStream::connect(address).unwrap();
        drop(server);
        assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
        drop(silent);
    }

    #[test]
    fn names_are_those_of_this_host() {
        let hosts =
            "127.0.0.1 localhost\n10.0.0.1\trouter.example.net router # old.example\n#::1 no\n";
        for (name, expected) in [
            ("router", true),
            ("Router.Example.NET", true),
            ("10.0.0.1", false),
            ("example.net", false),
            ("old.example", false),
            ("no", false),
            ("", false),
        ] {
            assert_eq!(is_in_hosts(hosts, name), expected, "{name}");
        }
    }

    #[test]
    fn other_hosts_are_refused_at_every_address() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let body: Box<Body> = Box::new(|| Ok("secret".to_owned()));
        let route = Resource { path: "/metrics", content_type: OPEN_METRICS, body };
        let server = Server::start(listener, "test", vec![route]).unwrap();
        let port = server.address().port();
        let status = |host: &str| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            ask_for(&mut stream, host, "/metrics");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(answer.contains("secret"), answer.starts_with("HTTP/1.1 200"));
            answer[9..12].to_owned()
        };
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "[::1]"] {
            assert_eq!(
                (status(host), status(&format!("{host}:{port}"))),
                ("200".into(), "200".into()),
                "{host}"
            );
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", ""] {
            assert_eq!(
                (status(host), status(&format!("{host}:{port}"))),
                ("421".into(), "421".into()),
                "{host}"
            );
        }
    }

    #[test]
    fn a_thousand_connections_take_few_descriptors_and_the_next_is_answered() {
        let server = start(Box::new(|| Ok("yes".to_owned())));
        // The queue of the kernel ends at a few hundred, so a connection may not be made at once.
        let silent: Vec<_> = (0..1000)
            .map_while(|_| {
                TcpStream::connect_timeout(&server.address(), Duration::from_millis(200)).ok()
            })
            .collect();
        // The other end of each that the server has accepted is a socket of this process.
        let accepted = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .filter(|name| name.to_string_lossy().starts_with("socket:"))
            .count();
        assert!(silent.len() > 2 * MAX_CONNECTIONS, "{}", silent.len());
        let others = 64; // sockets of the tests that run beside this one
        let most = silent.len() + MAX_CONNECTIONS + others;
        assert!(accepted <= most, "{accepted} sockets for {} connections", silent.len());
        drop(silent);
        assert!(ask(server.address(), "/metrics").ends_with("yes"));

        // Clients that send a byte now and then hold all connections, but not for long.
        let mut slow: Vec<_> =
            (0..MAX_CONNECTIONS).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        let mut waiting = TcpStream::connect(server.address()).unwrap();
        ask_for(&mut waiting, "localhost", "/metrics");
        waiting.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (start, mut answer) = (Instant::now(), Vec::new());
        let mut buffer = [0; 1024];
        while answer.is_empty() && start.elapsed() < Duration::from_secs(30) {
            // Once they are refused, writing fails.
            slow.iter_mut().for_each(|stream| drop(stream.write(b"G")));
            if let Ok(length) = waiting.read(&mut buffer) {
                answer.extend(&buffer[..length]);
            }
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }

    #[test]
    fn a_page_that_fails_is_an_error_of_the_server() {
        let server = start(Box::new(|| Err("no".to_owned())));
        assert!(ask(server.address(), "/metrics").starts_with("HTTP/1.1 500"));
    }
}
