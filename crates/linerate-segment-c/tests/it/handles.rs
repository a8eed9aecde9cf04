//! What C may do wrong without harm, and that the handles say so.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use etherparse::PacketBuilder;
use linerate_segment::Policy;
use linerate_segment_c::*;

fn packet(len: usize) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64)
        .tcp(1, 2, 3, 4)
        .ack(5);
    let mut frame = Vec::new();
    builder.write(&mut frame, &vec![7; len]).unwrap();
    frame
}

fn text(pointer: *const c_char) -> String {
    assert!(!pointer.is_null());
    // SAFETY: the library's texts are NUL-terminated.
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap().to_owned()
}

#[test]
fn segments_in_two_pieces_are_those_in_one() {
    let packet = packet(5000);
    let options = linerate_segment_options_default(linerate_split::Tcp as u8, 1448);
    let (one, two) = (linerate_segments_create(), linerate_segments_create());
    // SAFETY: handles of `create`, a packet that stays, and places for what is written.
    unsafe {
        for handle in [one, two] {
            let status = linerate_segments_begin(handle, packet.as_ptr(), packet.len(), &options);
            assert_eq!((status, linerate_segments_left(handle)), (linerate_status::Ok, 4));
        }
        let mut out = vec![0; linerate_segments_max_len(one)];
        assert_eq!(out.len(), 54 + 1448);
        let mut len = 0;
        assert_eq!(
            linerate_segments_write_next(one, out.as_mut_ptr(), 100, &mut len),
            linerate_status::Buffer
        );
        assert!(text(linerate_segments_error(one)).contains("1502 bytes and the buffer 100"));
        for _ in 0..4 {
            let status = linerate_segments_write_next(one, out.as_mut_ptr(), out.len(), &mut len);
            assert_eq!(status, linerate_status::Ok);
            assert_eq!(text(linerate_segments_error(one)), "", "of the last call");
            let mut parts = std::mem::zeroed::<linerate_segment_view>();
            assert_eq!(linerate_segments_next_view(two, &mut parts), linerate_status::Ok);
            let header = std::slice::from_raw_parts(parts.header, parts.header_len);
            let payload = std::slice::from_raw_parts(parts.payload, parts.payload_len);
            assert_eq!(out[..len], [header, payload].concat());
            assert!(packet.as_ptr_range().contains(&parts.payload), "not copied");
        }
        let end = linerate_segments_write_next(one, out.as_mut_ptr(), out.len(), &mut len);
        assert_eq!(end, linerate_status::End);
        let mut parts = std::mem::zeroed::<linerate_segment_view>();
        assert_eq!(linerate_segments_next_view(two, &mut parts), linerate_status::End);
        linerate_segments_destroy(one);
        linerate_segments_destroy(two);
    }
}

#[test]
fn what_hardware_finishes_is_told() {
    let packet = packet(5000);
    let mut options = linerate_segment_options_default(linerate_split::Mtu as u8, 1500);
    options.checksums = linerate_segment::segment::Checksums::Partial as u8;
    let handle = linerate_segments_create();
    let (mut start, mut offset) = (0, 0);
    // SAFETY: a handle of `create`, a packet that stays, and places for what is written.
    unsafe {
        assert!(!linerate_segments_partial(handle, &mut start, &mut offset), "none was begun");
        let status = linerate_segments_begin(handle, packet.as_ptr(), packet.len(), &options);
        assert_eq!(status, linerate_status::Ok);
        assert!(linerate_segments_partial(handle, &mut start, &mut offset));
        linerate_segments_destroy(handle);
    }
    assert_eq!((start, offset), (34, 16));
}

