//! Splitting one super-packet again and again (`linerate-lab helper split`), and the limits on the same bytes:
//! what `segment-rate` measures of Linerate's own, in a process like those of the peers.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use linerate::cli::stdio;
use linerate_segment::segment::{self, Segments, Split};
use linerate_wire::checksum::Engine;

/// Super-packets of one batch, which is timed as a whole.
const BATCH: usize = 50;

/// What is done with the payload, and what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Segments with checksums into a ring of buffers, all of a packet in one call.
    Segments,
    /// The same by the engine of this name, which is not the best.
    SegmentsBy(Engine),
    /// Segments with checksums into the same buffers, one at a time.
    OneByOne,
    /// Segments with checksums, as a header and a slice of the super-packet.
    Parts,
    /// The payload into the buffers, nothing else.
    Copy,
    /// The same, and a sum of each finished piece.
    CopyThenSegment,
    /// The same, and a sum of each piece where it came from.
    CopyThenSource,
    /// Copy and sum in one pass, by the engine of this name.
    OnePass(Engine),
}

impl Method {
    /// All that this machine can do.
    pub(crate) fn all() -> Vec<Self> {
        let mut methods = vec![
            Self::Segments,
            Self::OneByOne,
            Self::Parts,
            Self::Copy,
            Self::CopyThenSegment,
            Self::CopyThenSource,
        ];
        methods.extend(Engine::available().skip(1).map(Self::SegmentsBy));
        methods.extend(Engine::available().map(Self::OnePass));
        methods
    }

    /// The name of its line.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Segments => "linerate".into(),
            Self::SegmentsBy(engine) => format!("linerate, {engine}"),
            Self::OneByOne => "linerate, one segment at a time".into(),
            Self::Parts => "linerate, header and slices".into(),
            Self::Copy => "memcpy".into(),
            Self::CopyThenSegment => "memcpy, then sum of the segment".into(),
            Self::CopyThenSource => "memcpy, then sum of the source".into(),
            Self::OnePass(engine) => format!("copy and sum in one pass, {engine}"),
        }
    }

    /// Whether it makes segments; the others are limits.
    pub(crate) fn splits(self) -> bool {
        matches!(self, Self::Segments | Self::SegmentsBy(_) | Self::OneByOne | Self::Parts)
    }
}

/// Options of the splitter.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// [`Method::name`].
    method: String,
    /// A file with one Ethernet frame, TCP over IPv4.
    frame: PathBuf,
    /// Bytes of headers in front of its payload.
    headers: usize,
    /// Payload of a segment in bytes.
    mss: u16,
    /// How long.
    milliseconds: u64,
    /// Where the segments go in the end, each after a 32-bit length in the machine's byte order.
    out: PathBuf,
}

/// Buffers that follow each other as the frames of a UMEM do, from the start of a page.
struct Ring {
    memory: Vec<u8>,
    start: usize,
    chunk: usize,
}

impl Ring {
    fn new(chunk: usize, count: usize) -> Self {
        let memory = vec![1; chunk * count + 4096];
        let start = memory.as_ptr().align_offset(4096);
        Self { memory, start, chunk }
    }

    fn chunks(&mut self) -> std::slice::ChunksExactMut<'_, u8> {
        self.memory[self.start..].chunks_exact_mut(self.chunk)
    }
}

