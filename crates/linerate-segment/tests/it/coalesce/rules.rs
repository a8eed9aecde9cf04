//! Each rule that ends a flow or keeps a frame out of it.

use linerate_segment::coalesce::FlushReason::{
    self, Checksum, Evicted, Flags, Flushed, Full, Header, LargerSegment, LastSegment, NoPayload,
    Protocol, Sequence, Unmergeable,
};
use linerate_segment::coalesce::{Coalescer, Flow, MAX_SEGMENTS, Options, Output};
use linerate_segment::segment::{Checksums, IpId, LinkType, Split};
use linerate_wire::virtio;

use super::build::*;
use crate::segment::build::checksum;

fn assert_outline(frames: &[Vec<u8>], expected: &[(&[u64], FlushReason)]) {
    let out = outline(frames);
    let out: Vec<_> = out.iter().map(|(tokens, reason)| (&tokens[..], *reason)).collect();
    assert_eq!(out, expected);
}

/// Two frames that follow each other, the second changed by `change`.
fn pair(spec: &Spec, change: impl Fn(&mut Spec)) -> [Vec<u8>; 2] {
    let mut second = spec.after(1000, 1);
    change(&mut second);
    [spec.build(&bytes(1000)), second.build(&bytes(1000))]
}

/// The two frames of [`pair`] do not become one, and the second starts anew.
fn assert_apart(spec: &Spec, reason: FlushReason, change: impl Fn(&mut Spec)) {
    assert_outline(&pair(spec, change), &[(&[0], reason), (&[1], Flushed)]);
}

/// The two frames of [`pair`] become one.
fn assert_joined(spec: &Spec, change: impl Fn(&mut Spec)) {
    let frames = pair(spec, change);
    assert_eq!(outline(&frames).len(), 1);
}

#[test]
fn a_super_packet_is_what_the_sender_could_have_sent() {
    for spec in [Spec::default(), Spec::v6(), Spec { tags: vec![5, 6], ..Spec::default() }] {
        let payload = bytes(10_000);
        let out = coalesce(&spec.stream(&payload, 1448, 1), &Options::default(), 4);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].bytes, spec.build(&payload));
        assert_eq!(out[0].tokens, [0, 1, 2, 3, 4, 5, 6]);
        // The last is shorter.
        assert_eq!(out[0].reason, LastSegment);
        let (split, header) = out[0].split.unwrap();
        assert_eq!(split.split, Split::Tcp { mss: 1448 });
        let kind = if spec.v6 { virtio::GsoType::TCPV6 } else { virtio::GsoType::TCPV4 };
        let header = header.unwrap();
        assert_eq!((header.gso_type, header.gso_size), (kind, 1448));
        assert_eq!(header.flags, virtio::Flags::DATA_VALID);
        assert_eq!(usize::from(header.hdr_len), spec.header_len());
    }
}

#[test]
fn datagrams_of_one_size_become_one() {
    for spec in [Spec::udp(), Spec { v6: true, ..Spec::udp() }] {
        let payload = bytes(5_001);
        let out = coalesce(&spec.stream(&payload, 1001, 1), &Options::default(), 4);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].bytes, spec.build(&payload));
        let (split, header) = out[0].split.unwrap();
        assert_eq!(split.split, Split::Udp { size: 1001 });
        assert_eq!(header.unwrap().gso_type, virtio::GsoType::UDP_L4);
    }
}

#[test]
fn tunnels_are_looked_into() {
    for tunnel in [
        Tunnel::Vxlan { checksum: false },
        Tunnel::Vxlan { checksum: true },
        Tunnel::Geneve,
        Tunnel::Gre { checksum: false, ethernet: false },
        Tunnel::Gre { checksum: true, ethernet: true },
        Tunnel::Ip,
    ] {
        for (outer_v6, v6, udp) in
            [(false, false, false), (true, false, true), (false, true, true), (true, true, false)]
        {
            let spec = Spec { tunnel: Some(tunnel), outer_v6, v6, udp, ..Spec::default() };
            let payload = bytes(4_000);
            let out = coalesce(&spec.stream(&payload, 999, 1), &Options::default(), 4);
            assert_eq!(out.len(), 1, "{tunnel:?} {outer_v6} {v6} {udp}");
            assert_eq!(out[0].bytes, spec.build(&payload), "{tunnel:?} {outer_v6} {v6} {udp}");
            assert_eq!(out[0].split.unwrap().1, None);
        }
    }
}

