//! `--web`: a page with live charts, in a browser, while packets flow.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use linerate_testkit::{Namespace, Process, TIMEOUT, browser, root_or_skip, skip, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::LINERATE;
use crate::capture::support::Cable;
use crate::forward::support::Net;
use crate::json::schema::check;
use crate::metrics::get;

/// How long a page is open before it is measured.
const OPEN: Duration = Duration::from_millis(4500);

/// What the page shows, after it was drawn once and at the end.
const WATCH: &str = "<script>
const seen = () => [...document.querySelectorAll('.chart .line')].map(line => line.getAttribute('d')).join();
const first = setInterval(() => { if (seen()) { document.body.dataset.first = seen(); clearInterval(first); } }, 50);
onload = () => { document.body.dataset.moved = document.body.dataset.first !== seen(); };
</script>";

/// Stands between the browser and the verb at port 9820 of its namespace: it adds what measures the page, and ends the
/// loading of a page after some time, when the browser shows what it has.
struct Proxy {
    address: String,
    stopped: &'static AtomicBool,
}

impl Proxy {
    fn start(namespace: &Namespace) -> Self {
        let listener = namespace.run(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let stopped: &'static AtomicBool = Box::leak(Box::default());
        let page = get(namespace, 9820, "/");
        let upstream = move || TcpStream::connect("127.0.0.1:9820");
        // The thread of the listener is in the namespace for its connections upstream.
        let run = move || {
            for client in listener.incoming() {
                if stopped.load(Relaxed) {
                    return;
                }
                let (client, page) = (client.unwrap(), page.clone());
                thread::spawn(move || answer(client, &page, upstream));
            }
        };
        namespace.run(|| drop(thread::spawn(run))).unwrap();
        Self { address, stopped }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stopped.store(true, Relaxed);
    }
}

fn answer(
    mut client: TcpStream,
    page: &str,
    upstream: impl Fn() -> std::io::Result<TcpStream>,
) -> Option<()> {
    let mut request = [0; 4096];
    let len = client.read(&mut request).ok()?;
    let request = String::from_utf8_lossy(&request[..len]).into_owned();
    let path = request.split(' ').nth(1)?;
    let (kind, body) = match path {
        "/data.json" => {
            let mut stream = upstream().ok()?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                .ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            client.write_all(text.as_bytes()).ok()?;
            return Some(());
        }
        "/wait" => {
            thread::sleep(OPEN);
            ("image/svg+xml", "<svg xmlns='http://www.w3.org/2000/svg'/>".to_owned())
        }
        "/page" => (
            "text/html",
            page.replace("</body>", &format!("{WATCH}<img alt='' src='/wait'></body>")),
        ),
        frame => {
            ("text/html", browser::frame("src=\"/page\"", frame.strip_prefix('/')?.parse().ok()?))
        }
    };
    let len = body.len();
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {len}");
    client.write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes()).ok()
}

/// Opens the page of the verb in a namespace at desktop and phone width, light and dark, while `traffic` runs.
fn hold(namespace: &Namespace, charts: usize, traffic: impl Fn() + Sync) {
    // As the verb serves it, with its Content-Security-Policy: no error on the console.
    let direct = || browser::dump("http://127.0.0.1:9820/", false, &["--virtual-time-budget=1500"]);
    let dom = namespace.run(direct).unwrap();
    assert!(dom.contains("data-samples=") && dom.contains(">live</span>"), "{dom}");
    let proxy = Proxy::start(namespace);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                traffic();
            }
        });
        // The scope waits for its thread after a failed assertion, too.
        let _end = SetOnDrop(&done);
        for (width, dark) in [(1280, false), (390, true)] {
            let open = |path: &str| {
                let url = format!("{}/{path}", proxy.address);
                namespace.run(|| browser::dump(&url, dark, &[])).unwrap()
            };
            let shown = browser::shown(&open(&width.to_string()));
            shown.hold(dark);
            assert_eq!(shown.drawings.len(), charts, "{shown:?}");
            let dom = open("page");
            assert!(dom.contains("data-moved=\"true\""), "{dom}");
        }
    });
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The page refers to nothing outside of its server, and nothing there changes anything.
fn is_alone(namespace: &Namespace) {
    let page = get(namespace, 9820, "/");
    let outside = page.replace("http://www.w3.org/2000/svg", "");
    for forbidden in ["http://", "https://", "src=", "@import", "url(", "//"] {
        let found = outside
            .lines()
            .find(|line| line.contains(forbidden) && !line.trim_start().starts_with("//"));
        assert!(found.is_none(), "{found:?}");
    }
    let ask = || {
        let mut stream = TcpStream::connect("127.0.0.1:9820").unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(
            stream,
            "POST /data.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let refused = namespace.run(ask).unwrap();
    assert!(refused.starts_with("HTTP/1.1 405"), "{refused}");
}

fn data(namespace: &Namespace) -> Value {
    let object: Value = serde_json::from_str(&get(namespace, 9820, "/data.json")).unwrap();
    if !object.is_null() {
        check(&object);
    }
    object
}

#[test]
fn a_capture_shows_live_charts() {
    root_or_skip!();
    let cable = Cable::with_queues(2);
    let line = "capture -i far --source tee --discard --web 9820 --metrics 9820 udp port 5000";
    let mut capture = Process::start(cable.far.command(LINERATE).args(line.split(' ')));
    capture.until("page at http://127.0.0.1:9820/");
    cable.send(300, 100);
    wait_for("the packets in the data", || data(&cable.far)["captured"] == 300);
    assert!(get(&cable.far, 9820, "/metrics").contains("linerate_capture_captured_packets_total"));
    is_alone(&cable.far);
    if !browser::is_installed() {
        skip!("chromium is not installed");
    }
    // Nobody listens on the port, and the kernel says so: no reason to end.
    let socket = cable.near.run(|| UdpSocket::bind("10.9.0.1:4001")).unwrap().unwrap();
    hold(&cable.far, 3, || {
        let _ = socket.send_to(&[0; 100], "10.9.0.2:5000");
        thread::sleep(Duration::from_millis(1));
    });
    let (status, _, printed) = capture.end(Signal::SIGINT);
    assert!(status.success(), "{printed}");
}

#[test]
fn an_accelerator_shows_live_charts() {
    root_or_skip!();
    let net = Net::new();
    let daemon = net.run("--web 127.0.0.1:9820");
    assert_eq!(net.ask(0, 4000, 50), 50);
    wait_for("sessions in the data", || {
        let data = data(&net.router);
        data["sessions"]["active"] == 2 && data["datapaths"]["xdp"]["packets"].as_u64() > Some(0)
    });
    is_alone(&net.router);
    if !browser::is_installed() {
        skip!("chromium is not installed");
    }
    hold(&net.router, 4, || {
        net.ask(0, 4000, 200);
    });
    let (status, _, printed) = daemon.end(Signal::SIGTERM);
    assert!(status.success(), "{printed}");
}
