//! Raw hardware counts, which can be saved and evaluated without a GPU.

use std::fmt;
use std::path::Path;

use hmac_sha256::Hash;

use super::measured::{Measured, Opened};
use crate::accessors::getters;
use crate::error::{Error, Kind};
use crate::version::Version;

/// The last byte is the format. The file continues with a SHA-256 of the rest, numbers of 8 bytes
/// (little-endian), and texts and bytes, each after its length.
const MAGIC: &[u8; 8] = b"CUPTICD\x01";
const HEAD: usize = MAGIC.len() + 32;

/// The raw counts of ranges or kernels, as CUPTI's library left them (its counter data image), with
/// everything that [`Host::evaluate`](super::Host::evaluate) needs to compute values.
///
/// ```no_run
/// use cupti::counters::{CounterData, HostLibrary};
///
/// # fn main() -> Result<(), cupti::Error> {
/// let data = CounterData::load("step.counts")?; // what RangeProfiler::collect gave on a GPU, saved
/// let host = HostLibrary::open()?.host(data.chip())?; // no GPU needed
/// println!("{}", host.evaluate(&data)?);
/// # Ok(())
/// # }
/// ```
///
/// CUPTI's library trusts an image: a modified one makes it crash or hang. A checksum detects
/// damaged files, which are an error. Forged files are not detected: evaluate only files that you
/// trust.
#[derive(Clone, PartialEq)]
pub struct CounterData {
    /// The ranges, without values.
    pub(super) opened: Measured,
    pub(super) version: Version,
    /// The index of the opened range, for each range of the image.
    pub(super) places: Vec<usize>,
    pub(super) image: Vec<u8>,
}

impl CounterData {
    getters! {
        /// The chip.
        chip: &str = opened.chip;
        /// The version of CUPTI.
        version: Version = version;
        /// The metrics that were requested.
        metrics: &[String] = opened.metrics;
        /// The bytes of CUPTI's image.
        image: &[u8] = image;
    }

    /// The number of counted ranges or kernels.
    pub fn ranges(&self) -> usize {
        self.places.len()
    }

    /// Returns the bytes that [`from_bytes`](Self::from_bytes) reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Measured { chip, passes, runs, dropped, too_deep, metrics, ranges } = &self.opened;
        let mut content = Vec::with_capacity(self.image.len() + 4096);
        number(&mut content, self.version.0 as usize);
        text(&mut content, chip.as_bytes());
        for value in [passes, runs, dropped, too_deep] {
            number(&mut content, *value);
        }
        number(&mut content, metrics.len());
        metrics.iter().for_each(|metric| text(&mut content, metric.as_bytes()));
        number(&mut content, ranges.len());
        for range in ranges {
            text(&mut content, range.name.as_bytes());
            // 0 means none.
            number(&mut content, range.parent.map_or(0, |parent| parent + 1));
            number(&mut content, range.level);
        }
        number(&mut content, self.places.len());
        self.places.iter().for_each(|place| number(&mut content, *place));
        text(&mut content, &self.image);
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&Hash::hash(&content));
        bytes.extend_from_slice(&content);
        bytes
    }

    /// Reads the result of [`to_bytes`](Self::to_bytes). Evaluate the data only if you trust its
    /// source.
    ///
    /// # Errors
    /// The bytes have another type or a newer format, or are damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let damaged =
            || Error::misuse("the counter data is damaged: save it again, or get the file anew");
        let Some((head, content)) = bytes.split_at_checked(HEAD) else {
            return Err(Error::misuse("this is no counter data: it is too short"));
        };
        let (magic, sum) = head.split_at(MAGIC.len());
        if magic[..7] != MAGIC[..7] {
            return Err(Error::misuse(
                "this is no counter data: it does not begin as CounterData::save writes",
            ));
        }
        if magic[7] != MAGIC[7] {
            return Err(Error::misuse(
                "the counter data is of a newer format: read it with a newer version",
            ));
        }
        if Hash::hash(content) != *sum {
            return Err(damaged());
        }
        let mut reader = Reader(content);
        reader.data().filter(|_| reader.0.is_empty()).ok_or_else(damaged)
    }

    /// Writes it to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        std::fs::write(path, self.to_bytes()).map_err(|error| {
            let next = "choose a folder that is there and may be written";
            of_file(path, &format_args!("the counter data cannot be written: {error}; {next}"))
        })
    }

    /// Reads a file that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// The file cannot be read, or those of [`from_bytes`](Self::from_bytes); the text names the
    /// file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| {
            of_file(path, &format_args!("the counter data cannot be read: {error}"))
        })?;
        Self::from_bytes(&bytes).map_err(|error| of_file(path, &error))
    }
}

impl fmt::Debug for CounterData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CounterData")
            .field("opened", &self.opened)
            .field("version", &self.version)
            .field("image_bytes", &self.image.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for CounterData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} metrics of {} ranges on {} by CUPTI {}, {} bytes",
            self.metrics().len(),
            self.places.len(),
            self.chip(),
            self.version,
            self.image.len()
        )
    }
}

#[cold]
fn of_file(path: &Path, error: &dyn fmt::Display) -> Error {
    Error::new(Kind::File { path: path.to_owned(), reason: error.to_string() })
}

fn number(out: &mut Vec<u8>, value: usize) {
    out.extend_from_slice(&(value as u64).to_le_bytes());
}

fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// The unread bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<usize> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        usize::try_from(u64::from_le_bytes(*number)).ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    /// Reads a list after its length. Each element has at least the bytes of a number, so that a
    /// loop with a wrong length ends.
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        let mut list = Vec::with_capacity(count.min(self.0.len() / 8));
        for _ in 0..count {
            list.push(one(self)?);
        }
        Some(list)
    }

    fn data(&mut self) -> Option<CounterData> {
        let version = Version(u32::try_from(self.number()?).ok()?);
        let chip = self.text()?;
        let [passes, runs, dropped, too_deep] =
            [self.number()?, self.number()?, self.number()?, self.number()?];
        let metrics = self.list(Self::text)?;
        let ranges = self.list(|reader| {
            let name = reader.text()?;
            let (parent, level) = (reader.number()?.checked_sub(1), reader.number()?);
            Some(Opened { name, parent, level, values: None })
        })?;
        // A value is found by its metric's name.
        let mut names: Vec<&String> = metrics.iter().collect();
        names.sort_unstable();
        if Opened::misplaced(&ranges).is_some() || names.windows(2).any(|pair| pair[0] == pair[1]) {
            return None;
        }
        let places = self.list(|reader| reader.number().filter(|place| *place < ranges.len()))?;
        let image = self.bytes()?.to_vec();
        let opened = Measured { chip, passes, runs, dropped, too_deep, metrics, ranges };
        Some(CounterData { opened, version, places, image })
    }
}
