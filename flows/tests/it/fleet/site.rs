//! A site in namespaces: sensors, their traffic, collectors, Kafka and a cluster of Spark.

use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::thread::JoinHandle;

use linerate_testkit::{
    Command, Exclusive, Namespace, Process, Veth, VethOptions, exclusive, wait_for,
};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::router::Router;
use super::{Fleet, definitions_path, engines};
use crate::ship::Store;

pub(super) const KAFKA: &str = "127.0.0.1:9092";
pub(super) const TOPIC: &str = "flows";
const SPARK: &str = "spark://127.0.0.1:7077";
/// Where programs of a site listen: nfcapd, nfacctd, goflow2.
pub(super) const PORTS: [u16; 3] = [4739, 4740, 4741];

/// A host that captures what arrives at `eth1`, and its link to the site.
pub(super) struct Sensor {
    namespace: Namespace,
    number: u8,
    /// The pair that brings the traffic.
    _tap: Veth,
    _uplink: Veth,
}

pub(super) struct Site {
    fleet: Fleet,
    /// Collectors, Kafka, Spark.
    pub(super) namespace: Namespace,
    traffic: Namespace,
    pub(super) sensors: Vec<Sensor>,
    folder: TempDir,
    _alone: Exclusive,
}

impl Site {
    /// A site with so many sensors. It has the machine to itself.
    pub(super) fn new(fleet: Fleet, sensors: u8) -> Self {
        let alone = exclusive();
        let create = |name| Namespace::create(name).unwrap();
        let (namespace, traffic) = (create("site"), create("traffic"));
        let sensor = |number: u8| {
            let sensor = create("sensor");
            let pair = |a: &Namespace, name: String, b: &Namespace, other| {
                Veth::create(a, &name, b, other, VethOptions::default()).unwrap()
            };
            let tap = pair(&traffic, format!("tap{number}"), &sensor, "eth1");
            let uplink = pair(&namespace, format!("sensor{number}"), &sensor, "eth0");
            let address = |host| IpAddr::from(Ipv4Addr::new(10, 99, number, host));
            uplink.a.add_address(address(1), 24).unwrap();
            uplink.b.add_address(address(2), 24).unwrap();
            Sensor { namespace: sensor, number, _tap: tap, _uplink: uplink }
        };
        let sensors = (0..sensors).map(sensor).collect();
        let folder = tempfile::tempdir().unwrap();
        Self { fleet, namespace, traffic, sensors, folder, _alone: alone }
    }

