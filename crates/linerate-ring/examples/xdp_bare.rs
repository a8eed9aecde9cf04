//! The bare AF_XDP loop that rates of the library are given relative to.
//!
//! `xdp_bare INTERFACE [--seconds N] [--huge]`; prints one JSON object at the end or at SIGINT.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: i32) {
    STOP.store(true, Ordering::Relaxed);
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mut interface, mut seconds, mut huge) = (None, None, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--huge" => huge = true,
            "--seconds" => {
                seconds = Some(arguments.next().and_then(|n| n.parse().ok()).expect("--seconds N"));
            }
            _ => interface = Some(argument),
        }
    }
    let interface = interface.expect("usage: xdp_bare INTERFACE [--seconds N] [--huge]");
    // SAFETY: the handler does nothing but store to an atomic.
    unsafe {
        libc::signal(libc::SIGINT, stop as extern "C" fn(i32) as usize);
        libc::signal(libc::SIGTERM, stop as extern "C" fn(i32) as usize);
    }
    if let Some(seconds) = seconds {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(seconds));
            STOP.store(true, Ordering::Relaxed);
        });
    }
    let start = Instant::now();
    let counts = linerate_ring::bare::run(&interface, huge, &STOP)?;
    println!(
        "{{\"received\":{},\"dropped\":{},\"ring_full\":{},\"seconds\":{:.6}}}",
        counts.received,
        counts.dropped + counts.ring_full,
        counts.ring_full,
        start.elapsed().as_secs_f64(),
    );
    Ok(())
}
