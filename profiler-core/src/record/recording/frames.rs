//! The container of a recording: a header, then frames. `file` defines the contents of the frames.
//!
//! Format 3: the header is the eight bytes `GPUPROF\x03`. A frame is a head of 32 bytes, the
//! content, and zeros up to a multiple of 8 bytes. All numbers are little-endian.
//!
//! | bytes of the head | |
//! | --- | --- |
//! | 0..4 | the kind, four ASCII letters |
//! | 4..8 | CRC-32 of the other 28 bytes of the head |
//! | 8..16 | the number of the frame, from 0 |
//! | 16..24 | the length of the content in bytes |
//! | 24..28 | CRC-32 of the content and its zeros |
//! | 28..32 | bytes 4..8 of the frame before; for the first frame, CRC-32 of the header |
//!
//! The number and the checksum of the frame before chain the frames: a removed, repeated, reordered
//! or foreign frame is an error. The frame [`END`] is the last one, and nothing follows it. A file
//! without it is a truncated recording. The same applies to a file whose next head begins with
//! eight zeros: space that a writer reserved and did not use. A writer into a mapping stores bytes
//! 0..8 of a head last, so that a reader never sees a half-written frame.
//!
//! Formats 1 and 2 have heads of 12 bytes, kind and length. They have no checksums, and a truncated
//! file is an error.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};

use crate::error::Error;

/// The format that this version writes.
pub(super) const FORMAT: u8 = 3;
/// The first format with checksums.
pub(super) const FIRST_CHECKED: u8 = 3;
const MAGIC: &[u8; 7] = b"GPUPROF";
const HEAD_BYTES: usize = 32;
/// Contents are allocated in steps of at most this size, or of the bytes received so far if that is
/// more: a damaged length costs no more memory.
const STEP_BYTES: u64 = 16 << 20;
/// The buffer size for reading the source; larger contents bypass the buffer.
const BUFFER_BYTES: usize = 64 << 10;
/// Frames begin at multiples of this.
const ALIGNMENT: u64 = 8;

/// The kind of a frame's content.
pub(super) type Kind = [u8; 4];

/// The last frame. In format 3 it has no content.
pub(super) const END: Kind = *b"DONE";

/// The state after the frames so far: the number of the next one, and the checksum that it repeats.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chain {
    number: u64,
    previous: u32,
}

/// Writes frames of format 3. The bytes written so far are a truncated recording until
/// [`end`](Self::end). All writers share its code.
pub(super) struct FrameWriter<'a> {
    out: &'a mut dyn Write,
    chain: Chain,
}

impl<'a> FrameWriter<'a> {
    /// Writes the header.
    pub(super) fn begin(out: &'a mut dyn Write) -> io::Result<Self> {
        let [a, b, c, d, e, f, g] = *MAGIC;
        let header = [a, b, c, d, e, f, g, FORMAT];
        out.write_all(&header)?;
        Ok(Self::resume(out, Chain { number: 0, previous: crc32fast::hash(&header) }))
    }

    /// Continues after the last frame of an earlier writer.
    pub(super) fn resume(out: &'a mut dyn Write, chain: Chain) -> Self {
        Self { out, chain }
    }

    pub(super) fn chain(&self) -> Chain {
        self.chain
    }

    /// Appends a frame whose content is these parts.
    pub(super) fn frame(&mut self, kind: Kind, parts: &[&[u8]]) -> io::Result<()> {
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let padding = [0; ALIGNMENT as usize];
        let padding = &padding[..padding_of(length) as usize];
        let mut checksum = crc32fast::Hasher::new();
        parts.iter().for_each(|part| checksum.update(part));
        checksum.update(padding);
        let content = checksum.finalize();
        let Chain { number, previous } = self.chain;
        let (head, checksum) = Head { kind, number, length, content, previous }.to_bytes();
        self.out.write_all(&head)?;
        for part in parts.iter().copied().chain([padding]) {
            self.out.write_all(part)?;
        }
        self.chain = Chain { number: number + 1, previous: checksum };
        Ok(())
    }

    /// Appends the last frame, which completes the recording.
    pub(super) fn end(mut self) -> io::Result<Chain> {
        self.frame(END, &[])?;
        Ok(self.chain)
    }
}

fn padding_of(length: u64) -> u64 {
    length.wrapping_neg() % ALIGNMENT
}

