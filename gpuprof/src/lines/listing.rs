//! The source beside sampled lines.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use profiler_base::display::{Layout, Tone};
use profiler_base::text::printable;
use profiler_base::units::percent;
use profiler_core::Profile;
use profiler_core::query::SampledPlace;

use super::bar;
use crate::failure::Failure;

/// Lines shown before and after a sampled one.
const AROUND: usize = 2;
/// The most folders and files that are looked through, and the largest file that is read.
const MOST_ENTRIES: usize = 100_000;
const MOST_BYTES: u64 = 16 << 20;
/// Lines with less of the samples are not sampled ones.
const LEAST: f64 = 0.001;

/// The files of a folder by name.
pub(super) struct Sources {
    folder: PathBuf,
    files: BTreeMap<String, Vec<PathBuf>>,
    recorded_at: Option<std::time::SystemTime>,
}

impl Sources {
    pub(super) fn new(folder: &Path, profile: &Profile) -> Result<Self, Failure> {
        if let Err(error) = fs::read_dir(folder) {
            return Err(Failure::Error(format!("could not read {}: {error}", folder.display())));
        }
        let mut files: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        let mut folders = vec![folder.to_owned()];
        let mut entries = 0;
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
                entries += 1;
                // Links are not followed: they may lead in a circle.
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                    Ok(kind) if kind.is_file() => {
                        let name = entry.file_name().to_string_lossy().into_owned();
                        files.entry(name).or_default().push(entry.path());
                    }
                    _ => {}
                }
            }
            if entries >= MOST_ENTRIES {
                break;
            }
        }
        let seconds = profile.recording_info().recorded_at_s;
        let recorded_at =
            seconds.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
        Ok(Self { folder: folder.to_owned(), files, recorded_at })
    }

    /// Writes the lines around sampled ones, file by file.
    pub(super) fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        places: &[SampledPlace<'_>],
        layout: Layout,
    ) -> fmt::Result {
        let mut files: BTreeMap<&str, BTreeMap<u32, f64>> = BTreeMap::new();
        for place in places {
            if let Some((file, line)) = place.line {
                *files.entry(file).or_default().entry(line).or_default() += place.share;
            }
        }
        let largest = files.values().flat_map(BTreeMap::values).copied().fold(0.0, f64::max);
        files.iter().try_for_each(|(file, lines)| self.write_file(f, file, lines, largest, layout))
    }

    fn write_file(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        shares: &BTreeMap<u32, f64>,
        largest: f64,
        layout: Layout,
    ) -> fmt::Result {
        let name = printable(name);
        let path = match self.files.get(&*name).map(Vec::as_slice) {
            Some([path]) => path,
            Some(several) => {
                let count = several.len();
                return writeln!(
                    f,
                    "\n{name}: {count} files in {} have this name",
                    self.folder.display()
                );
            }
            None => return writeln!(f, "\n{name}: not found in {}", self.folder.display()),
        };
        let about = fs::metadata(path);
        if about.as_ref().is_ok_and(|about| about.len() > MOST_BYTES) {
            return writeln!(f, "\n{}: too large to show", path.display());
        }
        let text = match fs::read(path) {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => return writeln!(f, "\n{}: {error}", path.display()),
        };
        let modified = about.and_then(|about| about.modified()).ok();
        let changed = match modified.zip(self.recorded_at) {
            Some((modified, recorded_at)) if modified > recorded_at + Duration::from_secs(1) => {
                " (changed since the recording: lines may have moved)"
            }
            _ => "",
        };
        writeln!(f, "\n{}{changed}", layout.paint(Tone::Heading, &path.display().to_string()))?;
        let rows = (1..).zip(text.lines()).map(|(number, line): (u32, _)| Row {
            share: shares.get(&number).copied().unwrap_or(0.0),
            text: format!("{number:>5}  {}", printable(&line.replace('\t', "    "))),
        });
        write_rows(f, rows, largest)
    }
}

/// A line of a source, or an instruction.
pub(super) struct Row {
    /// Its share of the samples.
    pub(super) share: f64,
    pub(super) text: String,
}

/// Writes rows with samples, and those around them. `largest` is the share with the longest bar.
pub(super) fn write_rows(
    f: &mut fmt::Formatter<'_>,
    rows: impl Iterator<Item = Row>,
    largest: f64,
) -> fmt::Result {
    let mut write = |Row { share, text }: Row| {
        let (share, bar) = match share >= LEAST {
            true => (percent(share), bar(share, largest)),
            false => Default::default(),
        };
        writeln!(f, "{}", format!("{share:>7} {bar:<20} {text}").trim_end())
    };
    let mut before: VecDeque<Row> = VecDeque::new();
    let (mut left_after, mut has_left_out, mut has_written) = (0, false, false);
    for row in rows {
        if row.share >= LEAST {
            if has_left_out && has_written {
                write(Row { share: 0.0, text: "…".to_owned() })?;
            }
            before.drain(..).try_for_each(&mut write)?;
            write(row)?;
            (left_after, has_left_out, has_written) = (AROUND, false, true);
        } else if left_after > 0 {
            left_after -= 1;
            write(row)?;
        } else {
            before.push_back(row);
            if before.len() > AROUND {
                before.pop_front();
                has_left_out = true;
            }
        }
    }
    Ok(())
}
