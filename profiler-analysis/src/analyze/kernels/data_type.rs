//! Number types, as tensor cores distinguish them.

use std::fmt::Display;

use nvtx::Dtype;
use profiler_base::kernel_names::{Characters, matches};
use serde::{Serialize, Serializer};

/// Patterns of kernel names and the type they multiply; the first match counts.
const IN_KERNELS: &[(Dtype, &[&str])] = &[
    (Dtype::Tf32, &["*tf32*"]),
    (Dtype::Bf16, &["*bf16*", "*bfloat16*"]),
    (Dtype::F8, &["*e4m3*", "*e5m2*", "*fp8*"]),
    (Dtype::F4, &["*e2m1*"]),
    (Dtype::I8, &["*i8816*", "*i8i32*", "*i16832*", "*int8*", "*_s8_*", "*icudnn*"]),
    (Dtype::F64, &["*dgemm*", "*d884*", "*d16816*", "*f64*", "*<double*", "*, double*"]),
    (Dtype::F16, &["*h884*", "*h1688*", "*h16816*", "*s884*", "*hgemm*", "*hcudnn*"]),
    (Dtype::F16, &["*fp16*", "*half*", "*f16*", "nvjet_*hsh_*"]),
    (Dtype::Bf16, &["nvjet_*tst_*"]),
    (Dtype::F32, &["*sgemm*", "*scudnn*", "*f32f32*", "*<float*", "*, float*", "*_f32*"]),
];

/// The type that a program declares: `"f16"`, `"torch.float16"`, `"half"`.
pub(super) fn parse(name: &str) -> Option<Dtype> {
    Dtype::named(name.trim().rsplit(['.', ':']).next()?)
}

/// The type in a kernel name (demangled without parameters, in lower case).
pub(super) fn of_kernel(name: &str) -> Option<Dtype> {
    let characters = Characters::from_text(name);
    let is_it = |pattern: &&str| {
        Characters::from_text(pattern).can_match(characters) && matches(pattern, name)
    };
    let row = IN_KERNELS.iter().find(|(_, patterns)| patterns.iter().any(is_it));
    row.map(|(dtype, _)| *dtype)
}

/// True if tensor cores of this compute capability multiply the type. False for f32, which tf32 or
/// half precision can replace.
pub(super) fn has_tensor_cores(dtype: Dtype, compute_capability: (u32, u32)) -> bool {
    let from = |first: (u32, u32)| compute_capability >= first;
    match dtype {
        // Workstation GPUs support it only nominally.
        Dtype::F64 => matches!(compute_capability, (8, 0) | (9, 0) | (10, 0) | (10, 3)),
        Dtype::F16 => from((7, 0)),
        Dtype::I8 => from((7, 2)),
        Dtype::Tf32 | Dtype::Bf16 => from((8, 0)),
        Dtype::F8 => from((8, 9)),
        Dtype::F4 => from((10, 0)),
        _ => false,
    }
}

/// Matrix sizes should be multiples of this number, so that rows are aligned to 16 bytes (tensor
/// core section of cuBLAS's guide).
pub(super) fn alignment(dtype: Dtype) -> u64 {
    128 / u64::from(dtype.bits())
}

pub(crate) fn as_text<T: Display, S: Serializer>(named: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(named)
}

// SIGNATURE: serde gives references.
#[allow(clippy::ref_option)]
pub(crate) fn name_if_known<S: Serializer>(
    dtype: &Option<Dtype>,
    to: S,
) -> Result<S::Ok, S::Error> {
    dtype.map(Dtype::name).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_known_from_names_of_programs_and_kernels() {
        assert_eq!(parse("torch.bfloat16"), Some(Dtype::Bf16));
        assert_eq!(parse(" F16 "), Some(Dtype::F16));
        assert_eq!(parse("complex64"), None);
        assert_eq!(
            of_kernel("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn"),
            Some(Dtype::Bf16)
        );
        assert_eq!(
            of_kernel("cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1"),
            Some(Dtype::F64)
        );
        assert_eq!(of_kernel("volta_sgemm_128x64_nn"), Some(Dtype::F32));
        assert_eq!(of_kernel("matmul_kernel"), None);
    }

    #[test]
    fn tensor_cores_support_types_by_capability() {
        let all = [(6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)];
        for (dtype, first) in [
            (Dtype::F16, Some((7, 0))),
            (Dtype::I8, Some((7, 5))),
            (Dtype::Bf16, Some((8, 0))),
            (Dtype::F8, Some((8, 9))),
            (Dtype::F4, Some((10, 0))),
            (Dtype::F32, None),
        ] {
            let found = all.into_iter().find(|capability| has_tensor_cores(dtype, *capability));
            assert_eq!(found, first, "{dtype}");
        }
        assert!(!has_tensor_cores(Dtype::F64, (8, 6)));
    }
}