    /// Where its programs write.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder().join(name).to_str().unwrap().to_owned()
    }

    /// A router that translates, with conntrack's log of its connections.
    pub(super) fn router(&self) -> Router {
        let log = self.folder().join("conntrack.log");
        Router::new(&self.namespace, self.fleet.linerate.clone(), log)
    }

    /// Starts a capture of a sensor: it meters, with these options, into the folder `flows`.
    pub(super) fn capture(&self, sensor: &Sensor, options: &str) -> Process {
        let mut command = sensor.namespace.command_killed_with_parent(&self.fleet.linerate);
        command.args(["capture", "-i", "eth1", "--source", "packet", "--json", "--flows"]);
        command.arg(self.path("flows")).arg("--sensor").arg(format!("s{}", sensor.number));
        // Frames that the interfaces send themselves, such as router solicitations, are not metered.
        command.args(options.split_whitespace()).arg("tcp or udp");
        let mut capture = Process::start(&mut command);
        capture.until("listening on");
        capture
    }

    /// Sends traffic to a sensor with this verb. Returns the JSON that it prints at the end.
    pub(super) fn send(&self, sensor: usize, verb: &str, arguments: &str) -> JoinHandle<Value> {
        let mut command = self.traffic.command(&self.fleet.linerate);
        command.args([verb, "-i", &format!("tap{sensor}"), "--json", "-q"]);
        command.args(arguments.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
        std::thread::spawn(move || {
            let output = command.output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{error}");
            serde_json::from_slice(&output.stdout).unwrap()
        })
    }

    /// A collector with real-time priority: the buffer of its socket has room for tens of messages only.
    fn collector(&self, program: &Path, arguments: &[&str], ready: &str) -> Process {
        let mut command = self.namespace.command_killed_with_parent("chrt");
        command.args(["--fifo", "1"]).arg(program).args(arguments).current_dir(self.folder());
        // nfacctd has processes of its own.
        let mut process = Process::start(command.own_group());
        process.until(ready);
        process
    }

    pub(super) fn nfcapd(&self, folder: &str) -> Process {
        std::fs::create_dir_all(folder).unwrap();
        let port = PORTS[0].to_string();
        let arguments = ["-w", folder, "-p", &port, "-b", "0.0.0.0", "-B", "4000000", "-t", "3600"];
        self.collector("nfcapd".as_ref(), &arguments, "Startup nfcapd")
    }

    /// nfacctd writes its sums to this file when it ends.
    pub(super) fn nfacctd(&self, out: &str) -> Process {
        let text = format!(
            "daemonize: false\nnfacctd_ip: 0.0.0.0\nnfacctd_port: {}\nnfacctd_pipe_size: 4000000\n\
             plugins: print\naggregate: src_host, dst_host, src_port, dst_port, proto, post_nat_src_host, \
             post_nat_src_port, nat_event\n\
             plugin_pipe_size: 400000000\nplugin_buffer_size: 40000\nprint_cache_entries: 999983\n\
             print_output: json\nprint_output_file: {out}\nprint_refresh_time: 86400\n",
            PORTS[1]
        );
        let config = self.path("nfacctd.conf");
        std::fs::write(&config, text).unwrap();
        self.collector("nfacctd".as_ref(), &["-f", &config], "waiting for NetFlow/IPFIX data")
    }

    /// goflow2, with these options for its output. Several workers would mix their lines in a file.
    pub(super) fn goflow2(&self, transport: &str) -> Process {
        let listen = format!("netflow://0.0.0.0:{}?workers=1", PORTS[2]);
        let mapping = definitions_path("goflow2.yaml");
        let mapping = mapping.to_str().unwrap();
        let mut arguments =
            vec!["-listen", &listen, "-addr", "127.0.0.1:8080", "-mapping", mapping];
        arguments.extend(transport.split_whitespace());
        self.collector(&self.fleet.goflow2(), &arguments, "starting collection")
    }

    /// Datagrams that no collector's socket had room for.
    pub(super) fn lost_datagrams(&self) -> u64 {
        self.namespace.snmp_counter("Udp", "RcvbufErrors").unwrap()
    }

    /// A Kafka broker that is also the controller.
    pub(super) fn kafka(&self) -> Process {
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:9093\n\
             listeners=PLAINTEXT://{KAFKA},CONTROLLER://127.0.0.1:9093\n\
             advertised.listeners=PLAINTEXT://{KAFKA}\ncontroller.listener.names=CONTROLLER\n\
             log.dirs={}\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
             group.initial.rebalance.delay.ms=0\n",
            self.path("kafka")
        );
        let config = self.path("kafka.properties");
        std::fs::write(&config, text).unwrap();
        let java = || {
            let mut command = self.namespace.command_killed_with_parent("java");
            command.args(["-Xmx512m", "-cp", &self.fleet.kafka()]);
            command
        };
        let mut format = java();
        format.args(["kafka.tools.StorageTool", "format", "-t", "bGluZXJhdGUtdGVzdC0wMQ"]);
        let output = format.args(["-c", &config]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let process = Process::start(java().args(["kafka.Kafka", &config]));
        self.listens(KAFKA);
        process
    }

    /// An object store that has the files of this folder below `s3://PATH`.
    pub(super) fn store(&self, folder: &str, path: &str) -> Store {
        let data = self.folder().join("store");
        std::fs::create_dir(&data).unwrap();
        let mut store = Store::new(&self.fleet, &data);
        let fill = || {
            store.start();
            store.json(&["flows", "ship", folder, &format!("s3://{path}"), "--json"])
        };
        self.namespace.run(fill).unwrap();
        store
    }

    fn listens(&self, address: &str) {
        let connected = || self.namespace.run(|| TcpStream::connect(address).is_ok()).unwrap();
        wait_for(address, connected);
    }

    /// Spark's master, and two workers.
    pub(super) fn spark(&self) -> Spark {
        let start = |class: &str, arguments: &str| {
            let spark = self.fleet.spark();
            let program = spark.join("bin/spark-class");
            let mut command = self.namespace.command_killed_with_parent(program);
            command.arg(format!("org.apache.spark.deploy.{class}"));
            command.args(["--host", "127.0.0.1"]).args(arguments.split_whitespace());
            command.env("SPARK_HOME", &spark).env("SPARK_LOCAL_IP", "127.0.0.1");
            command.env("SPARK_WORKER_DIR", self.path("spark")).env("SPARK_DAEMON_MEMORY", "256m");
            Process::start(command.current_dir(self.folder()).own_group())
        };
        let mut master = start("master.Master", "--port 7077 --webui-port 8090");
        master.until("I have been elected leader");
        let workers = [8091, 8092].map(|port| {
            let arguments = format!("--cores 1 --memory 1g --webui-port {port} {SPARK}");
            let mut worker = start("worker.Worker", &arguments);
            worker.until("Successfully registered with master");
            worker
        });
        Spark { _master: master, workers }
    }

    /// The command that sends these queries to an engine, in the namespace of the site.
    pub(super) fn query_command(&self, engine: &str, queries: &str, records: u64) -> Command {
        let (program, arguments) = engines::query_command(engine, queries, self.folder());
        let mut command = self.namespace.command_killed_with_parent(self.fleet.python());
        command.arg(program).args(arguments).current_dir(self.folder());
        command.env("LINERATE_SPARK", SPARK).env("SPARK_LOCAL_IP", "127.0.0.1");
        command.env("LINERATE_RECORDS", records.to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The answers of an engine.
    pub(super) fn query(&self, engine: &str, queries: &str, records: u64) -> engines::Answers {
        let output = self.query_command(engine, queries, records).output().unwrap();
        assert!(output.status.success(), "{engine}: {}", String::from_utf8_lossy(&output.stderr));
        engines::parse(&output.stdout)
    }
}

/// A standalone cluster.
pub(super) struct Spark {
    _master: Process,
    workers: [Process; 2],
}

impl Spark {
    /// Kills a worker, and the program that runs the tasks of a query on it.
    pub(super) fn kill_worker(&self) {
        let group = Pid::from_raw(self.workers[0].id().cast_signed());
        killpg(group, Signal::SIGKILL).unwrap();
    }
}
