//! Programs as they are: each message is answered once, in order, with and without the library.

use std::path::Path;

use linerate_testkit::{Command, Namespace, Process, print_skipped, root_or_skip};

use crate::cases::{library, text};

/// Echoes: a library of events, and one that changes from reading to waiting itself.
const ASYNCIO: &str = r#"
import asyncio
class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport): self.transport = transport
    def datagram_received(self, data, address): self.transport.sendto(data, address)
async def main():
    await asyncio.get_running_loop().create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 7000))
    print("ready", flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"#;

const JAVA: &str = r#"
import java.net.*; import java.nio.*; import java.nio.channels.*;
public class Echo { public static void main(String[] none) throws Exception {
    Selector selector = Selector.open();
    DatagramChannel channel = DatagramChannel.open(StandardProtocolFamily.INET);
    channel.bind(new InetSocketAddress("127.0.0.1", 7000));
    channel.configureBlocking(false);
    channel.register(selector, SelectionKey.OP_READ);
    ByteBuffer buffer = ByteBuffer.allocateDirect(2048);
    System.out.println("ready");
    for (;;) {
        selector.select();
        selector.selectedKeys().clear();
        buffer.clear();
        SocketAddress from = channel.receive(buffer);
        if (from != null) { buffer.flip(); channel.send(buffer, from); }
    } } }
"#;

const CLIENT: &str = r#"
import socket
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.connect(("127.0.0.1", 7000))
client.settimeout(60)
number = wrong = 0
for turn in range(200):
    sent = [b"%d:" % (number + index) + b"x" * ((number + index) % 300) for index in range(40)]
    number += 40
    for message in sent: client.send(message)
    for message in sent: wrong += client.recv(2000) != message
print("wrong", wrong)
"#;

fn with_library(mut command: Command, library: Option<&Path>) -> Command {
    if let Some(library) = library {
        command.env("LD_PRELOAD", library).env("LINERATE_LOG", "1");
    }
    command
}

fn is_installed(program: &str, option: &str) -> bool {
    std::process::Command::new(program).arg(option).output().is_ok()
}

fn echoes(test: &str, program: &str, arguments: &[&str]) {
    if !is_installed(program, "--version") {
        return print_skipped(test, &format!("no {program}"));
    }
    for library in [None, Some(library())] {
        let namespace = Namespace::create("echo").unwrap();
        namespace.interface("lo").unwrap().up().unwrap();
        let mut command = with_library(namespace.command(program), library.as_deref());
        let mut server = Process::start(command.args(arguments));
        server.until("ready");
        let mut client = with_library(namespace.command("python3"), library.as_deref());
        let output = client.args(["-c", CLIENT]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(text(&output.stdout), "wrong 0\n", "{said}");
        assert!(library.is_none() || said.contains("were read ahead"), "{said}");
    }
}

#[test]
fn asyncio_answers_every_message_in_order() {
    root_or_skip!();
    echoes("asyncio_answers_every_message_in_order", "python3", &["-c", ASYNCIO]);
}

#[test]
fn a_java_program_answers_every_message_in_order() {
    root_or_skip!();
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("Echo.java");
    std::fs::write(&source, JAVA).unwrap();
    let test = "a_java_program_answers_every_message_in_order";
    echoes(test, "java", &[source.to_str().unwrap()]);
}

#[test]
fn dnsmasq_answers_every_question() {
    root_or_skip!();
    let test = "dnsmasq_answers_every_question";
    if !is_installed("dnsmasq", "--version") || !is_installed("dnsperf", "-h") {
        return print_skipped(test, "no dnsmasq or no dnsperf");
    }
    let folder = tempfile::tempdir().unwrap();
    let questions = folder.path().join("questions");
    std::fs::write(&questions, "a.example.com A\nb.example.com A\n").unwrap();
    for library in [None, Some(library())] {
        let namespace = Namespace::create("dns").unwrap();
        namespace.interface("lo").unwrap().up().unwrap();
        let mut command = with_library(namespace.command("dnsmasq"), library.as_deref());
        command.args(["-k", "-C", "/dev/null", "-p", "5300", "-R", "-H", "/dev/null", "-x"]);
        command.arg(folder.path().join("pid"));
        command.args(["--log-facility=-", "--address=/example.com/10.1.2.3"]);
        let mut server = Process::start(&mut command);
        server.until("started");
        let mut client = with_library(namespace.command("dnsperf"), library.as_deref());
        client.args(["-s", "127.0.0.1", "-p", "5300", "-n", "10000", "-c", "8", "-t", "60", "-d"]);
        let output = client.arg(&questions).output().unwrap();
        let printed = text(&output.stdout);
        for wanted in ["Queries completed:    20000 (100.00%)", "NOERROR 20000 (100.00%)"] {
            assert!(printed.contains(wanted), "{printed}{}", text(&output.stderr));
        }
        assert!(!printed.contains("Unexpected"), "{printed}");
    }
}
