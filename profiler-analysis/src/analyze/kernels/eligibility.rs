//! Eligibility of operations for tensor cores, by the fields of their range or by their kernels.

use nvtx::Dtype;
use profiler_base::named_variants;
use serde::{Deserialize, Serialize};

use super::data_type::{alignment, has_tensor_cores, parse};
use profiler_core::profile::Range;

named_variants! {
    /// Tensor-core status of an operation (DLProf's "Using TC", "Not using TC", "Incompatible").
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum TcStatus with name {
        /// At least one of its kernels uses tensor cores.
        Using = "using",
        /// Tensor cores could execute it, but none of its kernels uses them.
        EligibleNotUsing = "eligible, not using",
        /// Tensor cores cannot execute it.
        NotEligible = "not eligible",
        /// Neither the range nor the kernel names contain the type.
        Unknown = "unknown",
    }
}

named_variants! {
    /// The change that makes an operation use tensor cores, or use them well.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum TcRemedy with advice {
        /// For f32 on a device with tf32.
        AllowTf32 = "allow tf32 (CUBLAS_COMPUTE_32F_FAST_TF32; cuDNN's tf32 math type; torch.backends.cuda.matmul.allow_tf32), \
                     or use bf16 or f16 (mixed precision)",
        /// For f32 without tf32.
        MixedPrecision = "use f16 with a scaled loss (mixed precision), or bf16 where the device has it",
        /// Matrix sizes are not multiples of 16 bytes.
        PadShape = "make sizes multiples of 16 bytes (8 numbers of 16 bits): pad vocabularies, channels and batches",
        /// Type and sizes are right, but other kernels were chosen.
        CheckAlgorithm = "see why other kernels were chosen: the compute type, strides and alignment of \
                     pointers, a transposed layout, a workspace that is too small, or a requested \
                     algorithm",
    }
}

/// The sizes of a product or convolution that a range declares: `m`, `n`, `k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DeclaredSizes([Option<u64>; 3]);

impl DeclaredSizes {
    /// The sizes among the fields of a range; `None` without any.
    pub(crate) fn new(range: &Range<'_>) -> Option<Self> {
        let number = |names: [&str; 2]| {
            names.iter().find_map(|name| match range.field(name)? {
                nvtx::FieldValue::U64(size) => Some(size),
                nvtx::FieldValue::I64(size) => u64::try_from(size).ok(),
                _ => None,
            })
        };
        let sizes = SIZES.map(number);
        sizes.iter().any(Option::is_some).then_some(Self(sizes))
    }

    /// The names of the declared dimensions with their sizes.
    pub(crate) fn dimensions(self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = SIZES.into_iter().zip(self.0);
        named.filter_map(|([name, _], size)| Some((name, size?)))
    }
}

/// The fields of a range about the product or convolution in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct OpFields {
    pub(super) data_type: Option<Dtype>,
    pub(super) sizes: DeclaredSizes,
}

/// Names of the type field.
const TYPE: [&str; 3] = ["dtype", "data_type", "type"];
/// Names of the size fields, of a product and of a convolution.
const SIZES: [[&str; 2]; 3] = [["m", "rows"], ["n", "out_channels"], ["k", "in_channels"]];

impl OpFields {
    /// `None` if no field declares a type.
    pub(super) fn from_range(range: &Range<'_>) -> Option<Self> {
        let text = |names: &[&str]| {
            names.iter().find_map(|name| match range.field(name)? {
                nvtx::FieldValue::Str(text) => parse(text),
                _ => None,
            })
        };
        let data_type = Some(text(&TYPE)?);
        Some(Self { data_type, sizes: DeclaredSizes::new(range).unwrap_or_default() })
    }

    /// Returns if tensor cores can execute the operation, and the changes needed; `None` without a
    /// type.
    ///
    /// Tensor cores cannot multiply with a vector. They can execute f32 as tf32 or with mixed
    /// precision. Sizes that are not multiples of 16 bytes are eligible (cuBLAS pads since CUDA
    /// 11), but slower.
    pub(super) fn eligible(&self, capability: (u32, u32)) -> Option<(bool, Vec<TcRemedy>)> {
        let data_type = self.data_type?;
        if self.sizes.dimensions().any(|(_, size)| size <= 1) {
            return Some((false, Vec::new()));
        }
        let mut remedies = Vec::new();
        let is_supported = has_tensor_cores(data_type, capability);
        let is_convertible = data_type == Dtype::F32 && has_tensor_cores(Dtype::F16, capability);
        if !is_supported && !is_convertible {
            return Some((false, remedies));
        }
        if is_convertible {
            let has_tf32 = has_tensor_cores(Dtype::Tf32, capability);
            remedies.push(if has_tf32 { TcRemedy::AllowTf32 } else { TcRemedy::MixedPrecision });
        }
        let unit = alignment(data_type);
        if self.sizes.dimensions().any(|(_, size)| !size.is_multiple_of(unit)) {
            remedies.push(TcRemedy::PadShape);
        }
        Some((true, remedies))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eligible(dtype: Dtype, sizes: [u64; 3], capability: (u32, u32)) -> (bool, Vec<TcRemedy>) {
        let fields = OpFields { data_type: Some(dtype), sizes: DeclaredSizes(sizes.map(Some)) };
        fields.eligible(capability).unwrap()
    }

    #[test]
    fn type_device_and_sizes_decide() {
        use TcRemedy::{AllowTf32, MixedPrecision, PadShape};
        assert_eq!(eligible(Dtype::F16, [512, 512, 64], (7, 0)), (true, vec![]));
        assert_eq!(eligible(Dtype::F16, [512, 511, 64], (7, 0)), (true, vec![PadShape]));
        assert_eq!(eligible(Dtype::F16, [512, 1, 64], (9, 0)), (false, vec![]));
        assert_eq!(eligible(Dtype::F32, [512, 512, 64], (7, 0)), (true, vec![MixedPrecision]));
        assert_eq!(eligible(Dtype::F32, [512, 510, 64], (9, 0)), (true, vec![AllowTf32, PadShape]));
        assert_eq!(eligible(Dtype::Bf16, [512, 512, 64], (7, 5)), (false, vec![]));
        assert_eq!(eligible(Dtype::F16, [512, 512, 64], (6, 1)), (false, vec![]));
        assert_eq!(OpFields::default().eligible((9, 0)), None);
    }
}
