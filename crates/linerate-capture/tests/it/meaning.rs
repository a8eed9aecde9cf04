//! An expression means on every source what it means for libpcap on a live interface.

#[path = "../../../linerate-bpf/tests/it/filter/corpus.rs"]
#[allow(dead_code, reason = "only whole frames arrive")]
mod corpus;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_capture::filter::{ETHERNET, Filter, FilterLocation};
use linerate_capture::source::{OpenInterface, Source, SourceKind, SourceOptions};
use linerate_ring::{Delivery, Drained, Frame, Ring as _, TraceEvent};
use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip, skip};

const SNAPLEN: u32 = 4096;
/// Expressions that are tried at the same time, each on an interface of its own.
const CABLES: usize = 8;
/// How long to wait for frames that should come.
const PATIENCE: Duration = Duration::from_secs(10);

/// An expression, and what it means in the words of libpcap.
type Expression = (String, String);

/// Every third expression of the translator's corpus, all that speak of tags or of places near them, and those that look
/// addresses up in the files of `folder`.
fn expressions(folder: &Path) -> Vec<Expression> {
    let all = include_str!("../../../linerate-bpf/tests/it/filter/expressions.txt").lines();
    let all = all.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let thorough = std::env::var_os("LINERATE_THOROUGH").is_some();
    let near = ["vlan", "ether[", "not ", "len", "greater", "less", "protochain"];
    let chosen = all.enumerate().filter(|(number, text)| {
        thorough || number % 3 == 0 || near.iter().any(|word| text.contains(word))
    });
    chosen
        .map(|(_, text)| text)
        .chain(["inbound", "inbound and udp", "outbound", "ether[10:4] = 0x01080045 or vlan 5"])
        .map(|text| (text.to_owned(), text.to_owned()))
        .chain(look_ups(folder))
        .collect()
}

/// Expressions that look addresses up in files. libpcap gets all members.
fn look_ups(folder: &Path) -> impl Iterator<Item = Expression> {
    let files = [
        ("hosts", vec!["192.0.2.1", "203.0.113.9", "2001:db8::2", "2001:db8::77"]),
        ("others", vec!["192.0.2.2", "198.51.100.7", "2001:db8::1"]),
        (
            "nets",
            vec!["192.0.2.0/31", "198.51.0.0/16", "198.51.100.0/24", "2001:db8::2/127", "10.1.2.3"],
        ),
    ];
    let files = files.map(|(name, members)| {
        let path = folder.join(name);
        std::fs::write(&path, format!("# of a test\n\n{}\n", members.join("\n"))).unwrap();
        (name, path, members)
    });
    let texts = [
        "host in @hosts",
        "udp and src host in @hosts",
        "not dst host in @hosts",
        "(src or dst host in @hosts) and src host in @others",
        "src and dst host in @hosts or tcp port 80",
        "ip6 host in @hosts",
        "arp host in @others or not (ip dst host in @hosts)",
        "net in @nets",
        "dst net in @nets and not host in @hosts",
        "vlan and host in @others",
        "len > 70 and not src net in @nets",
        "vlan 5 and src net in @nets or host in @hosts",
    ];
    texts.into_iter().map(move |text| {
        let (mut ours, mut theirs) = (text.to_owned(), text.to_owned());
        for (name, path, members) in &files {
            ours = ours.replace(&format!("@{name}"), &format!("@{}", path.display()));
            for kind in
                ["src or dst host", "src and dst host", "src host", "ip dst host", "ip6 host"]
                    .into_iter()
                    .chain(["dst host", "arp host", "host", "src net", "dst net", "net"])
            {
                let fits = |member: &&&str| match kind.split(' ').next() {
                    Some("ip" | "arp") => !member.contains(':'),
                    Some("ip6") => member.contains(':'),
                    _ => true,
                };
                let each: Vec<_> =
                    members.iter().filter(fits).map(|member| format!("{kind} {member}")).collect();
                theirs = theirs
                    .replace(&format!("{kind} in @{name}"), &format!("({})", each.join(" or ")));
            }
        }
        (ours, theirs)
    })
}