#[test]
fn frames_behind_a_header_with_a_length_pass() {
    let within = |frame: Vec<u8>| {
        let len = ((frame.len() - 12) as u16).to_be_bytes();
        let pppoe = [0x88, 0x64, 0x11, 0, 0, 9, len[0], len[1], 0, 0x21];
        [&frame[..12], &pppoe, &frame[14..]].concat()
    };
    let frames: Vec<_> =
        Spec::default().stream(&bytes(3000), 1000, 1).into_iter().map(within).collect();
    let out = coalesce(&frames, &Options::default(), 4);
    assert_eq!((out.len(), out.iter().all(|out| out.reason == Protocol)), (3, true));
}

#[test]
fn another_tunnel_is_another_flow() {
    let spec = Spec { tunnel: Some(Tunnel::Geneve), ..Spec::default() };
    let mut frames = spec.stream(&bytes(3000), 1000, 1);
    let mut other = frames[1].clone();
    // The network identifier, behind Ethernet, IPv4 and UDP headers.
    other[14 + 20 + 8 + 6] ^= 1;
    frames.insert(1, other);
    assert_outline(&frames, &[(&[0, 2, 3], Flushed), (&[1], Flushed)]);
}

#[test]
fn a_tunnel_checksum_is_there_in_all_or_in_none() {
    let plain = Spec { tunnel: Some(Tunnel::Vxlan { checksum: false }), ..Spec::default() };
    let summed = Some(Tunnel::Vxlan { checksum: true });
    assert_apart(&plain, Header, |next| next.tunnel = summed);
    let plain_tunnel = plain.tunnel;
    let summed = Spec { tunnel: summed, ..plain };
    assert_apart(&summed, Header, |next| next.tunnel = plain_tunnel);
}

#[test]
fn tunnels_pass_where_they_are_not_asked_for() {
    let spec = Spec { tunnel: Some(Tunnel::Ip), ..Spec::default() };
    let frames = spec.stream(&bytes(3000), 1000, 1);
    let options = Options { tunnels: false, ..Options::default() };
    let out = coalesce(&frames, &options, 4);
    assert!(out.iter().all(|out| out.reason == Protocol));
    assert_eq!(out.len(), 3);
}

#[test]
fn a_protocol_can_be_left_out() {
    for (spec, options) in [
        (Spec::udp(), Options { udp: false, ..Options::default() }),
        (Spec::default(), Options { tcp: false, ..Options::default() }),
    ] {
        let out = coalesce(&spec.stream(&bytes(3000), 1000, 1), &options, 4);
        assert!(out.iter().all(|out| out.reason == Protocol));
        assert_eq!(out.len(), 3);
    }
}

#[test]
fn packets_without_a_link_header() {
    let spec = Spec { ethernet: false, ..Spec::default() };
    let options = Options { link: LinkType::Ip, ..Options::default() };
    let out = coalesce(&spec.stream(&bytes(3000), 1000, 1), &options, 4);
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].bytes, spec.build(&bytes(3000)));
}

#[test]
fn shared_header_fields_end_a_flow() {
    for spec in [Spec::default(), Spec::v6()] {
        assert_joined(&spec, |_| ());
        assert_apart(&spec, Header, |next| next.tos = 4);
        assert_apart(&spec, Header, |next| next.tos = 3);
        assert_apart(&spec, Header, |next| next.ttl -= 1);
        assert_apart(&spec, Header, |next| next.acknowledgement += 1);
        assert_apart(&spec, Header, |next| next.window += 1);
        assert_apart(&spec, Header, |next| next.flags |= ECE);
        assert_apart(&spec, Header, |next| next.options[7] += 1);
        assert_apart(&spec, Header, |next| next.options.clear());
        assert_apart(&spec, Header, |next| next.options.extend([1; 4]));
    }
    assert_apart(&Spec::default(), Header, |next| next.df = false);
}

