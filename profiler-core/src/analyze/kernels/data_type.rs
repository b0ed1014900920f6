//! Types of numbers, as far as tensor cores tell them apart.

use serde::{Deserialize, Serialize};

use crate::base::kernel_names::Pattern;
use crate::base::named_variants::named_variants;

named_variants! {
    /// The type of the numbers that are multiplied.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    #[non_exhaustive]
    pub enum DataType with name {
        /// 64 bits.
        F64 = "f64",
        /// 32 bits.
        F32 = "f32",
        /// 32 bits in memory, multiplied with 10 bits of mantissa.
        Tf32 = "tf32",
        /// 16 bits, 8 of them exponent.
        Bf16 = "bf16",
        /// 16 bits.
        F16 = "f16",
        /// 8 bits: E4M3 and E5M2.
        F8 = "f8",
        /// 4 bits: E2M1 with scales.
        F4 = "f4",
        /// Whole numbers of 8 bits.
        I8 = "i8",
    }
}

/// What programs and frameworks call them.
const NAMES: &[(DataType, &[&str])] = &[
    (DataType::F64, &["f64", "float64", "double", "fp64"]),
    (DataType::F32, &["f32", "float32", "float", "fp32"]),
    (DataType::Tf32, &["tf32", "tfloat32"]),
    (DataType::Bf16, &["bf16", "bfloat16"]),
    (DataType::F16, &["f16", "float16", "half", "fp16"]),
    (
        DataType::F8,
        &[
            "f8",
            "fp8",
            "float8",
            "e4m3",
            "e5m2",
            "f8e4m3",
            "f8e5m2",
            "float8_e4m3fn",
            "float8_e5m2",
        ],
    ),
    (DataType::F4, &["f4", "fp4", "e2m1", "nvfp4", "mxfp4"]),
    (DataType::I8, &["i8", "int8", "s8", "u8", "uint8"]),
];

/// What stands in names of kernels that multiply it: the first that fits. Rows as in the table of classes.
const IN_KERNELS: &[(&str, DataType)] = &[
    ("*tf32*", DataType::Tf32),
    ("*bf16*", DataType::Bf16),
    ("*bfloat16*", DataType::Bf16),
    ("*e4m3*", DataType::F8),
    ("*e5m2*", DataType::F8),
    ("*fp8*", DataType::F8),
    ("*e2m1*", DataType::F4),
    ("*i8816*", DataType::I8),
    ("*i8i32*", DataType::I8),
    ("*i16832*", DataType::I8),
    ("*int8*", DataType::I8),
    ("*_s8_*", DataType::I8),
    ("*icudnn*", DataType::I8),
    ("*dgemm*", DataType::F64),
    ("*d884*", DataType::F64),
    ("*d16816*", DataType::F64),
    ("*f64*", DataType::F64),
    ("*<double*", DataType::F64),
    ("*, double*", DataType::F64),
    ("*h884*", DataType::F16),
    ("*h1688*", DataType::F16),
    ("*h16816*", DataType::F16),
    ("*s884*", DataType::F16),
    ("*hgemm*", DataType::F16),
    ("*hcudnn*", DataType::F16),
    ("*fp16*", DataType::F16),
    ("*half*", DataType::F16),
    ("*f16*", DataType::F16),
    ("nvjet_*hsh_*", DataType::F16),
    ("nvjet_*tst_*", DataType::Bf16),
    ("*sgemm*", DataType::F32),
    ("*scudnn*", DataType::F32),
    ("*f32f32*", DataType::F32),
    ("*<float*", DataType::F32),
    ("*, float*", DataType::F32),
    ("*_f32*", DataType::F32),
];

impl DataType {
    /// The type that a program calls so: `"f16"`, `"torch.float16"`, `"half"`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase();
        let name = name.rsplit(['.', ':']).next().unwrap_or_default();
        NAMES.iter().find(|(_, names)| names.contains(&name)).map(|(of, _)| *of)
    }

    /// The type that a kernel multiplies, as far as its name says; the name without parameters, in lower case.
    pub(super) fn of_kernel(name: &str) -> Option<Self> {
        let fits = |(pattern, _): &&(&str, Self)| Pattern::new(pattern).matches(name);
        IN_KERNELS.iter().find(fits).map(|(_, of)| *of)
    }

    /// True if the tensor cores of a device of this compute capability multiply it; f32 they do not, but for
    /// [`Tf32`](Self::Tf32) and half precision in its place.
    #[must_use]
    pub fn has_tensor_cores(self, compute_capability: (u32, u32)) -> bool {
        let from = |first: (u32, u32)| compute_capability >= first;
        match self {
            Self::F32 => false,
            // Those of workstations have them in name alone.
            Self::F64 => matches!(compute_capability, (8, 0) | (9, 0) | (10, 0) | (10, 3)),
            Self::F16 => from((7, 0)),
            Self::I8 => from((7, 2)),
            Self::Tf32 | Self::Bf16 => from((8, 0)),
            Self::F8 => from((8, 9)),
            Self::F4 => from((10, 0)),
        }
    }

    /// Of what number the sizes of matrices are to be multiples, so that rows begin at multiples of 16 bytes (cuBLAS's
    /// guide, on tensor cores).
    #[must_use]
    pub const fn alignment(self) -> u64 {
        match self {
            Self::F64 => 2,
            Self::F32 | Self::Tf32 => 4,
            Self::Bf16 | Self::F16 => 8,
            Self::F8 | Self::I8 => 16,
            Self::F4 => 32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_known_by_what_programs_and_kernels_call_them() {
        assert_eq!(DataType::parse("torch.bfloat16"), Some(DataType::Bf16));
        assert_eq!(DataType::parse(" F16 "), Some(DataType::F16));
        assert_eq!(DataType::parse("complex64"), None);
        let of = DataType::of_kernel;
        assert_eq!(
            of("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn"),
            Some(DataType::Bf16)
        );
        assert_eq!(of("cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1"), Some(DataType::F64));
        assert_eq!(of("volta_sgemm_128x64_nn"), Some(DataType::F32));
        assert_eq!(of("matmul_kernel"), None);
    }

    #[test]
    fn tensor_cores_learnt_types_one_by_one() {
        let first = |of: DataType| {
            let all = [(6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)];
            all.into_iter().find(|capability| of.has_tensor_cores(*capability))
        };
        assert_eq!(first(DataType::F16), Some((7, 0)));
        assert_eq!(first(DataType::I8), Some((7, 5)));
        assert_eq!(first(DataType::Bf16), Some((8, 0)));
        assert_eq!(first(DataType::F8), Some((8, 9)));
        assert_eq!(first(DataType::F4), Some((10, 0)));
        assert_eq!(first(DataType::F32), None);
        assert!(!DataType::F64.has_tensor_cores((8, 6)));
    }
}
