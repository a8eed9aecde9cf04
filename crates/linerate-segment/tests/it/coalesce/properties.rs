//! Splitting and joining undo each other, and the order of a flow stays, whatever the frames are.

use linerate_segment::coalesce::{Coalescer, Flow, MAX_SEGMENTS, Options, Output};
use linerate_segment::segment::{self, IpId, LinkType, Segments, Split};
use proptest::prelude::*;
use proptest::sample::Index;

use super::build::*;

fn split(packet: &[u8], options: &segment::Options) -> Vec<Vec<u8>> {
    let mut segments = Segments::new(packet, options).expect("what was joined can be split");
    let mut frame = vec![0; segments.max_len()];
    let mut frames = Vec::new();
    while let Some(len) = segments.write_next(&mut frame).expect("the longest fits") {
        frames.push(frame[..len].to_vec());
    }
    frames
}

/// Everything that went in comes out once, as it was, and in an order in which every flow keeps its
/// own. `flows` are the flows of the frames, where their order counts.
fn assert_undone(
    frames: &[Vec<u8>],
    flows: &[Option<usize>],
    out: &[Out],
) -> Result<(), TestCaseError> {
    let mut seen = vec![false; frames.len()];
    let mut last = vec![0; 1 + flows.iter().flatten().max().copied().unwrap_or(0)];
    for out in out {
        let again = match &out.split {
            Some((options, _)) => split(&out.bytes, options),
            None => vec![out.bytes.clone()],
        };
        prop_assert_eq!(again.len(), out.tokens.len());
        for (token, bytes) in out.tokens.iter().zip(&again) {
            let token = *token as usize;
            prop_assert_eq!(bytes, &frames[token], "frame {}", token);
            prop_assert!(!seen[token], "frame {} came twice", token);
            seen[token] = true;
            if let Some(flow) = flows[token] {
                prop_assert!(last[flow] <= token, "frame {} of flow {} was overtaken", token, flow);
                last[flow] = token;
            }
        }
    }
    prop_assert!(seen.iter().all(|seen| *seen), "a frame is missing");
    Ok(())
}

fn tunnels() -> impl Strategy<Value = Option<Tunnel>> {
    prop_oneof![
        3 => Just(None),
        1 => any::<bool>().prop_map(|checksum| Some(Tunnel::Vxlan { checksum })),
        1 => Just(Some(Tunnel::Geneve)),
        1 => any::<(bool, bool)>()
            .prop_map(|(checksum, ethernet)| Some(Tunnel::Gre { checksum, ethernet })),
        1 => Just(Some(Tunnel::Ip)),
    ]
}

prop_compose! {
    fn specs()(
        (ethernet, tags) in (any::<bool>(), prop::collection::vec(0_u16..4095, 0..3)),
        tunnel in tunnels(),
        (outer_v6, v6, udp, df) in any::<(bool, bool, bool, bool)>(),
        (outer_id, id, tos, ttl, host) in any::<(u16, u16, u8, u8, u8)>(),
        ports in any::<[u16; 2]>(),
        (sequence, acknowledgement, window) in any::<(u32, u32, u16)>(),
        flags in prop_oneof![Just(ACK), any::<u8>().prop_map(|bits| ACK | bits & (PSH | FIN | ECE | CWR))],
        options in (0_usize..=10).prop_flat_map(|words| prop::collection::vec(any::<u8>(), words * 4)),
    ) -> Spec {
        // Those ports mean tunnels.
        let port = if matches!(ports[1], 2152 | 4789 | 6080 | 6081) { 53 } else { ports[1] };
        Spec {
            ethernet, tags: if ethernet { tags } else { vec![] }, tunnel, outer_v6, outer_id, v6, id, df,
            tos, ttl, host, udp, ports: [ports[0], port], sequence, acknowledgement, flags, window, options,
        }
    }
}

fn options_for(spec: &Spec) -> Options {
    let link = if spec.ethernet { LinkType::Ethernet } else { LinkType::Ip };
    Options { link, ..Options::default() }
}

/// What happens to a frame of a stream.
#[derive(Clone, Debug)]
enum Fate {
    /// It is the next of its flow.
    Next { len: usize, flags: u8, id_step: u16 },
    /// An acknowledgement.
    Empty,
    /// It is lost, and the next one comes.
    Lost { len: usize },
    /// It came before.
    Again { back: usize },
    /// A byte is changed.
    Flipped { len: usize, at: Index, bits: u8 },
    /// It is cut short, or something stands behind it.
    Length { len: usize, change: i8 },
    /// It has no UDP checksum, or another acknowledgement number.
    Other { len: usize },
}

fn fates() -> impl Strategy<Value = Fate> {
    let len = || prop_oneof![8 => Just(500_usize), 1 => 1_usize..700];
    prop_oneof![
        12 => (len(), prop_oneof![6 => Just(0), 1 => any::<u8>()], prop_oneof![9 => Just(1), 1 => 0_u16..3])
            .prop_map(|(len, flags, id_step)| Fate::Next { len, flags, id_step }),
        1 => Just(Fate::Empty),
        1 => len().prop_map(|len| Fate::Lost { len }),
        1 => (0_usize..900).prop_map(|back| Fate::Again { back }),
        2 => (len(), any::<Index>(), 1_u8..).prop_map(|(len, at, bits)| Fate::Flipped { len, at, bits }),
        1 => (len(), any::<i8>()).prop_map(|(len, change)| Fate::Length { len, change }),
        1 => len().prop_map(|len| Fate::Other { len }),
    ]
}

