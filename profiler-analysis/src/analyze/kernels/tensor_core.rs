//! Tensor-core use by kernel name.

use std::sync::OnceLock;

use nvtx::Dtype;
use profiler_base::kernel_names::{Characters, lower_case, matches};
use profiler_base::named_variants;
use serde::{Deserialize, Serialize};

use super::confidence::Confidence;
use super::data_type::of_kernel;
use super::tensor_table::{NameUse, patterns};
use super::{Classifier, KernelClass};
use profiler_core::profile::Kernel;

named_variants! {
    /// The tensor-core use of a kernel.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum TcUse {
        /// Uses tensor cores.
        Using = "yes",
        /// Does not use them.
        NotUsing = "no",
        /// Not known from the name.
        Unknown = "unknown",
    }
}

/// Tensor-core use of a kernel, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct TensorCoreUse {
    /// The use.
    pub tensor_cores: TcUse,
    /// The confidence; [`Low`](Confidence::Low) if unknown.
    pub confidence: Confidence,
    /// The deciding part of the name, or another reason.
    pub because: &'static str,
    /// True for a product, convolution or attention without the tensor cores it could use.
    pub is_plain_product: bool,
    /// The number type it multiplies, if in the name.
    #[serde(serialize_with = "super::name_if_known")]
    pub data_type: Option<Dtype>,
}

/// A pattern with its use and confidence, and its characters.
type KnownPattern = (Characters, (&'static str, NameUse, Confidence));

fn known_patterns() -> &'static [KnownPattern] {
    static PATTERNS: OnceLock<Vec<KnownPattern>> = OnceLock::new();
    PATTERNS.get_or_init(|| patterns().map(|row| (Characters::from_text(row.0), row)).collect())
}

impl TensorCoreUse {
    /// Finds the use by this name. A [rule of the program](Classifier::tensor_cores) counts first.
    /// Only products, convolutions, attention and [`Other`](KernelClass::Other) are looked up;
    /// other classes use no tensor cores.
    #[must_use]
    pub fn from_kernel(name: &str, classifier: &Classifier) -> Self {
        use Confidence::{High, Low};
        let (shown, _) = lower_case(name);
        let class = classifier.classify(name);
        let characters = Characters::from_text(&shown);
        let is_it = |(of_pattern, row): &&KnownPattern| {
            of_pattern.can_match(characters) && matches(row.0, &shown)
        };
        let mut data_type = of_kernel(&shown);
        let (tensor_cores, confidence, because, is_plain_product) =
            match classifier.uses_tensor_cores(name) {
                Some(true) => (TcUse::Using, High, "declared by the program", false),
                Some(false) => {
                    (TcUse::NotUsing, High, "declared by the program", class.is_matrix_math())
                }
                None if !class.is_matrix_math() && class != KernelClass::Other => {
                    data_type = None;
                    (TcUse::NotUsing, High, class.name(), false)
                }
                None => match known_patterns().iter().find(is_it).map(|(_, row)| *row) {
                    Some((because, NameUse::Using, confidence)) => {
                        (TcUse::Using, confidence, because, false)
                    }
                    Some((because, name_use, confidence)) => {
                        (TcUse::NotUsing, confidence, because, name_use == NameUse::Plain)
                    }
                    None => (TcUse::Unknown, Low, "no rule matches the name", false),
                },
            };
        Self { tensor_cores, confidence, because, is_plain_product, data_type }
    }
}

/// [`KernelExt::tensor_core_use_with`](crate::prelude::KernelExt::tensor_core_use_with).
pub(crate) fn tensor_core_use(kernel: &Kernel<'_>, classifier: &Classifier) -> TensorCoreUse {
    match TensorCoreUse::from_kernel(&kernel.demangled_name(), classifier) {
        // A capture of nsys may contain the name for a rule in either form.
        found if found.tensor_cores == TcUse::Unknown => {
            TensorCoreUse::from_kernel(kernel.name(), classifier)
        }
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tensor_table::ROWS;
    use super::*;

    #[test]
    fn every_row_is_the_first_match_of_its_own_pattern() {
        for (at, (pattern, ..)) in patterns().enumerate() {
            let name = pattern.replace('*', "");
            let first = patterns().position(|row| matches(row.0, &name));
            let before = first.and_then(|first| patterns().nth(first));
            assert_eq!(first, Some(at), "{pattern} is behind {before:?}");
            assert_eq!(pattern, pattern.to_ascii_lowercase());
        }
        assert!(ROWS.iter().all(|(_, _, family, _)| !family.is_empty()));
    }
}