#[test]
fn link_addresses_and_tags_tell_flows_apart() {
    let spec = Spec { tags: vec![5], ..Spec::default() };
    let frames = pair(&spec, |next| next.tags = vec![6]);
    assert_outline(&frames, &[(&[0], Flushed), (&[1], Flushed)]);
    let mut frames = pair(&spec, |_| ());
    frames[1][5] ^= 1;
    assert_outline(&frames, &[(&[0], Flushed), (&[1], Flushed)]);
}

#[test]
fn ports_addresses_and_protocols_tell_flows_apart() {
    let apart: [fn(&mut Spec); 4] = [
        |next| next.ports[0] += 1,
        |next| next.ports[1] += 1,
        |next| next.host += 1,
        |next| next.udp = true,
    ];
    for change in apart {
        let frames = pair(&Spec::default(), change);
        assert_outline(&frames, &[(&[0], Flushed), (&[1], Flushed)]);
    }
}

#[test]
fn sequence_numbers_follow_each_other() {
    // They wrap around in all of these.
    assert_apart(&Spec::default(), Sequence, |next| next.sequence += 1);
    assert_apart(&Spec::default(), Sequence, |next| next.sequence -= 1000);
}

#[test]
fn identifications_count_up_or_stay() {
    let spec = Spec::default();
    assert_apart(&spec, Sequence, |next| next.id += 1);
    for (df, step, count, id) in [
        (true, 1, 1, IpId::Increment),
        (false, 1, 1, IpId::Increment),
        (true, 0, 1, IpId::Fixed),
        // A router could fragment these, and the identification would not tell them apart.
        (false, 0, 5, IpId::Fixed),
    ] {
        let spec = Spec { df, ..spec.clone() };
        let out = coalesce(&spec.stream(&bytes(5000), 1000, step), &Options::default(), 4);
        assert_eq!(out.len(), count, "df {df} step {step}");
        if let Some((split, _)) = out[0].split {
            assert_eq!(split.outer_id, id);
        }
    }
    // The second decides, and the third differs.
    let mut frames = spec.stream(&bytes(3000), 1000, 0);
    frames[2] = spec.after(2000, 2).build(&bytes(1000));
    assert_outline(&frames, &[(&[0, 1], Sequence), (&[2], Flushed)]);
}

#[test]
fn identifications_of_a_tunnel_go_their_own_way() {
    let spec = Spec { tunnel: Some(Tunnel::Ip), ..Spec::default() };
    let frames: Vec<_> = (0..3)
        .map(|n| Spec { outer_id: 9, ..spec.after(n * 1000, n as u16) }.build(&bytes(1000)))
        .collect();
    let out = coalesce(&frames, &Options::default(), 4);
    let (split, _) = out[0].split.unwrap();
    assert_eq!((split.outer_id, split.inner_id), (IpId::Fixed, IpId::Increment));
}

#[test]
fn a_shorter_segment_is_the_last() {
    for spec in [Spec::default(), Spec::udp()] {
        let mut frames = spec.stream(&bytes(2500), 1000, 1);
        frames.push(spec.after(2500, 3).build(&bytes(500)));
        assert_outline(&frames, &[(&[0, 1, 2], LastSegment), (&[3], Flushed)]);
    }
}

#[test]
fn a_longer_segment_starts_anew() {
    for spec in [Spec::default(), Spec::udp()] {
        let mut frames = spec.stream(&bytes(2000), 1000, 1);
        frames.push(spec.after(2000, 2).build(&bytes(1001)));
        assert_outline(&frames, &[(&[0, 1], LargerSegment), (&[2], Flushed)]);
    }
}

