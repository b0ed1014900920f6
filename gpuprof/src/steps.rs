//! `gpuprof steps` and `gpuprof requests`: percentiles of the instances of a range.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use profiler_analysis::prelude::*;
use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::statistics::Statistics;
use profiler_base::table::Table;
use profiler_base::text::printable;
use profiler_base::units::{nanoseconds as ns, time};
use profiler_core::Profile;
use profiler_core::query::{Endpoint, Step};
use serde::Serialize;

use crate::args::{OutputFormat as _, RequestsArgs, StepsArgs};
use crate::failure::Failure;
use crate::suggest;

/// The times of steps or requests, each with its percentiles.
#[derive(Serialize)]
struct Times {
    name: String,
    count: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl Times {
    fn new(name: &str, times: &Statistics) -> Self {
        let percentile = |percent| ns(times.percentile(percent));
        Self {
            name: name.to_owned(),
            count: times.count(),
            p50_ns: percentile(50.0),
            p90_ns: percentile(90.0),
            p99_ns: percentile(99.0),
            max_ns: ns(times.max()),
        }
    }

    fn table(name: &str, rows: &[Self], layout: Layout) -> String {
        let mut table = Table::new([name, "count", "p50", "p90", "p99", "max"], 1);
        for row in rows {
            let times = [row.p50_ns, row.p90_ns, row.p99_ns, row.max_ns];
            let times = times.map(|ns| time(Duration::from_nanos(ns)));
            let first = [printable(&row.name).into_owned(), row.count.to_string()];
            table.add_row(first.into_iter().chain(times));
        }
        table.render(layout)
    }
}

#[derive(Serialize)]
struct Steps {
    range: String,
    steps: usize,
    /// Steps at the begin that are in no time.
    warm_up: usize,
    times: Vec<Times>,
    longest: Vec<LongStep>,
}

/// A step, by its number from 0.
#[derive(Serialize)]
struct LongStep {
    number: usize,
    start_ns: u64,
    host_ns: u64,
    gpu_ns: u64,
}

impl DisplayOptions for Steps {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { range, steps, warm_up, times, longest } = self;
        let without = if *warm_up == 0 { "" } else { ", which is not counted" };
        writeln!(
            f,
            "{steps} instances of {}, {warm_up} of them warm-up{without}\n",
            printable(range)
        )?;
        writeln!(f, "{}", Times::table("time", times, layout))?;
        if longest.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(["longest", "start", "host time", "GPU time"], 0);
        for step in longest {
            let times = [step.start_ns, step.host_ns, step.gpu_ns];
            let times = times.map(|ns| time(Duration::from_nanos(ns)));
            table.add_row([step.number.to_string()].into_iter().chain(times));
        }
        write!(f, "\n{}", table.render(layout))
    }
}

pub(crate) fn steps(args: &StepsArgs) -> Result<(), Failure> {
    let ((output, profile), format) = (args.io.open()?, args.format.get());
    let file = args.io.file.display();
    let range = args.range.clone().or_else(|| profile.dependencies().steps_path());
    let range = range.ok_or_else(|| {
        Failure::Error(format!("{file} has no range that repeats: name one with --range"))
    })?;
    let all = profile.steps(&range);
    if all.is_empty() {
        return Err(no_range(&file.to_string(), &profile, &range));
    }
    let warm_up = if args.warm_up { 0 } else { all.warm_up() };
    let counted = if args.warm_up { all.clone() } else { all.warm() };
    let periods = counted.iter().filter_map(Step::period).map(ns).collect();
    let times = vec![
        Times::new("from start to start", &Statistics::from_nanos(periods)),
        Times::new("host time", &counted.statistics(Step::host_time)),
        Times::new("GPU time", &counted.statistics(Step::gpu_time)),
        Times::new("GPU busy", &counted.statistics(Step::busy_time)),
        Times::new("GPU idle", &counted.statistics(Step::idle)),
    ];
    let mut longest: Vec<&Step<'_>> = counted.iter().collect();
    longest.sort_by_key(|step| Reverse(step.host_time()));
    let long = |step: &&Step<'_>| LongStep {
        number: step.number(),
        start_ns: ns(step.range().start()),
        host_ns: ns(step.host_time()),
        gpu_ns: ns(step.gpu_time()),
    };
    let longest = longest.iter().take(args.limit).map(long).collect();
    let steps = Steps { range, steps: all.len(), warm_up, times, longest };
    output.text_or_json(format.is_for_people(), |out| out.show(&steps), &steps)
}

#[derive(Serialize)]
struct Requests {
    range: String,
    /// By endpoint, longest GPU time first.
    endpoints: Vec<RequestTimes>,
}

#[derive(Serialize)]
struct RequestTimes {
    endpoint: String,
    /// Requests without an end, which are in no time.
    open: u64,
    times: Vec<Times>,
}

impl RequestTimes {
    fn new(of: &Endpoint) -> Self {
        let times = [
            ("from start to end", &of.total),
            ("pending", &of.pending),
            ("waiting", &of.waiting),
            ("host", &of.host),
            ("queued", &of.queued),
            ("executing", &of.executing),
            ("GPU time", &of.gpu_time),
        ];
        let times = times.map(|(name, times)| Times::new(name, times)).into();
        Self { endpoint: of.name.clone(), open: of.open, times }
    }
}

impl DisplayOptions for Requests {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, of) in self.endpoints.iter().enumerate() {
            let space = if at == 0 { "" } else { "\n" };
            let name = printable(&of.endpoint);
            writeln!(f, "{space}{}", Times::table(&name, &of.times, layout))?;
            if of.open != 0 {
                writeln!(f, "{} without an end are not counted", of.open)?;
            }
        }
        write!(
            f,
            "\nA request is pending until a thread works on it, and waiting while none does later; \
             its work is queued or executing on the GPU; the rest is host. GPU time has parts of batches."
        )
    }
}

pub(crate) fn requests(args: &RequestsArgs) -> Result<(), Failure> {
    let ((output, profile), format) = (args.io.open()?, args.format.get());
    let mut query = profile.requests(&args.range);
    if let Some(field) = &args.endpoint {
        query = query.endpoint_field(field);
    }
    if let Some(field) = &args.weight {
        query = query.weight_field(field);
    }
    let found = query.find();
    if found.is_empty() {
        return Err(no_range(&args.io.file.display().to_string(), &profile, &args.range));
    }
    let endpoints = found.endpoints().iter().map(RequestTimes::new).collect();
    let requests = Requests { range: args.range.clone(), endpoints };
    output.text_or_json(format.is_for_people(), |out| out.show(&requests), &requests)
}

fn no_range(file: &str, profile: &Profile, range: &str) -> Failure {
    Failure::Error(format!(
        "{file} has no range {range:?}: `gpuprof report` shows those it has{}",
        suggest::range(profile, range)
    ))
}
