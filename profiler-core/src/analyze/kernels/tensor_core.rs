//! Whether a kernel uses tensor cores, as far as its name says.

use nvtx::Dtype;
use serde::{Deserialize, Serialize};

use super::confidence::Confidence;
use super::data_type::of_kernel;
use super::tensor_table::{self, Says};
use super::{Classifier, KernelClass};
use crate::base::kernel_names::{Pattern, lower_case};
use crate::base::named_variants::named_variants;
use crate::profile::Kernel;

named_variants! {
    /// Whether a kernel uses tensor cores.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum TcUse {
        /// It does.
        Using = "yes",
        /// It does not.
        NotUsing = "no",
        /// Its name does not say.
        Unknown = "unknown",
    }
}

/// What a kernel's name says of tensor cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct TensorCoreUse {
    /// Whether it uses them.
    pub tensor_cores: TcUse,
    /// How sure that is; [`Low`](Confidence::Low) where it is not known.
    pub confidence: Confidence,
    /// The part of the name that says it, or why it is so.
    pub because: &'static str,
    /// True for a product, a convolution or attention that does without and is of a kind that tensor cores can do, if its
    /// type is.
    pub is_plain_product: bool,
    /// The type of the numbers that it multiplies, if its name says it.
    #[serde(serialize_with = "super::name_if_known")]
    pub data_type: Option<Dtype>,
}

impl TensorCoreUse {
    /// Of a kernel of this name. Only products, convolutions and attention use tensor cores: of another class no name is
    /// asked, but for [`Other`](KernelClass::Other). What the program [said](Classifier::tensor_cores) counts first.
    #[must_use]
    pub fn of(name: &str, classifier: &Classifier) -> Self {
        let (shown, _) = lower_case(name);
        let class = classifier.classify(name);
        if let Some(are_used) = classifier.uses_tensor_cores(name) {
            return Self {
                tensor_cores: if are_used { TcUse::Using } else { TcUse::NotUsing },
                confidence: Confidence::High,
                because: "the program says so",
                is_plain_product: !are_used && class.is_matrix_math(),
                data_type: of_kernel(&shown),
            };
        }
        if !class.is_matrix_math() && class != KernelClass::Other {
            return Self {
                tensor_cores: TcUse::NotUsing,
                confidence: Confidence::High,
                because: class.name(),
                is_plain_product: false,
                data_type: None,
            };
        }
        let fits = |row: &&tensor_table::Row| Pattern::new(row.0).matches(&shown);
        let data_type = of_kernel(&shown);
        match tensor_table::ROWS.iter().find(fits) {
            Some(&(because, says, confidence, _)) => Self {
                tensor_cores: if says == Says::Using { TcUse::Using } else { TcUse::NotUsing },
                confidence,
                because,
                is_plain_product: says == Says::Plain,
                data_type,
            },
            None => Self {
                tensor_cores: TcUse::Unknown,
                confidence: Confidence::Low,
                because: "no rule knows the name",
                is_plain_product: false,
                data_type,
            },
        }
    }
}

impl Kernel<'_> {
    /// Whether it uses tensor cores, as far as its name says. Costs microseconds.
    pub fn tensor_core_use(&self) -> TensorCoreUse {
        self.tensor_core_use_with(&Classifier::new())
    }

    /// The same, with what the program says of names.
    pub fn tensor_core_use_with(&self, classifier: &Classifier) -> TensorCoreUse {
        match TensorCoreUse::of(&self.demangled_name(), classifier) {
            // A capture of nsys may know the name that a rule is on as the one or as the other.
            of if of.tensor_cores == TcUse::Unknown => TensorCoreUse::of(self.name(), classifier),
            of => of,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_stands_behind_one_that_takes_all_of_its_names() {
        for (at, row) in tensor_table::ROWS.iter().enumerate() {
            let name = row.0.replace('*', "");
            let first =
                tensor_table::ROWS.iter().position(|row| Pattern::new(row.0).matches(&name));
            assert_eq!(
                first,
                Some(at),
                "{} is behind {:?}",
                row.0,
                first.map(|at| tensor_table::ROWS[at].0)
            );
            assert_eq!(row.0, row.0.to_ascii_lowercase());
            assert!(!row.3.is_empty());
        }
    }
}