#[test]
fn push_and_fin_end_a_flow() {
    for flag in [PSH, FIN, PSH | FIN] {
        let spec = Spec { flags: ACK | flag, ..Spec::default() };
        let payload = bytes(3000);
        let out = coalesce(&spec.stream(&payload, 1000, 1), &Options::default(), 4);
        assert_eq!(out.len(), 1);
        assert_eq!((out[0].reason, &out[0].bytes), (LastSegment, &spec.build(&payload)));
        // Nothing can follow the first.
        assert_outline(
            &[spec.build(&bytes(1000)), spec.after(1000, 1).build(&bytes(1000))],
            &[(&[0], LastSegment), (&[1], LastSegment)],
        );
    }
}

#[test]
fn syn_rst_and_urg_go_by_alone() {
    for flag in [SYN, RST, URG, CWR] {
        let mut frames = Spec::default().stream(&bytes(4000), 1000, 1);
        let spec = Spec { flags: ACK | flag, ..Spec::default() };
        frames[2] = spec.after(2000, 2).build(&bytes(1000));
        assert_outline(&frames, &[(&[0, 1], Unmergeable), (&[2], Flags), (&[3], Flushed)]);
    }
}

#[test]
fn cwr_keeps_a_segment_alone() {
    let spec = Spec { flags: ACK | CWR, ..Spec::default() };
    let frames = spec.stream(&bytes(3000), 1000, 1);
    assert_outline(&frames, &[(&[0], Flags), (&[1, 2], Flushed)]);
    let mut frames = Spec::default().stream(&bytes(4000), 1000, 1);
    frames[1] = spec.after(1000, 1).build(&bytes(1000));
    assert_outline(&frames, &[(&[0], Unmergeable), (&[1], Flags), (&[2, 3], Flushed)]);
}

#[test]
fn acknowledgements_keep_their_place() {
    let spec = Spec::default();
    let mut frames = spec.stream(&bytes(3000), 1000, 1);
    frames.insert(2, spec.after(2000, 2).build(&[]));
    assert_outline(&frames, &[(&[0, 1], Unmergeable), (&[2], NoPayload), (&[3], Flushed)]);
}

#[test]
fn a_wrong_checksum_goes_by_untouched() {
    for (spec, at) in [
        // IPv4, TCP, UDP, the payload.
        (Spec::default(), 14 + 10),
        (Spec::default(), 14 + 20 + 16),
        (Spec::v6(), 14 + 40 + 17),
        (Spec::udp(), 14 + 20 + 7),
        (Spec::udp(), 400),
        (Spec { tunnel: Some(Tunnel::Vxlan { checksum: true }), ..Spec::udp() }, 14 + 20 + 7),
        (Spec { tunnel: Some(Tunnel::Gre { checksum: true, ethernet: false }), ..Spec::udp() }, 38),
    ] {
        let mut frames = spec.stream(&bytes(4000), 1000, 1);
        frames[2][at] ^= 0x10;
        assert_outline(&frames, &[(&[0, 1], Unmergeable), (&[2], Checksum), (&[3], Flushed)]);
    }
}

#[test]
fn a_checksum_that_nobody_computes_goes_by() {
    // 0 and 0xffff are the same number, so that both are right; a segmenter would write the other.
    let gre = Tunnel::Gre { checksum: true, ethernet: false };
    for (tunnel, at, field) in [
        // IPv4 with its identification, TCP with the acknowledgement, GRE with its key.
        (None, 14 + 10, 14 + 4),
        (None, 34 + 16, 34 + 10),
        (Some(gre), 34 + 4, 34 + 10),
    ] {
        let mut frames = Spec { tunnel, ..Spec::default() }.stream(&bytes(2000), 1000, 1);
        let frame = &mut frames[0];
        // The field takes up the checksum.
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let (taken, carried) = word(field).overflowing_add(word(at));
        put(frame, field, taken + u16::from(carried));
        put(frame, at, 0);
        assert_ne!(outline(&frames)[0].1, Checksum, "{at}");
        put(&mut frames[0], at, 0xffff);
        assert_eq!(outline(&frames)[0].1, Checksum, "{at}");
    }
}

#[test]
fn udp_without_a_checksum_goes_by() {
    let mut frames = Spec::udp().stream(&bytes(3000), 1000, 1);
    put(&mut frames[1], 14 + 20 + 6, 0);
    assert_outline(&frames, &[(&[0], Unmergeable), (&[1], Checksum), (&[2], Flushed)]);
}

