//! The example in C: compiled without a warning, run plainly, under the address sanitizer and under valgrind,
//! and what it prints compared with what was sent.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};

use crate::building::{compile, compile_sanitized, install, installed, text, under_valgrind};
use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip, test_name, uninterrupted};
use linerate_udp::Backend;

/// Messages that are sent; few enough for any socket's buffer.
const MESSAGES: usize = 200;

fn message(number: usize) -> String {
    format!("message {number} {}", "x".repeat(number % 97))
}

/// Runs the example, sends from `sender` and compares. `to` has port 0, or the one that it is to bind.
fn exchange(mut program: Command, to: SocketAddr, backend: &str, sender: &UdpSocket) {
    program.arg(to.to_string()).arg(MESSAGES.to_string()).arg(backend);
    let mut child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    printed.read_line(&mut first).unwrap();
    let Some(bound) = first.split(' ').nth(2).and_then(|word| word.parse::<SocketAddr>().ok())
    else {
        let mut why = String::new();
        child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
        panic!("{backend}: {first}{why}");
    };
    assert_eq!(first.trim_end().rsplit(' ').next(), Some(backend));
    let from = sender.local_addr().unwrap();
    let mut wanted = String::new();
    for number in 0..MESSAGES {
        let message = message(number);
        sender.send_to(message.as_bytes(), bound).unwrap();
        wanted += &format!("{from} {} {message}\n", message.len());
    }
    wanted += "0 lost, 0 truncated\n";
    let mut rest = String::new();
    printed.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{backend}: {}", text(&output.stderr));
    assert_eq!(rest, wanted, "{backend}");
}

/// All backends of a socket, over the loopback interface.
fn check(test: &str, back_ends: &[Backend], run: impl Fn() -> Command) {
    for &backend in back_ends {
        if let Err(why) = linerate_udp::probe(backend, None) {
            linerate_testkit::print_skipped(&format!("{test} with {backend}"), &why);
            continue;
        }
        for ip in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(sender) = UdpSocket::bind(ip) else {
                linerate_testkit::print_skipped(
                    &format!("{test} over {ip}"),
                    "no such address here",
                );
                continue;
            };
            exchange(run(), ip.parse().unwrap(), backend.name(), &sender);
        }
    }
}

const OF_SOCKETS: [Backend; 3] = [Backend::Recvmmsg, Backend::Gro, Backend::Uring];

#[test]
fn the_example_prints_what_was_sent() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), "udp");
    let program = compile(folder.path(), "receive", "udp", &["-O2"]).unwrap();
    check("the_example_prints_what_was_sent", &OF_SOCKETS, || Command::new(&program));
}

#[test]
fn the_example_prints_what_came_past_the_stack() {
    root_or_skip!();
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), "udp");
    let program = compile(folder.path(), "receive", "udp", &[]).unwrap();
    let (there, here) = (Namespace::create("luctx").unwrap(), Namespace::create("lucrx").unwrap());
    let veth = Veth::create(&there, "tx", &here, "rx", VethOptions::default()).unwrap();
    let [left, right] = ["10.78.0.1", "10.78.0.2"].map(|ip| ip.parse().unwrap());
    veth.a.add_address(left, 24).unwrap();
    veth.b.add_address(right, 24).unwrap();
    veth.b.set_gro(true).unwrap();
    veth.a.add_neighbour(right, veth.b.mac()).unwrap();
    if let Err(why) = here.run(|| linerate_udp::probe(Backend::Xdp, Some("rx"))).unwrap() {
        linerate_testkit::skip!(&why);
    }
    let sender = there.run(|| UdpSocket::bind("10.78.0.1:0").unwrap()).unwrap();
    let to = "10.78.0.2:7000".parse().unwrap();
    here.run(|| exchange(Command::new(&program), to, "xdp", &sender)).unwrap();
    assert!(!veth.b.has_xdp().unwrap(), "a program was left behind");
}

#[test]
fn the_example_is_clean_under_the_address_sanitizer() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), "udp");
    if let Some(program) = compile_sanitized(test_name!(), folder.path(), "receive", "udp") {
        check(test_name!(), &OF_SOCKETS, || Command::new(&program));
    }
}

