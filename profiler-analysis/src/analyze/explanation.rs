//! All that is known of a kernel: time by range, launch shape, occupancy, stalls, lines, and what to
//! try first.

use std::fmt;
use std::time::Duration;

use cupti::counters::MemoryLevel;
use profiler_base::display::{DisplayOptions, Layout, Tone};
use profiler_base::display_by_default_layout;
use profiler_base::statistics::as_ns;
use profiler_base::text::printable;
use profiler_base::units::{NAME_WIDTH, number, percent, shortened, si, time};
use profiler_core::query::{Query, SampledPlace, Stalls};
use serde::Serialize;

use crate::analyze::kernels::stalls::StallReason;
use crate::analyze::kernels::{Classifier, KernelShape, launches};
use crate::analyze::roofline::{CountedPoint, CountedRoofline};

/// The ranges, shapes and lines of an explanation.
const SHOWN: usize = 5;

/// All that a profile knows of the kernels of a query, which should be those of one name. Made by
/// [`Query::explanation`](crate::prelude::QueryExt::explanation). `{}` fits a screen.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KernelExplanation {
    /// The name of the kernel with the longest time.
    pub name: String,
    #[serde(skip)]
    demangled: String,
    /// The number of launches.
    pub launches: u64,
    /// The sum of their GPU times.
    #[serde(rename = "time_ns", serialize_with = "as_ns")]
    pub time: Duration,
    /// Their share of the time of all kernels of the profile, 0 to 1.
    pub share: f64,
    /// The shortest, mean and longest time.
    #[serde(skip)]
    pub times: [Duration; 3],
    /// The ranges with most of their time, and its share, 0 to 1.
    pub ranges: Vec<(String, f64)>,
    /// The launch shapes, largest estimated saving first.
    pub shapes: Vec<KernelShape>,
    /// Instruction samples by state; `None` if there are none.
    pub stalls: Option<Stalls>,
    /// The lines with most samples: place, share of the samples, and the states in words.
    pub lines: Vec<(String, f64, String)>,
    /// Its counted work under the roofs, if [given](Self::with_counted).
    pub roofline: Option<CountedPoint>,
    /// The remedies with their evidence, most promising first.
    pub advice: Vec<String>,
}

/// [`QueryExt::explanation`](crate::prelude::QueryExt::explanation).
pub(crate) fn explanation(query: &Query<'_>) -> Option<KernelExplanation> {
    let query = query.clone().kernels();
    let (groups, statistics) = (query.by_kernel(), query.statistics());
    let name = *groups.as_slice().first()?.key();
    let mut kernels = query.iter().filter_map(|operation| operation.as_kernel());
    let demangled = kernels.find(|kernel| kernel.name() == name.as_str())?.demangled_name();
    let all = query.profile().totals().kernel_time().as_secs_f64();
    let total = query.gpu_time();
    let range = |group: &profiler_core::query::Group<profiler_core::query::RangePath<'_>>| {
        (group.key().to_string(), group.share())
    };
    let ranges = query.by_range().as_slice().iter().take(SHOWN).map(range).collect();
    let mut shapes = launches::launch_shapes(&query, &Classifier::new()).rows().to_vec();
    shapes.truncate(SHOWN);
    let samples = query.instructions();
    let line = |line: &SampledPlace<'_>| (line.place(), line.share, line.stalls.to_string());
    let mut advice = Vec::new();
    if let Some(reason) = StallReason::from_samples(&samples)
        && let Some(remedy) = reason.remedy()
    {
        advice.push(format!("it {}: {remedy}", reason.text()));
    }
    for finding in shapes.iter().take(1).flat_map(|row| &row.findings) {
        advice.push(format!("{finding}: {}", finding.kind.advice()));
    }
    Some(KernelExplanation {
        name: name.to_string(),
        demangled,
        launches: query.count(),
        time: total,
        share: if all > 0.0 { total.as_secs_f64() / all } else { 0.0 },
        times: [statistics.min(), statistics.mean(), statistics.max()],
        ranges,
        shapes,
        stalls: (!samples.is_empty()).then(|| samples.stalls()),
        lines: samples.by_line().iter().take(SHOWN).map(line).collect(),
        roofline: None,
        advice,
    })
}

