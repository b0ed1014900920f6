//! What a kernel is for.

use std::fmt;
use std::str::FromStr;

use crate::base::error::{Error, Kind};

/// What a kernel is for, as far as its name says.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum KernelClass {
    /// Products of matrices and vectors, with what is fused into them.
    Gemm,
    /// Convolutions, their gradients among them.
    Convolution,
    /// Attention as one kernel, or what belongs to one.
    Attention,
    /// The same arithmetic on every element.
    Elementwise,
    /// Sums, maxima and the like, and scans.
    Reduction,
    /// Layer, batch, group and RMS normalisation.
    Normalisation,
    /// Softmax by itself.
    Softmax,
    /// Elements moved, put together, chosen or converted.
    Copy,
    /// Elements set to a value.
    Memset,
    /// Steps of an optimizer on all parameters.
    Optimizer,
    /// Communication between GPUs.
    Collective,
    /// No rule knows the name.
    Other,
}

impl KernelClass {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Gemm,
        Self::Convolution,
        Self::Attention,
        Self::Elementwise,
        Self::Reduction,
        Self::Normalisation,
        Self::Softmax,
        Self::Copy,
        Self::Memset,
        Self::Optimizer,
        Self::Collective,
        Self::Other,
    ];

    /// As it is written in tables and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::Convolution => "convolution",
            Self::Attention => "attention",
            Self::Elementwise => "elementwise",
            Self::Reduction => "reduction",
            Self::Normalisation => "normalisation",
            Self::Softmax => "softmax",
            Self::Copy => "copy",
            Self::Memset => "memset",
            Self::Optimizer => "optimizer",
            Self::Collective => "collective",
            Self::Other => "other",
        }
    }

    /// True for those whose arithmetic tensor cores do: products, convolutions and attention.
    #[must_use]
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

impl fmt::Display for KernelClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
