//! Finds functions of frames after the run, in the files of modules and in the map of a
//! just-in-time compiler.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::panic::catch_unwind;
use std::path::Path;
use std::time::Duration;

use addr2line::Loader;
use cupti::clock::now_ns;
use rustc_hash::{FxHashMap, FxHashSet};

use super::HostStacks;
use super::modules::{KnownModule, is_loaded_file};
use super::table::{FrameWord, InternedStack};

/// The maximum length of a function's name in bytes; longer names are cut.
const NAME_BYTES: usize = 1024;
/// The maximum time to look up functions at a stop; the remaining frames have only addresses.
const LOOK_UP_FOR: Duration = Duration::from_secs(2);
/// The maximum number of bytes read from a compiler's map.
const MAP_BYTES: u64 = 256 << 20;

/// The functions of frames that were looked up so far, innermost inlined one first.
#[derive(Default)]
pub(super) struct Symbols {
    found: FxHashMap<FrameWord, Vec<String>>,
}

impl Symbols {
    /// The stacks with the functions of their frames.
    pub(super) fn resolve(
        &mut self,
        stacks: &[InternedStack],
        known: &[KnownModule],
    ) -> HostStacks {
        self.look_up(stacks, known);
        let mut all = HostStacks::default();
        let mut functions: FxHashMap<&str, u32> = FxHashMap::default();
        let mut locations: FxHashMap<FrameWord, u32> = FxHashMap::default();
        let mut modules: FxHashMap<u16, u32> = FxHashMap::default();
        // CAST: bounded by the table of stacks.
        for stack in stacks {
            let mut of_stack = Vec::with_capacity(stack.frames.len());
            for frame in &stack.frames {
                let next = locations.len() as u32;
                let location = *locations.entry(*frame).or_insert(next);
                of_stack.push(location);
                if location != next {
                    continue;
                }
                let module = frame.module().and_then(|number| {
                    let module = known.get(usize::from(number))?;
                    let next = modules.len() as u32;
                    let at = *modules.entry(number).or_insert(next);
                    if at == next {
                        all.modules.push((file_name(&module.path), hexadecimal(&module.build_id)));
                    }
                    Some(at)
                });
                let names = self.found.get(frame).into_iter().flatten();
                let names = names.map(|name| {
                    let next = functions.len() as u32;
                    *functions.entry(name).or_insert_with(|| {
                        all.functions.push(name.clone());
                        next
                    })
                });
                let names = names.collect();
                all.locations.push((module, frame.address(), names));
            }
            all.stacks.push((stack.number, stack.is_truncated, of_stack));
        }
        all
    }

    /// Looks up new frames.
    fn look_up(&mut self, stacks: &[InternedStack], known: &[KnownModule]) {
        let frames: FxHashSet<FrameWord> =
            stacks.iter().flat_map(|stack| stack.frames.iter().copied()).collect();
        let mut new: BTreeMap<Option<u16>, Vec<FrameWord>> = BTreeMap::new();
        for frame in frames.into_iter().filter(|frame| !self.found.contains_key(frame)) {
            new.entry(frame.module()).or_default().push(frame);
        }
        let begun_ns = now_ns();
        let is_time_left = || Duration::from_nanos(now_ns().saturating_sub(begun_ns)) < LOOK_UP_FOR;
        // Frames of compilers are first. They may be compiled later, so they are looked up each
        // time.
        for (module, frames) in new {
            let Some(module) = module.and_then(|module| known.get(usize::from(module))) else {
                self.look_up_compiled(&frames);
                continue;
            };
            if !is_time_left() {
                break;
            }
            // If a damaged file makes the parser panic, only the names of that file are lost.
            let found = catch_unwind(|| {
                let symbols = loader(module);
                let frames = frames.iter().take_while(|_| is_time_left());
                let names = frames.map(|frame| {
                    let names = symbols.as_ref().map(|symbols| names(symbols, frame.address()));
                    (*frame, names.unwrap_or_default())
                });
                names.collect::<Vec<_>>()
            });
            match found {
                Ok(found) => self.found.extend(found),
                // Dropping the payload may panic in turn.
                Err(payload) => std::mem::forget(payload),
            }
        }
    }

