//! Traces of `torch.profiler` (Kineto): reading the JSON of `export_chrome_trace`.

mod json;
mod rows;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use serde_json::error::Category;

use crate::error::{Error, Kind};
use profiler_core::Recording;
use profiler_core::profile::Profile;

/// Reads a trace of `torch.profiler`: the file of `export_chrome_trace`, also compressed with gzip.
///
/// Annotations (`record_function`, `ProfilerStep#N`) and operators are
/// [ranges](profiler_core::Range) of their thread. Calls are matched to ranges by thread and time,
/// and GPU operations to calls by correlation id, as in a capture of Nsight Systems: see
/// [`Attribution::Contained`](profiler_core::profile::Attribution::Contained). A call belongs to a
/// range that it outlasts by up to a microsecond, to which older traces cut times.
///
/// A trace lacks results of calls, graph dependencies, clocks and bandwidths of devices, and waits
/// unless `cuda_sync` events were on. Dynamic shared memory includes the static part.
/// [`health`](Profile::health) counts calls without a record, events that could not be read and
/// events of kinds that are not used, such as functions of Python and allocations. There is no
/// [`recording`](Profile::recording).
///
/// # Errors
/// The file cannot be read, or has more than [`Recording::MAX_BYTES`] when unpacked.
/// [`is_format`](Error::is_format): it is no such trace, or a damaged one.
pub fn read(path: impl AsRef<Path>) -> Result<Profile, Error> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|source| Error::io("open", path, source))?;
    read_text(file, Recording::MAX_BYTES).map_err(|failure| match failure {
        Failure::Io(source) => Error::io("read", path, source),
        Failure::Format(what) => capture(&format!("{}: {what}", path.display())),
        Failure::Rows(error) => error,
    })
}

/// As [`read`], from a file, a pipe or a socket, up to `max_bytes` when unpacked.
///
/// # Errors
/// As for [`read`].
pub fn read_from(source: impl Read, max_bytes: u64) -> Result<Profile, Error> {
    read_text(source, max_bytes).map_err(|failure| match failure {
        Failure::Io(error) => capture(&format!("the trace could not be read: {error}")),
        Failure::Format(what) => capture(&what),
        Failure::Rows(error) => error,
    })
}

fn capture(what: &str) -> Error {
    Error::new(Kind::Capture { what: what.to_owned() })
}

enum Failure {
    Io(io::Error),
    Format(String),
    Rows(Error),
}

const GZIP: [u8; 2] = [0x1f, 0x8b];

fn read_text(mut source: impl Read, max_bytes: u64) -> Result<Profile, Failure> {
    let mut magic = Vec::new();
    source.by_ref().take(2).read_to_end(&mut magic).map_err(Failure::Io)?;
    let is_gzip = magic == GZIP;
    let source = io::Cursor::new(magic).chain(source);
    let trace = if is_gzip {
        parse(MultiGzDecoder::new(BufReader::new(source)), max_bytes)?
    } else {
        parse(source, max_bytes)?
    };
    if !trace.is_torch() {
        let why = "its events have no category of torch.profiler";
        return Err(Failure::Format(format!("{why}: {GIVE}")));
    }
    rows::joined(trace).map(Profile::from).map_err(Failure::Rows)
}

const GIVE: &str =
    "give the JSON that torch.profiler's export_chrome_trace wrote, and unpack other files";

fn parse(text: impl Read, max_bytes: u64) -> Result<json::Trace, Failure> {
    let mut text = BufReader::new(text).take(max_bytes);
    let parsed = json::parse(&mut text);
    parsed.map_err(|error| match error.classify() {
        Category::Eof if text.limit() == 0 => Failure::Format(format!(
            "it has more than {max_bytes} bytes when unpacked: raise the limit (kineto::read_from, \
             gpuprof --max-bytes), or profile fewer steps"
        )),
        Category::Eof => Failure::Format(format!("the file is cut off ({error}): {AGAIN}")),
        Category::Io => match io::Error::from(error) {
            error if is_damage(&error) => Failure::Format(format!(
                "the compressed file is damaged or cut off ({error}): {AGAIN}"
            )),
            error => Failure::Io(error),
        },
        Category::Syntax | Category::Data => {
            Failure::Format(format!("it is no trace of torch.profiler ({error}): {GIVE}"))
        }
    })
}

const AGAIN: &str =
    "copy or export it again; a trace is whole once export_chrome_trace has returned";

/// True for an error of the decoder.
fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}
