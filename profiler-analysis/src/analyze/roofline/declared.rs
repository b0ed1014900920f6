//! Declared work: from fields of ranges, or declared later by path or kernel.

use nvtx::{Dtype, Field, FieldValue, Pipe, Work};
use profiler_base::kernel_names::Pattern;
use profiler_base::setters;

use super::RooflineTrust;
use profiler_core::profile::{Kernel, Profile};

/// The work of one instance.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WorkAmount {
    pub(super) flops: Option<f64>,
    pub(super) bytes: Option<f64>,
    pub(super) dtype: Option<Dtype>,
    pub(super) pipe: Option<Pipe>,
}

impl WorkAmount {
    /// Reads the fields of a range; the last of a repeated field counts. `None` without work.
    pub(super) fn from_fields<'f>(
        fields: impl Iterator<Item = Field<'f>>,
        trust: &mut RooflineTrust,
    ) -> Option<Self> {
        let mut work = Self { flops: None, bytes: None, dtype: None, pipe: None };
        // A range without work may use `dtype` and `pipe` for other purposes.
        let mut unreadable_names = 0;
        for field in fields {
            let amount = |units: &[&str]| {
                let is_unit = |unit: &&str| unit.eq_ignore_ascii_case(field.unit);
                let has_unit = field.unit.is_empty() || units.iter().any(is_unit);
                amount(field.value).filter(|_| has_unit)
            };
            let text = match field.value {
                FieldValue::Str(text) => Some(text),
                _ => None,
            };
            match field.name {
                "flops" => {
                    read(&mut work.flops, amount(&["flop", "flops"]), &mut trust.unreadable_fields)
                }
                "bytes" => read(
                    &mut work.bytes,
                    amount(&["b", "byte", "bytes"]),
                    &mut trust.unreadable_fields,
                ),
                "dtype" => {
                    read(&mut work.dtype, text.and_then(Dtype::named), &mut unreadable_names)
                }
                "pipe" => read(&mut work.pipe, text.and_then(Pipe::named), &mut unreadable_names),
                _ => {}
            }
        }
        // NVTX tools get no field for an amount of zero either.
        work.flops = work.flops.filter(|flops| *flops > 0.0);
        work.bytes = work.bytes.filter(|bytes| *bytes > 0.0);
        let is_work = work.flops.is_some() || work.bytes.is_some();
        trust.unreadable_fields += if is_work { unreadable_names } else { 0 };
        is_work.then_some(work)
    }
}

/// Stores a valid value, or counts an invalid one.
fn read<T>(slot: &mut Option<T>, value: Option<T>, unreadable: &mut u64) {
    match value {
        Some(value) => *slot = Some(value),
        None => *unreadable += 1,
    }
}

impl From<Work> for WorkAmount {
    fn from(work: Work) -> Self {
        // CAST: the nearest; exact below 2^53.
        let (flops, bytes) = (work.flops().map(|n| n as f64), work.bytes().map(|n| n as f64));
        Self { flops, bytes, dtype: work.dtype(), pipe: work.pipe() }
    }
}

fn amount(value: FieldValue<'_>) -> Option<f64> {
    let amount = match value {
        // CAST: the nearest; exact below 2^53.
        FieldValue::U64(value) => value as f64,
        FieldValue::I64(value) => value as f64,
        FieldValue::F64(value) => value,
        FieldValue::Bool(_) | FieldValue::Str(_) => return None,
        _ => return None,
    };
    (amount.is_finite() && amount >= 0.0).then_some(amount)
}

/// Declares work of ranges and kernels after they ran.
///
/// ```
/// use nvtx::{Dtype, Work};
/// use profiler_analysis::prelude::*;
/// use profiler_core::Profile;
/// use profiler_analysis::roofline::Declared;
///
/// # fn main() -> Result<(), profiler_analysis::Error> {
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
/// let profile = Profile::load(file)?;
/// let forward = Work::gemm(512, 512, 256, Dtype::F32) + Work::gemm(512, 64, 512, Dtype::F32);
/// let declared = Declared::new().range("batch/forward", forward);
/// if let Some(peaks) = profile.peaks(None) {
///     println!("{}", profile.roofline_with(&peaks, &declared));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Declared {
    ranges: Vec<(Pattern, WorkAmount)>,
    pub(super) kernels: Vec<(Pattern, WorkAmount)>,
}

impl Declared {
    /// Creates declarations without any work.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Declares the work of each range with this name or path (`*` matches any text) that
        /// declares none itself. The first of several matching declarations counts.
        range(path: &str, work: Work) ranges += (Pattern::new(path), work.into());
        /// Declares the work of each launch of a kernel with this mangled or demangled name (`*`
        /// matches any text). The first of several matching declarations counts.
        kernel(name: &str, work: Work) kernels += (Pattern::new(name), work.into());
    }

    /// The work of each node; empty if none is declared for ranges.
    pub(super) fn of_ranges(&self, profile: &Profile) -> Vec<Option<WorkAmount>> {
        let mut of_nodes = Vec::new();
        for (pattern, work) in &self.ranges {
            of_nodes.resize(profile.range_tree().nodes.len(), None);
            for (of_node, is_match) in of_nodes.iter_mut().zip(profile.matching(pattern)) {
                if is_match {
                    of_node.get_or_insert_with(|| work.clone());
                }
            }
        }
        of_nodes
    }

    /// The kernel's name in its point, and its work.
    pub(super) fn of_kernel(&self, kernel: &Kernel<'_>) -> Option<(String, WorkAmount)> {
        let name = kernel.demangled_name();
        let is_it = |pattern: &Pattern| pattern.matches(kernel.name()) || pattern.matches(&name);
        let (_, work) = self.kernels.iter().find(|(pattern, _)| is_it(pattern))?;
        Some((name.clone(), work.clone()))
    }
}