/// Frames of the corpus, each without and with tags.
fn frames() -> Vec<Vec<u8>> {
    let tags: [&[u8]; 6] = [
        &[],
        &[0x81, 0, 0, 5],
        &[0x88, 0xa8, 0x20, 6],
        &[0x81, 0, 0xe0, 0],
        &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6],
        &[0x91, 0, 0, 5],
    ];
    let whole = corpus::whole(1000);
    let few = whole.iter().step_by(5).filter(|frame| (18..1500).contains(&frame.len()));
    few.flat_map(|frame| {
        tags.map(|tag| {
            let mut tagged = [&frame[..12], tag, &frame[12..]].concat();
            // Shorter ones are padded on the way.
            tagged.resize(tagged.len().max(60), 0);
            tagged
        })
    })
    .collect()
}

type Handle = pcap::Capture<pcap::Active>;

/// Two hosts and veth pairs between them.
struct Setup {
    far: Arc<Namespace>,
    /// What sends into each veth pair.
    out: Vec<Handle>,
    /// On the peer of each veth pair a handle with the filter, and one without.
    oracle: Vec<[Handle; 2]>,
    _cables: Vec<Veth>,
    _near: Namespace,
}

fn name(cable: usize) -> String {
    format!("far{cable}")
}

impl Setup {
    fn new() -> Self {
        let (near, far) = (Namespace::create("mn").unwrap(), Namespace::create("mf").unwrap());
        for namespace in [&near, &far] {
            namespace.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
        }
        let cable = |number| {
            let (a, b) = (format!("near{number}"), name(number));
            let options = VethOptions { mtu: 2000, ..Default::default() };
            Veth::create(&near, &a, &far, &b, options).unwrap()
        };
        let _cables = (0..CABLES).map(cable).collect();
        let open = |device: &str| {
            let device = pcap::Capture::from_device(device).unwrap().promisc(true);
            let device = device.snaplen(SNAPLEN as i32).immediate_mode(true);
            device.buffer_size(4 << 20).open().unwrap().setnonblock().unwrap()
        };
        let out = || (0..CABLES).map(|cable| open(&format!("near{cable}"))).collect();
        let oracle = || {
            let pair = |cable| [0; 2].map(|_| open(&name(cable)));
            (0..CABLES).map(pair).collect::<Vec<_>>()
        };
        let (out, oracle) = (near.run(out).unwrap(), far.run(oracle).unwrap());
        Self { far: Arc::new(far), out, oracle, _cables, _near: near }
    }