#[test]
fn nothing_and_numbers_of_no_enumeration_are_refused() {
    let packet = packet(5000);
    let good = linerate_segment_options_default(linerate_split::Tcp as u8, 1448);
    let handle = linerate_segments_create();
    let begin = |handle, packet: *const u8, len, options| {
        // SAFETY: pointers are NULL or good for what is behind them.
        unsafe { linerate_segments_begin(handle, packet, len, options) }
    };
    let none = ptr::null_mut();
    assert_eq!(begin(none, packet.as_ptr(), packet.len(), &good), linerate_status::Argument);
    assert_eq!(begin(handle, ptr::null(), 5, &good), linerate_status::Argument);
    assert_eq!(
        begin(handle, packet.as_ptr(), packet.len(), ptr::null()),
        linerate_status::Argument
    );
    for wrong in [
        linerate_segment_options { split: 4, ..good },
        linerate_segment_options { link: 2, ..good },
        linerate_segment_options { checksums: 3, ..good },
        linerate_segment_options { outer_id: 2, ..good },
        linerate_segment_options { inner_id: 2, ..good },
    ] {
        let status = begin(handle, packet.as_ptr(), packet.len(), &wrong);
        assert_eq!(status, linerate_status::Argument);
    }
    for (wrong, status) in [
        (linerate_segment_options { size: 0, ..good }, linerate_status::Size),
        (linerate_segment_options { max_segments: 3, ..good }, linerate_status::Limit),
        (
            linerate_segment_options { split: linerate_split::Udp as u8, ..good },
            linerate_status::Unsupported,
        ),
    ] {
        assert_eq!(begin(handle, packet.as_ptr(), packet.len(), &wrong), status);
        // SAFETY: a handle of `create`.
        assert!(!text(unsafe { linerate_segments_error(handle) }).is_empty());
    }
    let mut len = 0;
    // SAFETY: pointers are NULL or good for what is behind them.
    unsafe {
        let mut out = [0; 2000];
        let nothing_begun =
            linerate_segments_write_next(handle, out.as_mut_ptr(), out.len(), &mut len);
        assert_eq!(nothing_begun, linerate_status::End);
        let status = linerate_segments_write_next(handle, ptr::null_mut(), 0, &mut len);
        assert_eq!(status, linerate_status::Argument);
        assert_eq!(linerate_segments_next_view(handle, ptr::null_mut()), linerate_status::Argument);
        assert!(linerate_segments_error(none).is_null());
        assert_eq!(linerate_segments_left(none) + linerate_segments_max_len(none), 0);
        linerate_segments_destroy(handle);
        linerate_segments_destroy(none);
        linerate_coalescer_destroy(ptr::null_mut());
        let wrong =
            linerate_coalesce_options { checksums: 9, ..linerate_coalesce_options_default() };
        assert!(linerate_coalescer_create(&wrong, 1).is_null());
    }
}

/// A packet cannot be split in place: its bytes are read until the last segment was taken.
#[test]
fn a_buffer_over_the_packet_is_refused() {
    let mut memory = packet(5000);
    let len = memory.len();
    memory.resize(len + 4000, 0);
    let options = linerate_segment_options_default(linerate_split::Tcp as u8, 1448);
    let handle = linerate_segments_create();
    let start = memory.as_mut_ptr();
    let mut written = 0;
    // SAFETY: a handle of `create`, and places within one piece of memory that stays.
    unsafe {
        let status = linerate_segments_begin(handle, start, len, &options);
        assert_eq!(status, linerate_status::Ok);
        let left = linerate_segments_left(handle);
        for at in [0, 1, len - 1] {
            let status = linerate_segments_write_next(handle, start.add(at), 2000, &mut written);
            assert_eq!(status, linerate_status::Argument, "{at}");
        }
        assert_eq!(linerate_segments_left(handle), left);
        let status = linerate_segments_write_next(handle, start.add(len), 2000, &mut written);
        assert_eq!((status, written), (linerate_status::Ok, 14 + 20 + 20 + 1448));
        linerate_segments_destroy(handle);
    }
}

#[test]
fn a_coalescer_without_flows_hands_everything_back() {
    let (frame, mut seen) = (packet(100), 0_usize);
    unsafe extern "C" fn count(context: *mut c_void, output: *const linerate_output) {
        // SAFETY: the number below, and an output that lives through the call.
        unsafe { *context.cast::<usize>() += (*output).token_count }
    }
    let context = ptr::from_mut(&mut seen).cast::<c_void>();
    // SAFETY: a handle of `create`, a frame that stays, and a number for the sink.
    unsafe {
        let coalescer = linerate_coalescer_create(ptr::null(), 0);
        assert!(!coalescer.is_null());
        for token in 0..3 {
            linerate_coalescer_push(
                coalescer,
                frame.as_ptr(),
                frame.len(),
                token,
                0,
                Some(count),
                context,
            );
        }
        linerate_coalescer_flush_all(coalescer, Some(count), context);
        linerate_coalescer_destroy(coalescer);
    }
    assert_eq!(seen, 3);
}

/// What a sink has seen.
struct Seen {
    coalescer: *mut linerate_coalescer,
    outputs: Vec<linerate_output>,
    tokens: Vec<u64>,
    status: Option<linerate_status>,
}

unsafe extern "C" fn see(context: *mut c_void, output: *const linerate_output) {
    // SAFETY: the context of the tests, and an output that lives through the call.
    unsafe {
        let (seen, output) = (&mut *context.cast::<Seen>(), *output);
        seen.outputs.push(output);
        seen.tokens.extend(std::slice::from_raw_parts(output.tokens, output.token_count));
        seen.status =
            Some(linerate_coalescer_flush_all(seen.coalescer, Some(see), ptr::null_mut()));
    }
}

