//! What a kernel is for.

use std::str::FromStr;

use crate::base::error::{Error, Kind};
use crate::base::named_variants::named_variants;

named_variants! {
    /// What a kernel is for, as far as its name says.
    #[derive(
        Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
    )]
    #[serde(rename_all = "lowercase")]
    #[non_exhaustive]
    pub enum KernelClass with name {
        /// Products of matrices and vectors, with what is fused into them.
        Gemm = "gemm",
        /// Convolutions, their gradients among them.
        Convolution = "convolution",
        /// Attention as one kernel, or what belongs to one.
        Attention = "attention",
        /// The same arithmetic on every element.
        Elementwise = "elementwise",
        /// Sums, maxima and the like, and scans.
        Reduction = "reduction",
        /// Layer, batch, group and RMS normalisation.
        Normalisation = "normalisation",
        /// Softmax by itself.
        Softmax = "softmax",
        /// Elements moved, put together, chosen or converted.
        Copy = "copy",
        /// Elements set to a value.
        Memset = "memset",
        /// Steps of an optimizer on all parameters.
        Optimizer = "optimizer",
        /// Communication between GPUs.
        Collective = "collective",
        /// No rule knows the name.
        Other = "other",
    }
}

impl KernelClass {
    /// All of them.
    pub const ALL: &'static [Self] = &Self::VARIANTS;

    /// True for those whose arithmetic tensor cores do: products, convolutions and attention.
    pub const fn is_matrix_math(self) -> bool {
        matches!(self, Self::Gemm | Self::Convolution | Self::Attention)
    }
}

impl FromStr for KernelClass {
    type Err = Error;

    /// By its [`name`](Self::name).
    ///
    /// # Errors
    /// There is none of this name; the message lists those there are.
    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.iter().copied().find(|class| class.name() == name).ok_or_else(|| {
            let known = Self::ALL.iter().map(|class| class.name()).collect();
            Error::new(Kind::Name { what: "class of kernels", name: name.to_owned(), known })
        })
    }
}