    /// Sends the frames over the first `cables` veth pairs.
    fn send(&mut self, cables: usize, frames: &[Vec<u8>]) {
        for out in &mut self.out[..cables] {
            for (number, frame) in frames.iter().enumerate() {
                out.sendpacket(&frame[..]).unwrap();
                if number % 64 == 63 {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        }
    }

    /// What libpcap's filters accept, each on an interface of its own.
    fn oracle(&mut self, expressions: &[Expression], frames: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
        for ([filtered, _], (_, expression)) in self.oracle.iter_mut().zip(expressions) {
            filtered.filter(expression, true).unwrap();
        }
        let read = |handle: &mut Handle| {
            let mut got = Vec::new();
            while let Ok(packet) = handle.next_packet() {
                got.push(packet.data.to_vec());
            }
            got
        };
        // libpcap judges the first frame of a filter in user space, where it does not know all metadata: the
        // second time counts.
        let mut accepted = Vec::new();
        for _ in 0..2 {
            self.send(expressions.len(), frames);
            for [_, all] in &mut self.oracle[..expressions.len()] {
                let (start, mut got) = (Instant::now(), 0);
                while got < frames.len() {
                    assert!(start.elapsed() < PATIENCE, "{got} of {} frames came", frames.len());
                    got += read(all).len();
                }
            }
            // The two handles of a veth pair get a frame one right after the other.
            std::thread::sleep(Duration::from_millis(20));
            let filtered = self.oracle[..expressions.len()].iter_mut();
            accepted = filtered.map(|[filtered, _]| read(filtered)).collect();
        }
        accepted
    }
}

fn open(far: &Namespace, cable: usize, options: &SourceOptions) -> OpenInterface {
    far.run(|| OpenInterface::by_name(&name(cable), options)).unwrap().unwrap()
}

/// A frame that a source gave, with what else a filter reads.
struct Got {
    bytes: Vec<u8>,
    tag_beside: Option<bool>,
    /// As it left the XDP program that is traced.
    at_exit: bool,
}

/// Appends what is there.
fn drain(source: &mut Source, got: &mut Vec<Got>) {
    let mut scratch = Vec::new();
    let mut take = |frame: &Frame<'_>| {
        let bytes = frame.contiguous(&mut scratch).to_vec();
        let at_exit = matches!(frame.trace, Some(TraceEvent::XdpExit { .. }));
        got.push(Got { bytes, tag_beside: frame.tag_beside, at_exit });
        true
    };
    while source.drain(&mut take) != Drained::Nothing {}
}

/// What comes until `enough` frames are there, and a little longer.
fn collect(source: &mut Source, enough: usize) -> Vec<Got> {
    let (mut got, start) = (Vec::new(), Instant::now());
    while got.len() < enough && start.elapsed() < PATIENCE {
        let _ = source.wait(Duration::from_millis(50));
        drain(source, &mut got);
    }
    let _ = source.wait(Duration::from_millis(20));
    drain(source, &mut got);
    got
}

/// Does `work` for all items at once, each in a thread of its own.
fn at_once<I: Send, T: Send>(
    items: impl Iterator<Item = I>,
    work: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// How a source is opened.
fn options(source: SourceKind, delivery: Delivery) -> SourceOptions {
    SourceOptions {
        source: Some(source),
        delivery,
        snaplen: SNAPLEN,
        take_over: true,
        buffer: Some(4 << 20),
        block_timeout: Some(Duration::from_millis(10)),
        ..SourceOptions::default()
    }
}

/// An XDP program on each interface, for a trace: it takes all frames, and its ring buffer is soon full.
fn traced(far: &Namespace) -> Vec<OpenInterface> {
    let options = SourceOptions {
        source: Some(SourceKind::Xdp),
        delivery: Delivery::RingBuffer,
        take_over: true,
        buffer: Some(64 << 10),
        ..SourceOptions::default()
    };
    (0..CABLES).map(|cable| open(far, cable, &options)).collect()
}

/// Gives the source of `cable` this filter in the kernel, or none and says why.
fn place(
    open_one: &mut OpenInterface,
    (far, cable, options): (&Namespace, usize, &SourceOptions),
    expression: &str,
    filter: &Filter,
) -> Result<(), String> {
    let set = |source: &mut Source, user: bool, reason: String| {
        let set = source.set_filter(Some(filter.program()));
        assert_eq!(set.is_err(), user, "`{expression}`: {reason}, {set:?}");
        if !user {
            return Ok(());
        }
        source.set_filter(None).unwrap();
        Err(reason)
    };
    match &mut open_one.sources[0] {
        source @ Source::Packet(_) => {
            let placement = filter.place_on_socket(None).unwrap();
            let set = set(source, placement.user, placement.reason);
            if set.is_err() {
                source.set_filter(placement.kernel.as_ref()).unwrap();
            }
            set
        }
        source @ Source::Xdp(_) => {
            let placement = filter.place_in_xdp(None).unwrap();
            set(source, placement.user, placement.reason)
        }
        Source::Trace(_) => {
            let options = SourceOptions { filter: Some(expression.to_owned()), ..options.clone() };
            *open_one = open(far, cable, &options);
            if open_one.filter_in_user { Err(open_one.filter_reason.clone()) } else { Ok(()) }
        }
    }
}

#[test]
fn every_source_gives_the_verdicts_of_a_live_libpcap_handle() {
    root_or_skip!();
    compare(
        Setup::new(),
        &[
            ("packet", options(SourceKind::Packet, Delivery::Auto)),
            ("tee", options(SourceKind::Tee, Delivery::Auto)),
            ("xdp by a ring buffer", options(SourceKind::Xdp, Delivery::RingBuffer)),
            ("xdp by sockets", options(SourceKind::Xdp, Delivery::AfXdp)),
        ],
    );
}

/// A trace, at the entry of an XDP program and at its exit. Some kernels refuse programs that trace programs.
#[test]
fn a_trace_gives_the_verdicts_of_a_live_libpcap_handle() {
    root_or_skip!();
    let setup = Setup::new();
    let trace = options(SourceKind::Trace, Delivery::Auto);
    let targets = traced(&setup.far);
    let probed = setup.far.run(|| OpenInterface::by_name(&name(0), &trace)).unwrap();
    if let Some(error) = probed.err().map(|error| error.to_string())
        && error.contains("by a security policy")
    {
        skip!(&error);
    }
    drop(targets);
    compare(setup, &[("trace", trace)]);
}

/// Compares the verdicts of sources, in the kernel and in user space, with those of libpcap.
fn compare(mut setup: Setup, sources: &[(&str, SourceOptions)]) {
    let far = Arc::clone(&setup.far);
    let folder = tempfile::tempdir().unwrap();
    let (expressions, frames) = (expressions(folder.path()), frames());
    let expected: Vec<_> =
        expressions.chunks(CABLES).flat_map(|some| setup.oracle(some, &frames)).collect();
    let compile =
        |(text, _): &Expression| Filter::compile_live(&name(0), text, ETHERNET, SNAPLEN).unwrap();
    let filters: Vec<_> = far.run(|| expressions.iter().map(compile).collect()).unwrap();
    // Their sockets would cost every frame of the captures time.
    setup.oracle.clear();
    let mut differences = Vec::new();
    let mut judge =
        |who: &str, side: FilterLocation, expression: &str, got: &[&[u8]], expected: &[Vec<u8>]| {
            if got != expected {
                let counts = (got.len(), expected.len());
                differences.push(format!("`{expression}` by {who} in {side}: {counts:?}"));
            }
        };
    let (mut verdicts, mut in_user) = (0, Vec::new());
    for (who, options) in sources {
        let traces = options.source == Some(SourceKind::Trace);
        let _traced = traces.then(|| traced(&far));
        // A trace gives each frame twice.
        let points: &[bool] = if traces { &[false, true] } else { &[false] };
        let at = |at_exit: bool| move |got: &&Got| got.at_exit == at_exit;
        // In user space: all frames once, as the source gives them.
        let mut source = open(&far, 0, options);
        setup.send(1, &frames);
        let all = collect(&mut source.sources[0], points.len() * frames.len());
        assert_eq!(all.len(), points.len() * frames.len(), "{who} without a filter");
        drop(source);
        for (((expression, _), filter), expected) in expressions.iter().zip(&filters).zip(&expected)
        {
            let accepted = |got: &&Got| {
                let mut frame = Frame::new(&got.bytes);
                frame.tag_beside = got.tag_beside;
                filter.matches(&frame, &got.bytes)
            };
            for at_exit in points {
                let got = all.iter().filter(at(*at_exit)).filter(accepted);
                let got: Vec<_> = got.map(|got| &got.bytes[..]).collect();
                judge(who, FilterLocation::User, expression, &got, expected);
                verdicts += frames.len();
            }
        }
        // In the kernel.
        let mut opened = at_once(0..CABLES, |cable| open(&far, cable, options));
        let all: Vec<_> = expressions.iter().zip(&filters).collect();
        for (some, expected) in all.chunks(CABLES).zip(expected.chunks(CABLES)) {
            let each = opened.iter_mut().zip(some).enumerate();
            let placed = at_once(each, |(cable, (open, ((expression, _), filter)))| {
                let mut late = Vec::new();
                drain(&mut open.sources[0], &mut late);
                assert_eq!(late.len(), 0, "{who}: after the frames that were expected before");
                place(open, (&far, cable, options), expression, filter)
            });
            setup.send(some.len(), &frames);
            let got = at_once(
                opened.iter_mut().zip(expected).zip(&placed),
                |((open, expected), placed)| {
                    let enough = if placed.is_ok() { expected.len() } else { frames.len() };
                    collect(&mut open.sources[0], points.len() * enough)
                },
            );
            for (((got, placed), expected), ((expression, _), _)) in
                got.iter().zip(placed).zip(expected).zip(some)
            {
                if let Err(reason) = placed {
                    in_user.push(format!("`{expression}` by {who}: {reason}"));
                    continue;
                }
                for at_exit in points {
                    let got = got.iter().filter(at(*at_exit)).map(|got| &got.bytes[..]);
                    let got: Vec<_> = got.collect();
                    judge(who, FilterLocation::Kernel, expression, &got, expected);
                    verdicts += frames.len();
                }
            }
        }
    }
    println!("in user space only: {in_user:#?}");
    println!(
        "{} expressions on {} frames, tagged and untagged: {verdicts} verdicts of {:?} on 2 sides, {} \
         differences; {} programs run in user space only",
        expressions.len(),
        frames.len(),
        sources.iter().map(|(who, _)| *who).collect::<Vec<_>>(),
        differences.len(),
        in_user.len()
    );
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(expressions.len() >= 200 && frames.len() >= 200);
}
