//! Types of numbers, as far as tensor cores tell them apart.

use nvtx::Dtype;
use serde::{Serialize, Serializer};

use crate::base::kernel_names::Pattern;

/// What stands in names of kernels that multiply it: the first that fits. Rows as in the table of classes.
const IN_KERNELS: &[(&str, Dtype)] = &[
    ("*tf32*", Dtype::Tf32),
    ("*bf16*", Dtype::Bf16),
    ("*bfloat16*", Dtype::Bf16),
    ("*e4m3*", Dtype::F8),
    ("*e5m2*", Dtype::F8),
    ("*fp8*", Dtype::F8),
    ("*e2m1*", Dtype::F4),
    ("*i8816*", Dtype::I8),
    ("*i8i32*", Dtype::I8),
    ("*i16832*", Dtype::I8),
    ("*int8*", Dtype::I8),
    ("*_s8_*", Dtype::I8),
    ("*icudnn*", Dtype::I8),
    ("*dgemm*", Dtype::F64),
    ("*d884*", Dtype::F64),
    ("*d16816*", Dtype::F64),
    ("*f64*", Dtype::F64),
    ("*<double*", Dtype::F64),
    ("*, double*", Dtype::F64),
    ("*h884*", Dtype::F16),
    ("*h1688*", Dtype::F16),
    ("*h16816*", Dtype::F16),
    ("*s884*", Dtype::F16),
    ("*hgemm*", Dtype::F16),
    ("*hcudnn*", Dtype::F16),
    ("*fp16*", Dtype::F16),
    ("*half*", Dtype::F16),
    ("*f16*", Dtype::F16),
    ("nvjet_*hsh_*", Dtype::F16),
    ("nvjet_*tst_*", Dtype::Bf16),
    ("*sgemm*", Dtype::F32),
    ("*scudnn*", Dtype::F32),
    ("*f32f32*", Dtype::F32),
    ("*<float*", Dtype::F32),
    ("*, float*", Dtype::F32),
    ("*_f32*", Dtype::F32),
];

/// The type that a program calls so: `"f16"`, `"torch.float16"`, `"half"`.
pub(super) fn parse(name: &str) -> Option<Dtype> {
    Dtype::named(name.trim().rsplit(['.', ':']).next()?)
}

/// The type that a kernel multiplies, as far as its name says; the name without parameters, in lower case.
pub(super) fn of_kernel(name: &str) -> Option<Dtype> {
    let fits = |(pattern, _): &&(&str, Dtype)| Pattern::new(pattern).matches(name);
    IN_KERNELS.iter().find(fits).map(|(_, of)| *of)
}

/// True if the tensor cores of a device of this compute capability multiply the type. They do not multiply f32, but tf32 and
/// half precision in its place.
pub(super) fn has_tensor_cores(dtype: Dtype, compute_capability: (u32, u32)) -> bool {
    let from = |first: (u32, u32)| compute_capability >= first;
    match dtype {
        // Those of workstations have them in name alone.
        Dtype::F64 => matches!(compute_capability, (8, 0) | (9, 0) | (10, 0) | (10, 3)),
        Dtype::F16 => from((7, 0)),
        Dtype::I8 => from((7, 2)),
        Dtype::Tf32 | Dtype::Bf16 => from((8, 0)),
        Dtype::F8 => from((8, 9)),
        Dtype::F4 => from((10, 0)),
        _ => false,
    }
}

/// The number of which sizes of matrices are to be multiples, so that rows begin at multiples of 16 bytes (cuBLAS's guide, on
/// tensor cores).
pub(super) fn alignment(dtype: Dtype) -> u64 {
    128 / u64::from(dtype.bits())
}

// SIGNATURE: serde gives references.
pub(crate) fn name_of_dtype<S: Serializer>(dtype: &Dtype, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(dtype.name())
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
    fn types_are_known_by_what_programs_and_kernels_call_them() {
        assert_eq!(parse("torch.bfloat16"), Some(Dtype::Bf16));
        assert_eq!(parse(" F16 "), Some(Dtype::F16));
        assert_eq!(parse("complex64"), None);
        let of = of_kernel;
        assert_eq!(
            of("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn"),
            Some(Dtype::Bf16)
        );
        assert_eq!(of("cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1"), Some(Dtype::F64));
        assert_eq!(of("volta_sgemm_128x64_nn"), Some(Dtype::F32));
        assert_eq!(of("matmul_kernel"), None);
    }

    #[test]
    fn tensor_cores_learnt_types_one_by_one() {
        let first = |of: Dtype| {
            let all = [(6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)];
            all.into_iter().find(|capability| has_tensor_cores(of, *capability))
        };
        assert_eq!(first(Dtype::F16), Some((7, 0)));
        assert_eq!(first(Dtype::I8), Some((7, 5)));
        assert_eq!(first(Dtype::Bf16), Some((8, 0)));
        assert_eq!(first(Dtype::F8), Some((8, 9)));
        assert_eq!(first(Dtype::F4), Some((10, 0)));
        assert_eq!(first(Dtype::F32), None);
        assert!(!has_tensor_cores(Dtype::F64, (8, 6)));
    }
}