#[test]
fn ip_options_padding_and_fragments_go_by() {
    // A no-operation option, with the header made longer around it.
    let spec = Spec::default();
    let mut frames = spec.stream(&bytes(3000), 1000, 1);
    let frame = &mut frames[1];
    frame.splice(34..34, [1; 4]);
    frame[14] = 0x46;
    let len = frame.len() as u16 - 14;
    put(frame, 16, len);
    put(frame, 24, 0);
    let value = checksum(&frame[14..38]);
    put(frame, 24, value);
    let expected: &[(&[u64], FlushReason)] =
        &[(&[0], Unmergeable), (&[1], Protocol), (&[2], Flushed)];
    assert_outline(&frames, expected);

    let mut frames = spec.stream(&bytes(3000), 1000, 1);
    frames[1].push(0);
    assert_outline(&frames, expected);

    // First and later fragment, and the reserved flag.
    for flags in [0x2000, 0x0001, 0xc000] {
        let mut frames = spec.stream(&bytes(3000), 1000, 1);
        put(&mut frames[1], 20, flags);
        put(&mut frames[1], 24, 0);
        let value = checksum(&frames[1][14..34]);
        put(&mut frames[1], 24, value);
        assert_outline(&frames, expected);
    }
}

#[test]
fn what_is_cut_short_does_not_overtake() {
    for cut in [20, 36, 60, 500] {
        let mut frames = Spec::default().stream(&bytes(3000), 1000, 1);
        frames[1].truncate(cut);
        let out = outline(&frames);
        if cut == 20 {
            // It has no address.
            assert_eq!(out[0], (vec![1], Protocol));
            continue;
        }
        let expected = [(vec![0], Unmergeable), (vec![1], Protocol)];
        assert_eq!(out[..2], expected, "{cut}");
    }
}

#[test]
fn other_protocols_hold_nothing_up() {
    let mut frames = Spec::default().stream(&bytes(3000), 1000, 1);
    let mut arp = vec![0xff; 60];
    put(&mut arp, 12, 0x0806);
    let mut icmp = Spec::default().build(&[]);
    icmp[23] = 1;
    let mut tags = Spec { tags: vec![1, 2], ..Spec::default() }.build(&[]);
    put(&mut tags, 20, 0x8100);
    frames.splice(1..1, [arp, icmp, tags, vec![1, 2, 3], vec![]]);
    let alone = |token: &'static [u64]| (token, Protocol);
    assert_outline(
        &frames,
        &[alone(&[1]), alone(&[2]), alone(&[3]), alone(&[4]), alone(&[5]), (&[0, 6, 7], Flushed)],
    );
}

#[test]
fn a_super_packet_ends_at_its_limits() {
    let spec = Spec::default();
    // 20 + 32 bytes of IP and TCP headers: 65,535 = 52 + 45 * 1448 + 323.
    let mut frames = spec.stream(&bytes(46 * 1448), 1448, 1);
    let out = outline(&frames);
    assert_eq!(out[0], ((0..45).collect(), Full));
    assert_eq!(out[1], (vec![45], Flushed));
    // One that fits to the byte.
    frames = spec.stream(&bytes(65_483), 1448, 1);
    let out = coalesce(&frames, &Options::default(), 4);
    assert_eq!((out.len(), out[0].bytes.len()), (1, 65_535 + 14));
    frames = spec.stream(&bytes(65_484), 1448, 1);
    assert_eq!(outline(&frames).len(), 2);

    let frames = Spec::udp().stream(&bytes(MAX_SEGMENTS * 100 + 100), 100, 1);
    let out = outline(&frames);
    assert_eq!(out[0], ((0..MAX_SEGMENTS as u64).collect(), Full));

    let frames = spec.stream(&bytes(5000), 1000, 1);
    for options in [
        Options { max_segments: 2, ..Options::default() },
        Options { max_len: 2052, ..Options::default() },
    ] {
        let out = coalesce(&frames, &options, 4);
        let tokens: Vec<_> = out.iter().map(|out| out.tokens.len()).collect();
        assert_eq!(tokens, [2, 2, 1]);
    }
}