/// Does it, and prints `{"segments": N, "nanoseconds": N}` of each batch.
pub(crate) fn run(options: &Options) -> Result<()> {
    let method = Method::all().into_iter().find(|method| method.name() == options.method);
    let method =
        method.with_context(|| format!("this machine has no method {:?}", options.method))?;
    let frame = fs::read(&options.frame)
        .with_context(|| format!("cannot read {}", options.frame.display()))?;
    // As the packet of a page pool: the frame at the start of a page.
    let mut memory = vec![0; frame.len() + 4096];
    let start = memory.as_ptr().align_offset(4096);
    memory[start..][..frame.len()].copy_from_slice(&frame);
    let frame = &memory[start..][..frame.len()];
    let (mss, headers) = (usize::from(options.mss), options.headers);
    ensure!(mss > 0 && frame.len() > headers, "nothing to split");
    let count = (frame.len() - headers).div_ceil(mss);
    let mut ring = Ring::new((headers + mss).next_multiple_of(2048), count);
    let end = Instant::now() + Duration::from_millis(options.milliseconds);
    let mut said = String::new();
    while Instant::now() < end {
        let start = Instant::now();
        for _ in 0..BATCH {
            once(method, black_box(frame), headers, mss, &mut ring)?;
        }
        let nanoseconds = start.elapsed().as_nanos();
        let segments = BATCH * count;
        said += &format!("{{\"segments\": {segments}, \"nanoseconds\": {nanoseconds}}}\n");
    }
    stdio::println(said.trim_end())?;
    if method.splits() {
        let mut out = File::create(&options.out)
            .with_context(|| format!("cannot write {}", options.out.display()))?;
        for segment in segments(method, frame, options.mss)? {
            out.write_all(&(segment.len() as u32).to_ne_bytes())?;
            out.write_all(&segment)?;
        }
    }
    Ok(())
}

/// The segments of `frame`, as a method makes them that [splits](Method::splits).
pub(crate) fn segments(method: Method, frame: &[u8], mss: u16) -> Result<Vec<Vec<u8>>> {
    let mut segments = prepared(method, frame, mss)?;
    let mut made = Vec::with_capacity(segments.len());
    match method {
        Method::Parts => {
            while let Some(parts) = segments.next_view() {
                made.push([parts.header, parts.payload].concat());
            }
        }
        Method::OneByOne => {
            let mut out = vec![0; segments.max_len()];
            while let Some(len) = segments.write_next(&mut out)? {
                made.push(out[..len].to_vec());
            }
        }
        _ => {
            let mut buffers = vec![vec![0; segments.max_len()]; segments.len()];
            let buffers = buffers.iter_mut().map(Vec::as_mut_slice);
            segments.write_all(buffers, |buffer, len| made.push(buffer[..len].to_vec()))?;
        }
    }
    Ok(made)
}

#[inline]
fn prepared(method: Method, frame: &[u8], mss: u16) -> Result<Segments<'_>> {
    let segments = Segments::new(frame, &segment::Options::new(Split::Tcp { mss }))?;
    Ok(match method {
        Method::SegmentsBy(engine) => segments.with_engine(engine),
        _ => segments,
    })
}

#[inline]
fn once(method: Method, frame: &[u8], headers: usize, mss: usize, ring: &mut Ring) -> Result<()> {
    let best = Engine::detect();
    let pieces = frame[headers..].chunks(mss);
    match method {
        Method::Segments | Method::SegmentsBy(_) => {
            prepared(method, frame, mss as u16)?
                .write_all(ring.chunks().map(black_box), |_, _| {})?;
        }
        Method::OneByOne => {
            let mut segments = prepared(method, frame, mss as u16)?;
            for chunk in ring.chunks() {
                if segments.write_next(black_box(chunk))?.is_none() {
                    break;
                }
            }
        }
        Method::Parts => {
            let mut segments = prepared(method, frame, mss as u16)?;
            while let Some(parts) = segments.next_view() {
                black_box(parts);
            }
        }
        Method::Copy => {
            for (piece, chunk) in pieces.zip(ring.chunks()) {
                black_box(chunk)[headers..][..piece.len()].copy_from_slice(piece);
            }
        }
        Method::CopyThenSegment => {
            for (piece, chunk) in pieces.zip(ring.chunks()) {
                let to = &mut black_box(chunk)[headers..][..piece.len()];
                to.copy_from_slice(piece);
                black_box(best.sum(black_box(to)));
            }
        }
        Method::CopyThenSource => {
            for (piece, chunk) in pieces.zip(ring.chunks()) {
                black_box(chunk)[headers..][..piece.len()].copy_from_slice(piece);
                black_box(best.sum(piece));
            }
        }
        Method::OnePass(engine) => {
            for (piece, chunk) in pieces.zip(ring.chunks()) {
                let to = &mut black_box(chunk)[headers..][..piece.len()];
                black_box(engine.copy(piece, to));
            }
        }
    }
    Ok(())
}