/// The head of a frame of format 3, except its own checksum.
struct Head {
    kind: Kind,
    number: u64,
    length: u64,
    content: u32,
    previous: u32,
}

impl Head {
    /// Returns the bytes, and the checksum in them.
    fn to_bytes(&self) -> ([u8; HEAD_BYTES], u32) {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&self.kind);
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.content.to_le_bytes());
        bytes[28..].copy_from_slice(&self.previous.to_le_bytes());
        let checksum = Self::checksum(&bytes);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        (bytes, checksum)
    }

    /// Decodes a head with its checksum; `None` if the checksum does not match the bytes.
    fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Option<(Self, u32)> {
        let head = Self {
            kind: part(bytes, 0),
            number: u64::from_le_bytes(part(bytes, 8)),
            length: u64::from_le_bytes(part(bytes, 16)),
            content: u32::from_le_bytes(part(bytes, 24)),
            previous: u32::from_le_bytes(part(bytes, 28)),
        };
        let checksum = u32::from_le_bytes(part(bytes, 4));
        (checksum == Self::checksum(bytes)).then_some((head, checksum))
    }

    fn checksum(bytes: &[u8; HEAD_BYTES]) -> u32 {
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&bytes[..4]);
        checksum.update(&bytes[8..]);
        checksum.finalize()
    }
}

/// Returns some of these bytes, which must be within them.
fn part<const LENGTH: usize>(bytes: &[u8], from: usize) -> [u8; LENGTH] {
    let mut part = [0; LENGTH];
    part.copy_from_slice(&bytes[from..from + LENGTH]);
    part
}

/// Reads the frames of a source one by one and stores one at a time.
#[derive(Debug)]
pub(super) struct FrameReader<R> {
    source: BufReader<R>,
    format: u8,
    /// The number of bytes that were read.
    at: u64,
    /// The maximum number of bytes to read.
    max_bytes: u64,
    number: u64,
    previous: u32,
}

/// The next item in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// A frame of this kind.
    Frame(Kind),
    /// The end of the file, without a frame [`END`]. Format 3 only.
    Truncated,
}

impl<R> FrameReader<R> {
    /// The number of bytes that were read.
    pub(super) fn position(&self) -> u64 {
        self.at
    }
}

impl<R: Read> FrameReader<R> {
    /// Reads the header.
    pub(super) fn begin(source: R, max_bytes: u64) -> Result<Self, Error> {
        let source = BufReader::with_capacity(BUFFER_BYTES, source);
        let mut reader = Self { source, format: FORMAT, at: 0, max_bytes, number: 0, previous: 0 };
        let mut header = [0; 8];
        let length = reader.fill(&mut header)?;
        if length < header.len() {
            return Err(Error::format(format!("it has {length} bytes, too few for a recording")));
        }
        if header[..7] != *MAGIC {
            return Err(Error::format(
                "it does not begin as one; is it a file that this profiler saved?",
            ));
        }
        reader.format = header[7];
        reader.previous = crc32fast::hash(&header);
        match reader.format {
            1..=FORMAT => Ok(reader),
            0 => Err(Error::format("it has format 0, which no profiler-core writes")),
            format => Err(Error::format(format!(
                "it has format {format}, and this version reads formats up to {FORMAT}: use a newer profiler-core",
            ))),
        }
    }

    pub(super) fn format(&self) -> u8 {
        self.format
    }

    /// Reads the next frame; its content replaces the content of the buffer.
    pub(super) fn next(&mut self, content: &mut Vec<u8>) -> Result<Next, Error> {
        match self.format {
            ..FIRST_CHECKED => self.next_unchecked(content).map(Next::Frame),
            _ => self.next_checked(content),
        }
    }

    /// Like [`next`](Self::next) in a file that still grows: an incomplete frame is left, and read
    /// again by the next call. A content of more than `most_bytes` is an error.
    pub(super) fn next_of_growing(
        &mut self,
        content: &mut Vec<u8>,
        most_bytes: u64,
    ) -> Result<Next, Error>
    where
        R: Seek,
    {
        let begin = self.at;
        self.max_bytes = begin.saturating_add(most_bytes);
        let next = self.next(content)?;
        if next == Next::Truncated {
            self.source.seek(SeekFrom::Start(begin)).map_err(Error::read)?;
            self.at = begin;
        }
        Ok(next)
    }

