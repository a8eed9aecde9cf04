use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
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
    let hosts = "127.0.0.1 localhost\n10.0.0.1\trouter.example.net router # old.example\n#::1 no\n";
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

#[test]
fn a_client_that_sends_no_more_gets_its_answer() {
    // Longer than one write.
    let length = 4 << 20;
    let server = start(Box::new(move || Ok("x".repeat(length))));
    for _ in 0..20 {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        ask_for(&mut stream, "localhost", "/metrics");
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("xx"), "{}", answer.len());
        assert!(answer.len() > length, "{}", answer.len());
    }
    // Half a request is none.
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET /met").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0; 64]).unwrap_or_default(), 0);
}

#[test]
fn idle_connections_stay_until_the_limit_is_reached() {
    let server = start(Box::new(|| Ok("yes".to_owned())));
    let connect = || {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let is_open = |mut stream: &TcpStream| stream.read(&mut [0; 1024]).is_err();
    let mut streams: Vec<_> = (1..MAX_CONNECTIONS).map(|_| connect()).collect();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(streams.iter().filter(|stream| is_open(stream)).count(), MAX_CONNECTIONS - 1);
    streams.push(connect());
    std::thread::sleep(Duration::from_millis(2500));
    assert!(!streams.iter().all(is_open), "one makes way for the next");
}