    /// Finds frames in the map that just-in-time compilers write for perf, including CPython's
    /// trampoline.
    fn look_up_compiled(&mut self, frames: &[FrameWord]) {
        let path = format!("/tmp/perf-{}.map", std::process::id());
        // Another user may have put a pipe there, which would block the reader.
        if !fs::symlink_metadata(&path).is_ok_and(|about| about.is_file()) {
            return;
        }
        let Ok(file) = fs::File::open(path) else { return };
        let mut wanted: BTreeMap<u64, FrameWord> = BTreeMap::new();
        wanted.extend(frames.iter().map(|frame| (frame.address(), *frame)));
        let mut lines = BufReader::new(file.take(MAP_BYTES));
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes != 0) {
            if let Some((start, bytes, name)) = map_entry(&line) {
                for (_, frame) in wanted.range(start..start.saturating_add(bytes)) {
                    self.found.insert(*frame, vec![name.clone()]);
                }
            }
            line.clear();
        }
    }
}

/// Parses a line `START SIZE NAME` of a map, the numbers in hexadecimal. A path in a name is
/// reduced to its last part.
fn map_entry(line: &[u8]) -> Option<(u64, u64, String)> {
    let line = String::from_utf8_lossy(line);
    let mut parts = line.trim_end().splitn(3, ' ');
    let mut number = || u64::from_str_radix(parts.next()?.trim_start_matches("0x"), 16).ok();
    let (start, bytes) = (number()?, number()?);
    // The format of CPython: py::function:/folder/file.py
    let name = parts.next()?;
    let name = match name.split_once(":/") {
        Some((function, path)) => {
            format!("{function}:{}", path.rsplit('/').next().unwrap_or_default())
        }
        None => name.to_owned(),
    };
    Some((start, bytes, cut(&name)))
}

/// The symbols of a module's file, if it is still the one that was loaded.
fn loader(module: &KnownModule) -> Option<Loader> {
    let mut head = Vec::new();
    if !module.build_id.is_empty() {
        let file = fs::File::open(&module.path).ok()?;
        let file = super::sys::map(&file).ok()?;
        head.push(is_loaded_file(&object::File::parse(&file[..]).ok()?, &module.build_id));
    }
    head.iter().all(|same| *same).then(|| Loader::new(&module.path).ok())?
}

/// The functions at an address of a module's file.
fn names(symbols: &Loader, address: u64) -> Vec<String> {
    let mut names = Vec::new();
    if let Ok(mut frames) = symbols.find_frames(address) {
        while let Ok(Some(frame)) = frames.next() {
            if let Some(name) = &frame.function
                && let Ok(name) = name.demangle()
            {
                names.push(cut(&name));
            }
        }
    }
    if names.is_empty()
        && let Some(name) = symbols.find_symbol(address)
    {
        names.push(cut(&addr2line::demangle_auto(Cow::Borrowed(name), None)));
    }
    names
}

/// Removes the hash at the end of Rust's names, and limits the length.
fn cut(name: &str) -> String {
    let name = match name.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            path
        }
        _ => name,
    };
    name[..name.floor_char_boundary(NAME_BYTES)].to_owned()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_have_names_without_folders() {
        let entry = |line: &str| map_entry(line.as_bytes());
        let python = entry("7f00 1a py::train:/home/me/run.py\n");
        assert_eq!(python, Some((0x7f00, 0x1a, "py::train:run.py".to_owned())));
        let other = entry("0x10 0x20 LazyCompile:~f node:internal/x 3");
        assert_eq!(other.map(|(.., name)| name), Some("LazyCompile:~f node:internal/x 3".into()));
        assert_eq!((entry("nonsense"), entry("10 x name"), entry("10 20")), (None, None, None));
    }

    #[test]
    fn names_are_short_and_have_no_hash() {
        assert_eq!(cut("a::b::h0123456789abcdef"), "a::b");
        assert_eq!(cut("a::hello"), "a::hello");
        assert_eq!(cut(&"\u{e4}".repeat(1000)).len(), NAME_BYTES);
    }
}