/// The frame that `fate` makes of a flow's state, and whether it surely stays in its flow.
fn play(spec: &mut Spec, fate: &Fate) -> Option<(Vec<u8>, bool)> {
    let step = |spec: &mut Spec, len: usize, id_step: u16| {
        let frame = spec.build(&bytes(len));
        *spec = spec.after(len, id_step);
        frame
    };
    Some(match fate {
        Fate::Next { len, flags, id_step } => {
            let before = spec.flags;
            spec.flags ^= flags;
            let frame = step(spec, *len, *id_step);
            spec.flags = before;
            (frame, true)
        }
        Fate::Empty => (step(spec, 0, 1), true),
        Fate::Lost { len } => {
            step(spec, *len, 1);
            return None;
        }
        Fate::Again { back } => {
            let earlier =
                Spec { sequence: spec.sequence.wrapping_sub(*back as u32), ..spec.clone() };
            (earlier.build(&bytes(500)), true)
        }
        Fate::Flipped { len, at, bits } => {
            let mut frame = step(spec, *len, 1);
            let at = at.index(frame.len());
            frame[at] ^= bits;
            // A changed payload leaves the flow as it is; another byte may make it another flow.
            (frame, at >= spec.header_len())
        }
        Fate::Length { len, change } => {
            let mut frame = step(spec, *len, 1);
            frame.resize(frame.len().saturating_add_signed(isize::from(*change)), 0);
            // A short one may have lost its addresses.
            (frame, *change >= 0)
        }
        Fate::Other { len } => {
            spec.acknowledgement = spec.acknowledgement.wrapping_add(1);
            let mut frame = step(spec, *len, 1);
            if spec.udp {
                let at = spec.header_len() - 2;
                put(&mut frame, at, 0);
            }
            (frame, true)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn joining_undoes_splitting(
        // A segment with CWR stays alone.
        spec in specs().prop_map(|spec| Spec { flags: spec.flags & !CWR, ..spec }),
        len in 1_usize..65_000,
        size in 1_usize..2000,
        fixed in any::<[bool; 2]>(),
    ) {
        let size = size.max(len.div_ceil(MAX_SEGMENTS));
        let len = len.min(65_535 - spec.header_len());
        let packet = spec.build(&bytes(len));
        let id = |fixed| if fixed && spec.df { IpId::Fixed } else { IpId::Increment };
        let into = match spec.udp {
            true => Split::Udp { size: size as u16 },
            false => Split::Tcp { mss: size as u16 },
        };
        let joining = options_for(&spec);
        let splitting = segment::Options {
            link: joining.link,
            outer_id: id(fixed[0]),
            inner_id: id(fixed[1]),
            ..segment::Options::new(into)
        };
        let frames = split(&packet, &splitting);
        prop_assert_eq!(frames.len(), len.div_ceil(size));
        let out = coalesce(&frames, &joining, 4);
        prop_assert_eq!(out.len(), 1);
        prop_assert_eq!(&out[0].bytes, &packet);
        if let Some((options, _)) = &out[0].split {
            prop_assert_eq!(options.split, into);
            assert_undone(&frames, &vec![Some(0); frames.len()], &out)?;
        }
    }

    #[test]
    fn splitting_undoes_joining(
        specs in prop::collection::vec(specs(), 1..5),
        fates in prop::collection::vec((any::<Index>(), fates(), 0_u64..30), 1..120),
        flows in 0_usize..6,
        hold in 1_u64..400,
        (max_len, max_segments) in (prop_oneof![Just(u16::MAX), any::<u16>()], 0_u16..200),
    ) {
        // One link for all, and no other flow.
        let mut specs: Vec<_> = specs
            .iter()
            .enumerate()
            .map(|(at, spec)| {
                let (ethernet, tags) = (specs[0].ethernet, specs[0].tags.clone());
                Spec { ethernet, tags, ports: [at as u16, 80], ..spec.clone() }
            })
            .collect();
        let options = Options { max_len, max_segments, ..options_for(&specs[0]) };
        let mut frames = Vec::new();
        let mut owners = Vec::new();
        let mut times = Vec::new();
        let mut now = 0;
        for (at, fate, pause) in &fates {
            let flow = at.index(specs.len());
            now += pause;
            if let Some((frame, surely)) = play(&mut specs[flow], fate) {
                frames.push(frame);
                owners.push(surely.then_some(flow));
                times.push(now);
            }
        }
        let mut coalescer = Coalescer::new(vec![Flow::default(); flows], &options);
        let mut out = Vec::new();
        for (token, frame) in frames.iter().enumerate() {
            let mut sink = |output: Output<'_>| record(&mut out, &frames, output);
            let now = times[token];
            coalescer.flush_before(now.saturating_sub(hold), &mut sink);
            coalescer.push(frame, token as u64, now, &mut sink);
            prop_assert!(coalescer.oldest().is_none_or(|oldest| oldest + hold > now || now < hold));
        }
        coalescer.flush_all(&mut |output: Output<'_>| record(&mut out, &frames, output));
        assert_undone(&frames, &owners, &out)?;
        let within = |out: &Out| out.split.is_none() || out.tokens.len() <= usize::from(max_segments);
        prop_assert!(out.iter().all(within));
    }

    #[test]
    fn any_bytes_come_out_as_they_went_in(
        spec in specs(),
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20),
        link in prop_oneof![Just(LinkType::Ethernet), Just(LinkType::Ip)],
    ) {
        // Behind something that is nearly a frame.
        let start = spec.build(&[]);
        let frames: Vec<_> = frames
            .into_iter()
            .map(|bytes| [&start[..start.len().min(bytes.len() / 3)], &bytes].concat())
            .collect();
        let out = coalesce(&frames, &Options { link, ..Options::default() }, 3);
        assert_undone(&frames, &vec![None; frames.len()], &out)?;
    }
}
