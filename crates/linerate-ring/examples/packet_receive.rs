//! Counts the frames of an interface for some seconds: `packet_receive INTERFACE [SECONDS]`.

use std::error::Error;
use std::time::{Duration, Instant};

use linerate_ring::packet::{Options, Ring};
use linerate_ring::{Batch as _, Ring as _};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let interface = arguments.next().ok_or("usage: packet_receive INTERFACE [SECONDS]")?;
    let seconds = arguments.next().map_or(Ok(5), |seconds| seconds.parse())?;

    let mut ring = Ring::open(Options { promiscuous: true, ..Options::new(interface) })?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut frames, mut bytes) = (0u64, 0u64);
    while Instant::now() < end {
        ring.wait(Duration::from_millis(100))?;
        while let Some(mut batch) = ring.next_batch() {
            while let Some(frame) = batch.next() {
                frames += 1;
                bytes += u64::from(frame.wire_len);
            }
        }
    }
    let drops = ring.statistics()?.drops;
    println!("{frames} frames, {bytes} bytes, {drops} dropped");
    Ok(())
}
