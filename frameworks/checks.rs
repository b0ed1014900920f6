//! What the examples of candle, burn and tch share: options, and what they print to be checked. No part of what a user copies.
//!
//! Each includes it by its path. `frameworks/on_gpu.py` reads what `--checks` prints.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use profiler_core::Profile;

/// The value of an option: the next argument.
pub(crate) type Value<'a> = dyn FnMut() -> Result<String, String> + 'a;

/// Options of all examples.
pub(crate) struct Options {
    /// Profiles nothing: ranges are for tools that read NVTX alone.
    pub(crate) plain: bool,
    /// Waits for the GPU wherever a range begins or ends.
    pub(crate) alone: bool,
    pub(crate) steps: usize,
    /// The file of the profile.
    pub(crate) save: Option<String>,
    /// Prints the lines that `on_gpu.py` reads, too.
    checks: bool,
    start: Instant,
}

impl Options {
    /// The program's options; `own` takes those of the example, with their values from the arguments after them, and returns
    /// false for others.
    pub(crate) fn parse(
        steps: usize,
        mut own: impl FnMut(&str, &mut Value<'_>) -> Result<bool, Box<dyn Error>>,
    ) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            plain: false,
            alone: false,
            steps,
            save: None,
            checks: false,
            start: Instant::now(),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--plain" => options.plain = true,
                "--alone" => options.alone = true,
                "--checks" => options.checks = true,
                "--steps" => options.steps = value()?.parse()?,
                "--save" => options.save = Some(value()?),
                other if own(other, &mut value)? => {}
                other => return Err(format!("unknown option: {other}").into()),
            }
        }
        Ok(options)
    }

    /// Prints at once what the program does from now on, with the seconds since its start.
    pub(crate) fn doing(&self, what: &str) {
        println!("[{:7.2} s] {what}", self.start.elapsed().as_secs_f64());
    }

    /// Prints the times of steps.
    pub(crate) fn print_times(&self, times: &[Duration]) {
        let mut sorted = times.to_vec();
        sorted.sort();
        if let [first, .., last] = sorted[..] {
            let median = sorted[sorted.len() / 2];
            println!("{} steps: median {median:?}, from {first:?} to {last:?}", sorted.len());
        }
        let ns: Vec<_> = times.iter().map(Duration::as_nanos).collect();
        self.check("step_ns", &format!("{ns:?}"));
    }

    /// Prints a line for `on_gpu.py`, with a value in JSON.
    pub(crate) fn check(&self, name: &str, value: &str) {
        if self.checks {
            println!("checks {{{name:?}: {value}}}");
        }
    }

    /// Prints the kernels of each range. Saves the profile to the file of `--save`.
    pub(crate) fn finish(&self, profile: &Profile) -> Result<(), Box<dyn Error>> {
        println!("{profile}");
        let mut ranges: BTreeMap<String, [u64; 4]> = BTreeMap::new();
        // A kernel ran in what was open after the last wait before it.
        let waits: Vec<_> = profile.marks().map(|mark| mark.at()).collect();
        let wait_before = |kernel: Duration| {
            waits[..waits.partition_point(|wait| *wait <= kernel)].last().copied()
        };
        let mut ran: Vec<_> =
            profile.kernels().filter_map(|kernel| wait_before(kernel.start()?)).collect();
        ran.sort();
        for range in profile.ranges() {
            let [exact, shared, inferred, by_time] = ranges.entry(range.node().path()).or_default();
            *exact += range.inclusive().kernels;
            *shared += range.shared().kernels;
            *inferred += range.inferred().kernels;
            let before = |time: Duration| ran.partition_point(|at| *at < time);
            *by_time += (before(range.end()) - before(range.start())) as u64;
        }
        let (all, outside) = (profile.totals().kernels, profile.outside_ranges().kernels);
        println!("\n{} of {all} kernels in ranges", all - outside);
        for (path, [exact, shared, inferred, by_time]) in &ranges {
            let by_time = if self.alone { format!(", {by_time} by time") } else { String::new() };
            println!("{path}: {exact} kernels, {shared} shared, {inferred} inferred{by_time}");
        }
        let by_device = by_device(profile);
        if let [_, _, ..] = by_device[..] {
            for (device, paths) in &by_device {
                println!("\non device {device}:");
                paths.iter().for_each(|(path, count)| println!("{path}: {count} kernels"));
            }
        }
        self.print_checks(profile, &ranges, &by_device);
        if let Some(file) = &self.save {
            profile.save(file)?;
        }
        Ok(())
    }

    /// Each line is JSON after its first word.
    fn print_checks(
        &self,
        profile: &Profile,
        ranges: &BTreeMap<String, [u64; 4]>,
        by_device: &[(u32, BTreeMap<String, u64>)],
    ) {
        let (totals, outside) = (profile.totals(), profile.outside_ranges());
        self.check("kernels", &totals.kernels.to_string());
        self.check("outside", &outside.kernels.to_string());
        self.check("kernel_ns", &totals.kernel_time().as_nanos().to_string());
        self.check("outside_ns", &outside.kernel_time().as_nanos().to_string());
        self.check("complete", &profile.health().is_complete().to_string());
        self.check("ranges", &format!("{ranges:?}"));
        let devices: Vec<_> =
            by_device.iter().map(|(device, paths)| format!("\"{device}\": {paths:?}")).collect();
        self.check("by_device", &format!("{{{}}}", devices.join(", ")));
        let names: Vec<_> = profile.kernels().map(|kernel| kernel.name()).collect();
        self.check("order", &format!("{names:?}"));
    }
}

/// Makes every range of the main thread run alone: what was issued before has ended when it begins, and its own work when it ends.
pub(crate) fn synchronise_at_boundaries(synchronise: fn()) {
    static SYNCHRONISE: OnceLock<fn()> = OnceLock::new();
    fn changed() {
        let is_of_program = std::thread::current().name() == Some("main");
        if let Some(synchronise) = SYNCHRONISE.get().filter(|_| is_of_program) {
            synchronise();
            nvtx::mark("waited");
        }
    }
    SYNCHRONISE.get_or_init(|| synchronise);
    profiler_core::Context::on_change(changed);
}

/// For each device, the kernels of each innermost range.
fn by_device(profile: &Profile) -> Vec<(u32, BTreeMap<String, u64>)> {
    let of = |device: u32| {
        let mut paths = BTreeMap::new();
        for group in profile.query().device(device).kernels().by_range().iter() {
            let path = group.key().node().map_or("outside ranges".to_owned(), |node| node.path());
            *paths.entry(path).or_default() += group.count();
        }
        paths
    };
    let devices = profile.query().kernels().by_device();
    let mut devices: Vec<_> = devices.iter().map(|group| *group.key()).collect();
    devices.sort_unstable();
    devices.into_iter().map(|device| (device, of(device))).collect()
}