#[test]
fn the_example_is_clean_under_valgrind() {
    if !installed("valgrind") {
        linerate_testkit::skip!("valgrind is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), "udp");
    let program = compile(folder.path(), "receive", "udp", &["-O1"]).unwrap();
    // Not io_uring, of whose memory valgrind knows nothing.
    check(test_name!(), &OF_SOCKETS[..2], || under_valgrind(&program));
}

#[test]
fn the_echo_server_answers_in_an_epoll_loop() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), "udp");
    let plain = compile(folder.path(), "echo", "udp", &["-O2"]).unwrap();
    let mut programs = vec![plain];
    let other = tempfile::tempdir().unwrap();
    install(other.path(), "udp");
    programs.extend(compile_sanitized(test_name!(), other.path(), "echo", "udp"));
    for (program, backend) in
        programs.iter().flat_map(|program| OF_SOCKETS.map(|backend| (program, backend)))
    {
        if linerate_udp::probe(backend, None).is_err() {
            continue;
        }
        let send_backend = if backend == Backend::Uring { "uring" } else { "sendmmsg" };
        let mut child = Command::new(program)
            .args(["0.0.0.0:0", &MESSAGES.to_string(), backend.name(), send_backend])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        printed.read_line(&mut first).unwrap();
        let port: u16 = first.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a port");
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
        let mut room = [0; 256];
        for number in 0..MESSAGES {
            // From the address that was asked, which is not the one of the route.
            let asked = SocketAddr::from(([127, 0, 0, 7], port));
            peer.send_to(message(number).as_bytes(), asked).unwrap();
            let (len, from) = uninterrupted(|| peer.recv_from(&mut room)).unwrap();
            assert_eq!((text(&room[..len]), from), (message(number), asked), "{backend}");
        }
        let mut rest = String::new();
        printed.read_to_string(&mut rest).unwrap();
        assert!(child.wait().unwrap().success(), "{backend}");
        assert_eq!(rest, format!("{MESSAGES} answered, 0 refused\n"), "{backend}");
    }
}

/// As systemd starts a server: its socket is descriptor 3.
#[test]
fn the_echo_server_takes_a_socket_that_is_bound_already() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), "udp");
    let program = compile(folder.path(), "echo", "udp", &["-O2"]).unwrap();
    for backend in OF_SOCKETS {
        if linerate_udp::probe(backend, None).is_err() {
            continue;
        }
        let bound = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = bound.local_addr().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" nowhere 1 \"$1\" 3<&0"])
            .arg(&program)
            .arg(backend.name())
            .env("LISTEN_FDS", "1")
            .stdin(std::os::fd::OwnedFd::from(bound))
            .spawn()
            .unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
        peer.send_to(b"passed", to).unwrap();
        let mut room = [0; 16];
        let (len, from) = uninterrupted(|| peer.recv_from(&mut room)).unwrap();
        assert_eq!((&room[..len], from), (&b"passed"[..], to), "{backend}");
        assert!(child.wait().unwrap().success(), "{backend}");
    }
}

#[test]
fn the_example_says_why_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), "udp");
    let program = compile(folder.path(), "receive", "udp", &[]).unwrap();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (bind, backend, words) in [
        ("nonsense", "auto", "is not an address and port"),
        ("127.0.0.1:0", "fast", "unknown backend `fast`"),
        ("203.0.113.9:7000", "recvmmsg", "no interface of this network namespace has"),
        (&taken, "recvmmsg", "another socket has the port"),
    ] {
        let output = Command::new(&program).args([bind, "1", backend]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{bind} {backend}");
        let printed = text(&output.stderr);
        assert!(printed.contains(words), "{bind} {backend}: {printed}");
    }
}

#[test]
fn the_header_is_good_for_c_plus_plus_too() {
    crate::building::hold_for_c_plus_plus(
        "the_header_is_good_for_c_plus_plus_too",
        "#include <linerate/udp.h>\nint main() { return linerate_udp_version() == nullptr; }\n",
    );
}
