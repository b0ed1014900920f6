//! Whether an operation of a program could use tensor cores: by what its range says of it, or by its kernels.

use nvtx::Dtype;
use serde::{Deserialize, Serialize};

use super::data_type::{alignment, has_tensor_cores, parse};
use crate::base::named_variants::named_variants;
use crate::profile::Range;

named_variants! {
    /// How an operation fares with tensor cores (DLProf's "Using TC", "Not using TC", "Incompatible").
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum TcStatus with name {
        /// At least one of its kernels uses them.
        Using = "using",
        /// It could, and none of its kernels does.
        EligibleNotUsing = "eligible, not using",
        /// It could not.
        NotEligible = "not eligible",
        /// Neither its range nor the names of its kernels say it.
        Unknown = "unknown",
    }
}

/// What to do for an operation to use tensor cores, or to use them well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TcRemedy {
    /// It is of f32 on a device that has tf32.
    AllowTf32,
    /// It is of f32.
    MixedPrecision,
    /// Sizes of its matrices are no multiples of what tensor cores like.
    PadShape,
    /// Type and sizes are right, and yet other kernels were chosen.
    CheckAlgorithm,
}

impl TcRemedy {
    /// What to do.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::AllowTf32 => {
                "allow tf32 (CUBLAS_COMPUTE_32F_FAST_TF32; cuDNN's tf32 math type; torch.backends.cuda.matmul.allow_tf32), \
                 or use bf16 or f16 (mixed precision)"
            }
            Self::MixedPrecision => {
                "use f16 with a scaled loss (mixed precision), or bf16 where the device has it"
            }
            Self::PadShape => {
                "make sizes multiples of 16 bytes (8 numbers of 16 bits): pad vocabularies, channels and batches"
            }
            Self::CheckAlgorithm => {
                "see why other kernels were chosen: the compute type, strides and alignment of pointers, a transposed layout, \
                 a workspace that is too small, or an algorithm that was asked for"
            }
        }
    }
}

/// What a range says of the product or convolution in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Described {
    pub(super) data_type: Option<Dtype>,
    /// `m`, `n`, `k`: sizes of a product.
    pub(super) sizes: [Option<u64>; 3],
}

/// The field that gives the type.
const TYPE: [&str; 3] = ["dtype", "data_type", "type"];
/// Those that give sizes: of a product, of a convolution.
const SIZES: [[&str; 2]; 3] = [["m", "rows"], ["n", "out_channels"], ["k", "in_channels"]];

impl Described {
    /// `None` if it says no type.
    pub(super) fn of(range: &Range<'_>) -> Option<Self> {
        let text = |names: &[&str]| {
            names.iter().find_map(|name| match range.field(name)? {
                nvtx::FieldValue::Str(text) => parse(text),
                _ => None,
            })
        };
        let number = |names: &[&str]| {
            names.iter().find_map(|name| match range.field(name)? {
                nvtx::FieldValue::U64(size) => Some(size),
                nvtx::FieldValue::I64(size) => u64::try_from(size).ok(),
                _ => None,
            })
        };
        let data_type = Some(text(&TYPE)?);
        Some(Self { data_type, sizes: SIZES.map(|names| number(&names)) })
    }

    /// Whether tensor cores can do it, and what to do so that they do; `None` if nothing is known of it.
    ///
    /// A product with a vector is none of theirs. Of f32 it can be done as tf32 or with mixed precision. Sizes that are no
    /// multiples of 16 bytes are eligible (cuBLAS pads since CUDA 11), and slower.
    pub(super) fn eligible(&self, capability: (u32, u32)) -> Option<(bool, Vec<TcRemedy>)> {
        let data_type = self.data_type?;
        if self.sizes.iter().flatten().any(|size| *size <= 1) {
            return Some((false, Vec::new()));
        }
        let mut remedies = Vec::new();
        let as_it_is = has_tensor_cores(data_type, capability);
        let could_be = data_type == Dtype::F32 && has_tensor_cores(Dtype::F16, capability);
        if !as_it_is && !could_be {
            return Some((false, remedies));
        }
        if could_be {
            let has_tf32 = has_tensor_cores(Dtype::Tf32, capability);
            remedies.push(if has_tf32 { TcRemedy::AllowTf32 } else { TcRemedy::MixedPrecision });
        }
        let unit = alignment(data_type);
        if self.sizes.iter().flatten().any(|size| !size.is_multiple_of(unit)) {
            remedies.push(TcRemedy::PadShape);
        }
        Some((true, remedies))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(data_type: Dtype, sizes: [u64; 3], capability: (u32, u32)) -> (bool, Vec<TcRemedy>) {
        let described = Described { data_type: Some(data_type), sizes: sizes.map(Some) };
        described.eligible(capability).unwrap()
    }

    #[test]
    fn type_device_and_sizes_decide() {
        use TcRemedy::{AllowTf32, MixedPrecision, PadShape};
        assert_eq!(of(Dtype::F16, [512, 512, 64], (7, 0)), (true, vec![]));
        assert_eq!(of(Dtype::F16, [512, 511, 64], (7, 0)), (true, vec![PadShape]));
        assert_eq!(of(Dtype::F16, [512, 1, 64], (9, 0)), (false, vec![]));
        assert_eq!(of(Dtype::F32, [512, 512, 64], (7, 0)), (true, vec![MixedPrecision]));
        assert_eq!(of(Dtype::F32, [512, 510, 64], (9, 0)), (true, vec![AllowTf32, PadShape]));
        assert_eq!(of(Dtype::Bf16, [512, 512, 64], (7, 5)), (false, vec![]));
        assert_eq!(of(Dtype::F16, [512, 512, 64], (6, 1)), (false, vec![]));
        assert_eq!(Described::default().eligible((9, 0)), None);
    }
}
