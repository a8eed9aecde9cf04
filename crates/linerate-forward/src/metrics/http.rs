//! HTTP server for Prometheus; it serves only `GET /metrics`.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use tokio::sync::oneshot;

/// The content type of OpenMetrics 1.0 text.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Builds the response of a scrape, each time.
pub(super) type Page = dyn Fn() -> Result<String, std::fmt::Error> + Send + Sync;

/// A server with one thread of its own, which ends with it.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `address` in the network namespace of the calling thread, and serves from then on.
    pub(super) fn start(address: SocketAddr, page: Arc<Page>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_io().enable_time().build()?;
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            // A scrape in progress does not delay the daemon's end: dropping the runtime closes it.
            tokio::select! {
                result = axum::serve(listener, routes(page)) => result,
                _ = stopped => Ok(()),
            }
        };
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            if let Err(error) = runtime.block_on(serve) {
                tracing::error!(%address, %error, "the metrics are no longer served");
            }
        })?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The listen address, with the port that the kernel chose if 0 was requested.
    pub(super) fn address(&self) -> SocketAddr {
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

fn routes(page: Arc<Page>) -> Router {
    let answer = move || async move {
        match page() {
            Ok(text) => Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text)),
            Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
        }
    };
    Router::new().route("/metrics", get(answer))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn it_answers_until_it_is_dropped() {
        let page: Arc<Page> = Arc::new(|| Ok("linerate_sessions 3\n# EOF\n".to_owned()));
        let server = Server::start("127.0.0.1:0".parse().unwrap(), page).unwrap();
        let address = server.address();
        let answer = ask(address, "/metrics");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains(CONTENT_TYPE), "{answer}");
        assert!(answer.ends_with("linerate_sessions 3\n# EOF\n"), "{answer}");
        assert!(ask(address, "/").starts_with("HTTP/1.1 404"));
        // A client that connects and sends nothing does not delay the end.
        let silent = TcpStream::connect(address).unwrap();
        drop(server);
        assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
        drop(silent);
    }

    #[test]
    fn a_page_that_fails_is_an_error_of_the_server() {
        let server =
            Server::start("127.0.0.1:0".parse().unwrap(), Arc::new(|| Err(std::fmt::Error)));
        let server = server.unwrap();
        assert!(ask(server.address(), "/metrics").starts_with("HTTP/1.1 500"));
    }
}
