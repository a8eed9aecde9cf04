//! A receiver of the C library takes messages from the host only with consent.

use std::ffi::{CStr, c_char};
use std::ptr;

use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip};
use linerate_udp::Backend;
use linerate_udp_c::{
    LINERATE_RECEIVE_TAKE_OVER, linerate_receive_options, linerate_receive_status,
    linerate_receiver_backend, linerate_receiver_close, linerate_receiver_open,
};

#[test]
fn auto_takes_nothing_without_the_flag() {
    root_or_skip!();
    let (there, here) = (Namespace::create("luctx").unwrap(), Namespace::create("lucrx").unwrap());
    let veth = Veth::create(&there, "tx", &here, "rx", VethOptions::default()).unwrap();
    veth.b.add_address("10.78.0.2".parse().unwrap(), 24).unwrap();
    veth.b.set_gro(true).unwrap();
    let has_xdp = here.run(|| linerate_udp::probe(Backend::Xdp, Some("rx"))).unwrap();
    for (backend, flags) in [
        (None, 0),
        (Some(c"auto"), 0),
        (None, LINERATE_RECEIVE_TAKE_OVER),
        (Some(c"auto"), LINERATE_RECEIVE_TAKE_OVER),
    ] {
        let takes = flags != 0 && has_xdp.is_ok();
        let (name, why, has_program) = here
            .run(|| {
                let bind = c"10.78.0.2:7000";
                let backend = backend.map_or(ptr::null(), CStr::as_ptr);
                // SAFETY: all fields may be zero, which are the defaults.
                let zeroes: linerate_receive_options = unsafe { std::mem::zeroed() };
                let bind = bind.as_ptr();
                let options = linerate_receive_options { bind, backend, flags, ..zeroes };
                let (mut receiver, mut why) = (ptr::null_mut(), [0 as c_char; 512]);
                // SAFETY: the options, the place and the room for a text outlive the call; the handle is closed once.
                unsafe {
                    let status = linerate_receiver_open(
                        &options,
                        &mut receiver,
                        why.as_mut_ptr(),
                        why.len(),
                    );
                    let why = CStr::from_ptr(why.as_ptr()).to_owned();
                    assert_eq!(status, linerate_receive_status::Ok, "{why:?}");
                    let name = CStr::from_ptr(linerate_receiver_backend(receiver)).to_owned();
                    let has_program = veth.b.has_xdp().unwrap();
                    linerate_receiver_close(receiver);
                    (name, why, has_program)
                }
            })
            .unwrap();
        let wanted = if takes { c"xdp" } else { c"gro" };
        assert_eq!((&*name, has_program), (wanted, takes), "{backend:?} {flags}: {why:?}");
    }
}