#[test]
fn long_headers_go_by() {
    let spec = Spec { tags: vec![1, 2], options: vec![1; 40], ..Spec::v6() };
    assert_eq!(outline(&spec.stream(&bytes(3000), 1000, 1)).len(), 1);
    // Destination options, which no checksum covers: 8 bytes of padding, and 512.
    for (options, count) in [
        (vec![6, 0, 1, 4, 0, 0, 0, 0], 1),
        ([&[6, 63, 1, 254][..], &[0; 254], &[1, 252], &[0; 252]].concat(), 2),
    ] {
        let mut frames = Spec::v6().stream(&bytes(2000), 1000, 1);
        for frame in &mut frames {
            frame[20] = 60;
            frame.splice(54..54, options.clone());
            let len = frame.len() as u16 - 54;
            put(frame, 18, len);
        }
        let out = outline(&frames);
        assert_eq!(out.len(), count);
        assert_eq!(out[0].1, if count == 1 { Flushed } else { Protocol });
    }
}

#[test]
fn the_oldest_flow_makes_room() {
    let frames: Vec<_> = (0..5)
        .map(|port| Spec { ports: [1000 + port, 80], ..Spec::default() }.build(&bytes(100)))
        .collect();
    let out = coalesce(&frames, &Options::default(), 2);
    let out: Vec<_> = out.iter().map(|out| (out.tokens[0], out.reason)).collect();
    let expected = [(0, Evicted), (1, Evicted), (2, Evicted), (3, Flushed), (4, Flushed)];
    assert_eq!(out, expected);
    let out = coalesce(&frames[..1], &Options::default(), 0);
    assert_eq!((out[0].tokens[0], out[0].reason), (0, Evicted));
}

#[test]
fn flows_of_one_hash_do_not_pile_up() {
    // The tag tells flows apart, and the hash does not look at it: whatever the key is, all of them meet.
    let streams: Vec<_> = (0..100)
        .map(|tag| Spec { tags: vec![tag], ..Spec::default() }.stream(&bytes(2000), 1000, 1))
        .collect();
    let frames: Vec<_> =
        [0, 1].iter().flat_map(|at| streams.iter().map(|s| s[*at].clone())).collect();
    let mut coalescer = Coalescer::with_key(vec![Flow::default(); 100], &Options::default(), 5);
    let mut out = Vec::new();
    let mut sink = |output: Output<'_>| record(&mut out, &frames, output);
    for token in (0..100).chain(192..200) {
        coalescer.push(&frames[token], token as u64, 0, &mut sink);
    }
    coalescer.flush_all(&mut sink);
    let out: Vec<_> = out.into_iter().map(|out| (out.tokens, out.reason)).collect();
    // The oldest made room, one by one, and the last eight were held and grew.
    let alone = (0..92).map(|token| (vec![token], Evicted));
    let joined = (92..100).map(|token| (vec![token, token + 100], Flushed));
    assert_eq!(out, alone.chain(joined).collect::<Vec<_>>());
}

#[test]
fn a_fragment_ends_the_flows_between_its_addresses_and_no_others() {
    let spec = |host: u8, port: u16| Spec { host, ports: [port, 53], ..Spec::udp() };
    let specs = [spec(1, 1), spec(2, 1), spec(1, 2), spec(3, 1)];
    let mut fragment = spec(1, 9).build(&bytes(100));
    put(&mut fragment, 20, 0x2000);
    let mut frames: Vec<_> = specs.iter().map(|spec| spec.build(&bytes(500))).collect();
    frames.push(fragment);
    for key in [0, 1, u64::MAX] {
        for flows in [4, 5, 300] {
            let memory = vec![Flow::default(); flows];
            let mut coalescer = Coalescer::with_key(memory, &Options::default(), key);
            let mut out = Vec::new();
            let mut sink = |output: Output<'_>| record(&mut out, &frames, output);
            for (token, frame) in frames.iter().enumerate() {
                coalescer.push(frame, token as u64, 0, &mut sink);
            }
            coalescer.flush_all(&mut sink);
            let mut out: Vec<_> = out.into_iter().map(|out| (out.tokens[0], out.reason)).collect();
            out[..2].sort_by_key(|(token, _)| *token);
            let followed = Unmergeable;
            let expected =
                [(0, followed), (2, followed), (4, Protocol), (1, Flushed), (3, Flushed)];
            assert_eq!(out, expected, "key {key}, {flows} flows");
        }
    }
}

