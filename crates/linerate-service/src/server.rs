//! [`Server`]: an HTTP server that only answers GET.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use tokio::sync::oneshot;

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
pub(crate) struct Route {
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
        routes: Vec<Route>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_io().enable_time().build()?;
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            // A response in progress does not delay the end: dropping the runtime closes its connection.
            tokio::select! {
                result = axum::serve(listener, router(routes)) => result,
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

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("path", &self.path).finish_non_exhaustive()
    }
}

fn router(routes: Vec<Route>) -> Router {
    routes.into_iter().fold(Router::new(), |router, Route { path, content_type, body }| {
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

    use super::*;

    pub(crate) fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn start(body: Box<Body>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let route = Route { path: "/metrics", content_type: OPEN_METRICS, body };
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
    fn a_page_that_fails_is_an_error_of_the_server() {
        let server = start(Box::new(|| Err("no".to_owned())));
        assert!(ask(server.address(), "/metrics").starts_with("HTTP/1.1 500"));
    }
}
