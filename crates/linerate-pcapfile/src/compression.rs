//! Compressed capture files: one compressed frame for each write, and any stream of frames read back.

use std::io::{self, BufRead, Read, Write};

/// Streaming compression of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not compressed.
    #[default]
    None,
    /// Zstandard, level 1: the fastest that still halves typical captures.
    Zstd,
    /// LZ4 frames.
    Lz4,
}

/// Compresses buffers, each into a frame of its own. Every decompressor reads consecutive frames as one
/// stream.
pub(crate) enum Compressor {
    None,
    Zstd { context: Box<zstd::bulk::Compressor<'static>>, out: Vec<u8> },
    Lz4 { out: Vec<u8> },
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::None,
            Compression::Zstd => {
                let mut context = zstd::bulk::Compressor::new(1)?;
                context.include_checksum(true)?;
                Self::Zstd { context: Box::new(context), out: Vec::new() }
            }
            Compression::Lz4 => Self::Lz4 { out: Vec::new() },
        })
    }

    /// `bytes` compressed; `None` where there is no compression.
    pub(crate) fn compress(&mut self, bytes: &[u8]) -> io::Result<Option<&[u8]>> {
        Ok(match self {
            Self::None => None,
            Self::Zstd { context, out } => {
                out.resize(zstd::zstd_safe::compress_bound(bytes.len()), 0);
                let length = context.compress_to_buffer(bytes, out)?;
                Some(&out[..length])
            }
            Self::Lz4 { out } => {
                out.clear();
                let mut encoder = lz4_flex::frame::FrameEncoder::new(&mut *out);
                encoder.write_all(bytes)?;
                encoder.finish()?;
                Some(&out[..])
            }
        })
    }
}

/// `stream`, which starts with `magic`, decompressed.
pub(crate) fn decompress(
    magic: [u8; 4],
    stream: impl BufRead + Send + 'static,
) -> io::Result<Box<dyn Read + Send>> {
    Ok(match magic {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(stream)),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::stream::read::Decoder::with_buffer(stream)?),
        [0x04, 0x22, 0x4d, 0x18] => {
            Box::new(Lz4Frames(Some(lz4_flex::frame::FrameDecoder::new(stream))))
        }
        _ => Box::new(stream),
    })
}

/// Several lz4 frames in a row are one stream, as `lz4 -d` sees it. The decoder stops after each frame and
/// cannot change its block size, so each frame gets a new decoder.
struct Lz4Frames<R: BufRead>(Option<lz4_flex::frame::FrameDecoder<R>>);

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(decoder) = &mut self.0 else { return Ok(0) };
            let length = decoder.read(buffer)?;
            if length > 0 || buffer.is_empty() {
                return Ok(length);
            }
            let Some(mut rest) = self.0.take().map(lz4_flex::frame::FrameDecoder::into_inner)
            else {
                return Ok(0);
            };
            if rest.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.0 = Some(lz4_flex::frame::FrameDecoder::new(rest));
        }
    }
}