#[test]
fn time_ends_a_flow() {
    let first = Spec::default().stream(&bytes(2000), 1000, 1);
    let second = Spec { ports: [1, 2], ..Spec::default() }.stream(&bytes(2000), 1000, 1);
    let frames = [first, second].concat();
    let mut coalescer = Coalescer::new([Flow::default(), Flow::default()], &Options::default());
    let mut out = Vec::new();
    let mut sink = |output: Output<'_>| record(&mut out, &frames, output);
    for (token, time) in [(0, 10), (2, 20), (1, 30)] {
        coalescer.push(&frames[token], token as u64, time, &mut sink);
    }
    assert_eq!(coalescer.oldest(), Some(10));
    coalescer.flush_before(9, &mut sink);
    assert_eq!(coalescer.oldest(), Some(10));
    coalescer.flush_before(10, &mut sink);
    assert_eq!(coalescer.oldest(), Some(20));
    coalescer.push(&frames[3], 3, 40, &mut sink);
    coalescer.flush_before(40, &mut sink);
    assert_eq!(coalescer.oldest(), None);
    let out: Vec<_> = out.into_iter().map(|out| (out.tokens, out.reason)).collect();
    assert_eq!(out, [(vec![0, 1], Flushed), (vec![2, 3], Flushed)]);
}

#[test]
fn checksums_as_asked() {
    for spec in [Spec::default(), Spec::v6(), Spec::udp()] {
        let frames = spec.stream(&bytes(3000), 1000, 1);
        let whole = spec.build(&bytes(3000));
        let start = if spec.v6 { 54 } else { 34 };
        let offset = if spec.udp { 6 } else { 16 };
        for checksums in [Checksums::Partial, Checksums::None] {
            let options = Options { checksums, ..Options::default() };
            let out = coalesce(&frames, &options, 4);
            let mut bytes = out[0].bytes.clone();
            if checksums == Checksums::Partial {
                let header = out[0].split.unwrap().1.unwrap();
                assert_eq!(header.flags, virtio::Flags::NEEDS_CSUM);
                let place = (header.csum_start, header.csum_offset);
                assert_eq!(place, (start as u16, offset as u16));
                // What hardware does.
                let value = checksum(&bytes[start..]);
                put(&mut bytes, start + offset, value);
            } else {
                assert_eq!(bytes[start + offset..][..2], [0, 0]);
                bytes[start + offset..][..2].copy_from_slice(&whole[start + offset..][..2]);
            }
            assert_eq!(bytes, whole);
        }
    }
}

#[test]
fn too_little_room_for_the_whole_is_told() {
    let frames = Spec::default().stream(&bytes(2000), 1000, 1);
    let mut coalescer = Coalescer::new(vec![Flow::default()], &Options::default());
    let mut seen = 0;
    let mut sink = |output: Output<'_>| {
        let Output::Super(packet) = output else { panic!("one super-packet") };
        let mut out = vec![0; packet.len()];
        for len in [0, 65, 66, 1066, packet.len() - 1] {
            assert_eq!(packet.write(&mut out[..len], |token| &frames[token as usize]), None);
        }
        assert_eq!(packet.write(&mut out, |_| &[]), None);
        assert_eq!(packet.payload().len(), 2);
        seen += 1;
    };
    for (token, frame) in frames.iter().enumerate() {
        coalescer.push(frame, token as u64, 0, &mut sink);
    }
    coalescer.flush_all(&mut sink);
    assert_eq!(seen, 1);
}
