//! Classes of kernels.

use std::str::FromStr;

use profiler_base::named_variants;

use crate::error::{Error, Kind};

named_variants! {
    /// The purpose of a kernel, by its name.
    #[derive(
        Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
    )]
    #[serde(rename_all = "lowercase")]
    #[non_exhaustive]
    pub enum KernelClass with name {
        /// Products of matrices and vectors, with fused operations.
        Gemm = "gemm",
        /// Convolutions and their gradients.
        Convolution = "convolution",
        /// Attention as one kernel, or a part of it.
        Attention = "attention",
        /// The same arithmetic on every element.
        Elementwise = "elementwise",
        /// Sums, maxima, scans and similar operations.
        Reduction = "reduction",
        /// Layer, batch, group and RMS normalisation.
        Normalisation = "normalisation",
        /// Softmax by itself.
        Softmax = "softmax",
        /// Moves, concatenations, selections or conversions of elements.
        Copy = "copy",
        /// Sets elements to a value.
        Memset = "memset",
        /// Optimizer steps on all parameters.
        Optimizer = "optimizer",
        /// Communication between GPUs.
        Collective = "collective",
        /// Names without a matching rule.
        Other = "other",
    }
}

impl KernelClass {
    /// All classes.
    pub const ALL: &'static [Self] = &Self::VARIANTS;

    /// True for products, convolutions and attention, whose arithmetic can run on tensor cores.
    pub const fn is_matrix_math(self) -> bool {
        matches!(self, Self::Gemm | Self::Convolution | Self::Attention)
    }
}

impl FromStr for KernelClass {
    type Err = Error;

    /// Parses a [`name`](Self::name).
    ///
    /// # Errors
    /// No class has this name; the message lists all.
    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.iter().copied().find(|class| class.name() == name).ok_or_else(|| {
            let known = Self::ALL.iter().map(|class| class.name()).collect();
            Error::new(Kind::Name { what: "class of kernels", name: name.to_owned(), known })
        })
    }
}