impl KernelExplanation {
    /// Adds the counted work of the kernel, if it is among these points
    /// ([`CountedKernels::roofline`](crate::counters::CountedKernels::roofline)).
    #[must_use]
    pub fn with_counted(mut self, counted: &CountedRoofline) -> Self {
        let mut points = counted.points.iter();
        let is_it = |point: &&CountedPoint| point.is_kernel && point.name == self.demangled;
        self.roofline = points.find(is_it).cloned();
        self
    }
}

/// `2.1 TFLOP/s, mostly f32 fma; 0.25 FLOP/B of dram; 83.0 % of the roof of dram`.
fn roofline_text(point: &CountedPoint) -> String {
    let mut parts = Vec::new();
    if let Some(achieved) = point.achieved().filter(|achieved| *achieved > 0.0) {
        let mostly = point.main_type().map(|(dtype, pipe)| format!(", mostly {dtype} {pipe}"));
        parts.push(si(achieved, "FLOP/s") + &mostly.unwrap_or_default());
    }
    if let Some(intensity) = point.intensity_at(MemoryLevel::Dram) {
        parts.push(format!("{} FLOP/B of {}", number(intensity), MemoryLevel::Dram.name()));
    }
    match point.of_roof() {
        Some((limit, share)) => parts.push(format!("{} of the roof of {limit}", percent(share))),
        None => parts.push("the roofs are not known".to_owned()),
    }
    parts.join("; ")
}

impl DisplayOptions for KernelExplanation {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [min, mean, max] = self.times.map(time);
        let name = shortened(&self.name, layout.name_width(NAME_WIDTH));
        writeln!(f, "{}", layout.paint(Tone::Heading, &name))?;
        writeln!(
            f,
            "  time       {} in {} launches, {} of all kernels; mean {mean}, {min} to {max}",
            time(self.time),
            self.launches,
            percent(self.share)
        )?;
        let row = |f: &mut fmt::Formatter<'_>, at: usize, head: &str, text: &str| {
            writeln!(f, "  {:<10} {text}", if at == 0 { head } else { "" })
        };
        for (at, (path, share)) in self.ranges.iter().enumerate() {
            row(f, at, "ranges", &format!("{:>7} {}", percent(*share), printable(path)))?;
        }
        for (at, KernelShape { instances, shape, .. }) in self.shapes.iter().enumerate() {
            let occupancy = shape.achievable();
            let limiters: Vec<&str> = occupancy.limiters().map(|limiter| limiter.name()).collect();
            let text = format!(
                "{instances} x grid {:?}, block {:?}: {:.2} waves, occupancy {} limited by {}; a thread has {} \
                 registers and {} B of local memory, a block {} B of shared memory",
                shape.grid,
                shape.block,
                shape.waves().unwrap_or(0.0),
                percent(occupancy.fraction()),
                limiters.join(" and "),
                shape.needs.registers_per_thread,
                shape.local_bytes_per_thread,
                shape.needs.static_shared_bytes + shape.needs.dynamic_shared_bytes,
            );
            row(f, at, "shape", &text)?;
        }
        match &self.stalls {
            Some(stalls) => {
                row(f, 0, "warps", &format!("{stalls}; {:.0} samples", stalls.total()))?
            }
            None => row(f, 0, "warps", "not sampled: record with `gpuprof run --lines`")?,
        }
        for (at, (place, share, stalls)) in self.lines.iter().enumerate() {
            row(f, at, "lines", &format!("{:>7} {place}: {stalls}", percent(*share)))?;
        }
        if let Some(point) = &self.roofline {
            row(f, 0, "roofline", &roofline_text(point))?;
        }
        for (at, advice) in self.advice.iter().enumerate() {
            row(f, at, "try", advice)?;
        }
        Ok(())
    }
}

display_by_default_layout!(KernelExplanation);
