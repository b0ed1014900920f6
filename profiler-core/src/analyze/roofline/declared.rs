//! What is said of work: by ranges in their fields, and afterwards by path or by kernel.

use nvtx::{Dtype, Field, FieldValue, Pipe, Work};

use super::RooflineTrust;
use crate::base::kernel_names::Pattern;
use crate::profile::{Kernel, Profile};

/// Work as it was said, once.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Said {
    pub(super) flops: Option<f64>,
    pub(super) bytes: Option<f64>,
    pub(super) dtype: Option<Dtype>,
    pub(super) pipe: Option<Pipe>,
}

impl Said {
    /// What the fields of a range say; of a field given twice, the last. None of something is as if it were not said.
    pub(super) fn of<'f>(
        fields: impl Iterator<Item = Field<'f>>,
        trust: &mut RooflineTrust,
    ) -> Option<Self> {
        let mut said = Self { flops: None, bytes: None, dtype: None, pipe: None };
        // A `dtype` may be anything of a range that says no work.
        let mut unreadable_names = 0;
        for field in fields {
            let unit = |units: &[&str]| {
                let is_one = |unit: &&str| unit.eq_ignore_ascii_case(field.unit);
                field.unit.is_empty() || units.iter().any(is_one)
            };
            let is_read = match field.name {
                "flops" => {
                    let amount = amount(field.value).filter(|_| unit(&["flop", "flops"]));
                    said.flops = amount.or(said.flops);
                    amount.is_some()
                }
                "bytes" => {
                    let amount = amount(field.value).filter(|_| unit(&["b", "byte", "bytes"]));
                    said.bytes = amount.or(said.bytes);
                    amount.is_some()
                }
                "dtype" => {
                    let dtype = text(field.value).and_then(Dtype::named);
                    said.dtype = dtype.or(said.dtype);
                    unreadable_names += u64::from(dtype.is_none());
                    true
                }
                "pipe" => {
                    let pipe = text(field.value).and_then(Pipe::named);
                    said.pipe = pipe.or(said.pipe);
                    unreadable_names += u64::from(pipe.is_none());
                    true
                }
                _ => true,
            };
            trust.unreadable_fields += u64::from(!is_read);
        }
        // As tools get what is not said.
        said.flops = said.flops.filter(|flops| *flops > 0.0);
        said.bytes = said.bytes.filter(|bytes| *bytes > 0.0);
        let is_work = said.flops.is_some() || said.bytes.is_some();
        trust.unreadable_fields += if is_work { unreadable_names } else { 0 };
        is_work.then_some(said)
    }
}

impl From<Work> for Said {
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

fn text(value: FieldValue<'_>) -> Option<&str> {
    match value {
        FieldValue::Str(text) => Some(text),
        _ => None,
    }
}

/// Work that is said of ranges and kernels after they ran.
///
/// ```
/// use nvtx::{Dtype, Work};
/// use profiler_core::Profile;
/// use profiler_core::roofline::Declared;
///
/// # fn main() -> Result<(), profiler_core::Error> {
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
pub struct Declared {
    ranges: Vec<(Pattern, Said)>,
    kernels: Vec<(Pattern, Said)>,
}

impl Declared {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Each range of this name or path, with `*` for any text, that says nothing itself is this much work; of several that
    /// match, the first said.
    #[must_use]
    pub fn range(mut self, path: &str, work: Work) -> Self {
        self.ranges.push((Pattern::new(path), work.into()));
        self
    }

    /// Each launch of a kernel of this name, as the compiler made it or as reports show it, with `*` for any text, is this
    /// much work; of several that match, the first said.
    #[must_use]
    pub fn kernel(mut self, name: &str, work: Work) -> Self {
        self.kernels.push((Pattern::new(name), work.into()));
        self
    }

    /// What was said of each node; nothing if nothing was said of any.
    pub(super) fn of_ranges(&self, profile: &Profile) -> Vec<Option<Said>> {
        let mut of_nodes = Vec::new();
        for (pattern, said) in &self.ranges {
            of_nodes.resize(profile.tree.nodes.len(), None);
            for (of_node, _) in of_nodes.iter_mut().zip(profile.matching(pattern)).filter(|of| of.1)
            {
                of_node.get_or_insert_with(|| said.clone());
            }
        }
        of_nodes
    }

    pub(super) fn has_kernels(&self) -> bool {
        !self.kernels.is_empty()
    }

    /// The name that its point has, and what was said of it.
    pub(super) fn of_kernel(&self, kernel: &Kernel<'_>) -> Option<(String, Said)> {
        let name = kernel.demangled_name();
        let is_it = |pattern: &Pattern| pattern.matches(kernel.name()) || pattern.matches(&name);
        let said = self.kernels.iter().find(|(pattern, _)| is_it(pattern));
        said.map(|(_, said)| (name.clone(), said.clone()))
    }
}