    /// Verifies that nothing follows the last frame. Reads one byte at most.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        let at = self.at;
        match self.source.fill_buf() {
            Ok([]) => Ok(()),
            Ok(_) => Err(Error::format(format!(
                "bytes follow its last frame, which ends at byte {at}: something was appended, or two files were put \
                 together; cut it there to read the first"
            ))),
            Err(error) => Err(Error::read(error)),
        }
    }

    fn next_checked(&mut self, content: &mut Vec<u8>) -> Result<Next, Error> {
        let (number, begin) = (self.number, self.at);
        let mut bytes = [0; HEAD_BYTES];
        if self.fill(&mut bytes)? < HEAD_BYTES || bytes[..8] == [0; 8] {
            return Ok(Next::Truncated);
        }
        let damaged = |what: &str| {
            Error::format(format!(
                "its frame {number}, at byte {begin}, {what}; get another copy of the file"
            ))
        };
        let Some((head, checksum)) = Head::from_bytes(&bytes) else {
            return Err(damaged("is damaged: the checksum of its head does not match"));
        };
        if head.number != number || head.previous != self.previous {
            let found = head.number;
            return Err(damaged(&format!(
                "is number {found} of another place or another recording: frames were removed, repeated or reordered"
            )));
        }
        let padded = head.length.saturating_add(padding_of(head.length));
        if self.content(padded, content)? < padded {
            return Ok(Next::Truncated);
        }
        if crc32fast::hash(content) != head.content {
            let kind = String::from_utf8_lossy(&head.kind);
            return Err(damaged(&format!(
                "{kind:?}, is damaged: the checksum of its content does not match"
            )));
        }
        // CAST: the content is in memory.
        content.truncate(head.length as usize);
        (self.number, self.previous) = (number + 1, checksum);
        Ok(Next::Frame(head.kind))
    }

    fn next_unchecked(&mut self, content: &mut Vec<u8>) -> Result<Kind, Error> {
        let begin = self.at;
        let cut_short = |what: &str, length: u64, found: u64| {
            Error::format(format!(
                "it ends in the middle of {what}: at byte {begin} {length} bytes are missing, {found} are there; the \
                 file was cut short"
            ))
        };
        let mut bytes = [0; 12];
        let found = self.fill(&mut bytes)?;
        if found < bytes.len() {
            return Err(cut_short("a frame's head", bytes.len() as u64, found as u64));
        }
        let kind: Kind = part(&bytes, 0);
        if !kind.iter().all(u8::is_ascii_uppercase) {
            return Err(Error::format(format!(
                "at byte {begin} no frame begins: it is damaged; get another copy of the file"
            )));
        }
        let length = u64::from_le_bytes(part(&bytes, 4));
        let found = self.content(length, content)?;
        if found < length {
            let what = format!("the frame {:?}", String::from_utf8_lossy(&kind));
            return Err(cut_short(&what, length, found));
        }
        self.number += 1;
        Ok(kind)
    }

    /// Reads `length` bytes of content, or the remaining ones. Its memory grows with the received
    /// bytes.
    fn content(&mut self, length: u64, content: &mut Vec<u8>) -> Result<u64, Error> {
        content.clear();
        let end = self.at.saturating_add(length);
        if end > self.max_bytes {
            return Err(too_large(end, self.max_bytes));
        }
        let mut found = 0;
        while found < length {
            let step = (length - found).min(found.max(STEP_BYTES));
            // CAST: a step fits.
            content.try_reserve_exact(step as usize).map_err(|_| {
                Error::format(format!(
                    "there is no memory for a frame of {length} bytes at byte {}",
                    self.at
                ))
            })?;
            let read = self.source.by_ref().take(step).read_to_end(content);
            let read = read.map_err(Error::read)? as u64;
            self.at += read;
            found += read;
            if read < step {
                break;
            }
        }
        Ok(found)
    }

    /// Fills the buffer as far as the source has bytes; returns their number.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut found = 0;
        while found < buffer.len() {
            match self.source.read(&mut buffer[found..]) {
                Ok(0) => break,
                Ok(read) => found += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::read(error)),
            }
        }
        self.at += found as u64;
        Ok(found)
    }
}

/// The error for a file that has, or claims to have, `bytes` bytes.
pub(super) fn too_large(bytes: u64, max_bytes: u64) -> Error {
    Error::format(format!(
        "it has {bytes} bytes or more, and the limit is {max_bytes}: raise the limit (Recording::load_up_to, \
         gpuprof --max-bytes) if the file is really that long"
    ))
}