#[test]
fn a_coalescer_joins_and_refuses_to_be_called_by_its_own_output() {
    let packet = packet(2896 + 7);
    let options = linerate_segment_options_default(linerate_split::Tcp as u8, 1448);
    let handle = linerate_segments_create();
    // SAFETY: handles of `create`, frames that stay, a sink with the context that it expects.
    unsafe {
        let coalescer = linerate_coalescer_create(ptr::null(), 4);
        let mut seen = Seen { coalescer, outputs: vec![], tokens: vec![], status: None };
        let context: *mut c_void = (&raw mut seen).cast();
        linerate_segments_begin(handle, packet.as_ptr(), packet.len(), &options);
        let mut frames = Vec::new();
        let (mut out, mut len) = ([0; 2000], 0);
        while linerate_segments_write_next(handle, out.as_mut_ptr(), 2000, &mut len)
            == linerate_status::Ok
        {
            frames.push(out[..len].to_vec());
        }
        let mut oldest = 0;
        for (token, frame) in (10..).zip(&frames) {
            let status = linerate_coalescer_push(
                coalescer,
                frame.as_ptr(),
                frame.len(),
                token,
                77,
                Some(see),
                context,
            );
            assert_eq!(status, linerate_status::Ok);
            if token == 10 {
                assert!(linerate_coalescer_oldest(coalescer, &mut oldest));
            }
        }
        assert_eq!(oldest, 77);
        assert!(!linerate_coalescer_oldest(coalescer, &mut oldest), "a short segment is the last");
        assert_eq!(
            linerate_coalescer_push(coalescer, ptr::null(), 0, 0, 0, Some(see), context),
            linerate_status::Argument
        );
        assert_eq!(
            linerate_coalescer_flush_all(coalescer, None, context),
            linerate_status::Argument
        );
        let arp = [[2; 12].as_slice(), &[8, 6], &[0; 46]].concat();
        linerate_coalescer_push(coalescer, arp.as_ptr(), arp.len(), 99, 78, Some(see), context);
        linerate_coalescer_flush_before(coalescer, 80, Some(see), context);
        linerate_coalescer_destroy(coalescer);
        linerate_segments_destroy(handle);
        assert_eq!(seen.tokens, [10, 11, 12, 99]);
        assert_eq!(seen.status, Some(linerate_status::Busy));
        let [joined, alone] = &seen.outputs[..] else { panic!("{}", seen.outputs.len()) };
        assert_eq!((joined.len, joined.header_len, joined.since), (packet.len(), 54, 77));
        assert_eq!((joined.segment_size, joined.last_size), (1448, 7));
        assert_eq!(
            (joined.reason, joined.has_virtio),
            (linerate_segment::coalesce::FlushReason::LastSegment as u8, true)
        );
        assert_eq!((joined.split.split, joined.split.size), (linerate_split::Tcp as u8, 1448));
        assert_eq!(joined.virtio[4..6], 1448_u16.to_ne_bytes());
        assert_eq!((alone.token_count, alone.len, alone.header), (1, 0, ptr::null()));
        assert_eq!(alone.reason, linerate_segment::coalesce::FlushReason::Protocol as u8);
    }
}

#[test]
fn a_policy_goes_through_text_and_into_options() {
    let mut policy = linerate_policy_default();
    let mut out = [0 as c_char; 128];
    // SAFETY: strings that end with NUL, and places for what is written.
    unsafe {
        let status = linerate_policy_parse(
            c"udp=off,max_burst=30000,max_segments=7".as_ptr(),
            &mut policy,
            out.as_mut_ptr(),
            out.len(),
        );
        assert_eq!((status, policy.max_burst, policy.udp), (linerate_status::Ok, 30_000, false));
        assert!(linerate_policy_allows(&policy, 6) && !linerate_policy_allows(&policy, 17));
        assert!(!linerate_policy_allows(ptr::null(), 6));
        let mut options = linerate_segment_options_default(linerate_split::Mtu as u8, 1500);
        assert_eq!(linerate_policy_limit(&policy, &mut options), linerate_status::Ok);
        assert_eq!((options.max_burst, options.max_segments), (30_000, 7));
        assert_eq!(linerate_policy_text(&policy, out.as_mut_ptr(), out.len()), linerate_status::Ok);
        assert_eq!(text(out.as_ptr()).parse::<Policy>().unwrap(), policy);
        let mut short = [1 as c_char; 8];
        let wrong =
            linerate_policy_parse(c"tcp".as_ptr(), &mut policy, short.as_mut_ptr(), short.len());
        assert_eq!((wrong, policy.max_burst), (linerate_status::Argument, 30_000));
        assert_eq!(text(short.as_ptr()), "a setti", "cut, with its end");
    }
}
