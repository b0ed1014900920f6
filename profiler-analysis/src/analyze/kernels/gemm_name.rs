//! Architecture and operand alignment in the names of matrix products.
//!
//! - cuBLAS: `volta_h884gemm_...`, `turing_...`, `ampere_...`, `sm80_xmma_gemm_...`,
//!   `nvjet_sm90_...`, `cutlass_75_tensorop_...`: the architecture is the prefix. Names recorded on
//!   an H200 are in `tests/products-h200.csv`.
//! - CUTLASS 2: `cutlass_{class}_{element?}_{core}_{element?}_{tile}_{layout}_align{N}`. The core
//!   is the accumulator's letter, the shape of the instruction and `gemm`. `N` is the maximum
//!   number of elements per load that the alignment of the operands permits. Source:
//!   `procedural_name` and `core_name` of `cutlass_library/gemm_operation.py`; cuBLAS's copies of
//!   these kernels have the architecture behind `cutlass_`.
//! - CUTLASS 3: `cutlass3x_sm90_...`, from the same source.
//!
//! Other names, such as those of Triton, contain neither.

/// A compute capability, as in `sm_75`.
pub(crate) type Architecture = (u32, u32);

/// The properties in a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GemmName {
    /// The target architecture of the kernel.
    pub(crate) architecture: Option<Architecture>,
    /// The elements per load of a CUTLASS 2 kernel for tensor cores.
    pub(crate) alignment: Option<Alignment>,
}

/// The size of a load of operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alignment {
    pub(crate) elements: u32,
    /// The bytes of an element.
    pub(crate) element_bytes: u32,
}

impl Alignment {
    /// True for loads of one or two elements and less than 16 bytes, which no aligned operand
    /// needs.
    pub(crate) fn is_unaligned(self) -> bool {
        self.elements <= 2 && self.elements * self.element_bytes < 16
    }
}

impl GemmName {
    /// Reads a demangled name without parameters, in lower case.
    pub(crate) fn parse(name: &str) -> Self {
        let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let mut words = words.filter_map(|word| {
            let parts: Vec<&str> = word.split('_').collect();
            let architecture = architecture(&parts);
            let alignment = alignment(&parts);
            (architecture.is_some() || alignment.is_some())
                .then_some(Self { architecture, alignment })
        });
        words.next().unwrap_or_default()
    }
}

fn architecture(parts: &[&str]) -> Option<Architecture> {
    let is_gemm = || parts.iter().any(|part| part.contains("gemm"));
    let second = parts.get(1).copied().unwrap_or_default();
    match *parts.first()? {
        "volta" if is_gemm() => Some((7, 0)),
        "turing" if is_gemm() => Some((7, 5)),
        "ampere" if is_gemm() => Some((8, 0)),
        "cutlass" if is_gemm() => number(second),
        "cutlass3x" | "nvjet" => number(second.strip_prefix("sm")?),
        first if second == "xmma" && is_gemm() => number(first.strip_prefix("sm")?),
        _ => None,
    }
}

/// Converts `75` to 7.5 and `100` to 10.0. Suffixes, as in `90a`, are not part of the number.
fn number(digits: &str) -> Option<Architecture> {
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number: u32 = digits[..end].parse().ok()?;
    (50..1_000).contains(&number).then_some((number / 10, number % 10))
}

fn alignment(parts: &[&str]) -> Option<Alignment> {
    if parts.first() != Some(&"cutlass") || !parts.contains(&"tensorop") {
        return None;
    }
    let elements = parts.iter().find_map(|part| part.strip_prefix("align")?.parse().ok())?;
    // Kernels of 8-byte and complex numbers (d, z, c, g) exist only with a load of one element.
    let core = parts.iter().find(|part| part.contains("gemm"))?;
    let letter = core.strip_prefix(['s', 'h', 'i'])?;
    if !letter.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let element_bytes = match () {
        () if core.starts_with('i') || parts.contains(&"s8") || parts.contains(&"u8") => 1,
        () if core.starts_with('h') || parts.contains(&"f16") || parts.contains(&"bf16") => 2,
        // Without a type: f32, which tensor cores round to tf32.
        () => 4,
    };
    Some(Alignment { elements, element_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> (Option<Architecture>, Option<(u32, u32)>) {
        let GemmName { architecture, alignment } = GemmName::parse(name);
        (architecture, alignment.map(|alignment| (alignment.elements, alignment.element_bytes)))
    }

    #[test]
    fn architecture_and_alignment_are_read_from_names() {
        for (name, architecture, alignment) in [
            // GPT-2 on an H100, with a vocabulary of 50,257.
            (
                "cutlass::kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>",
                Some((7, 5)),
                Some((1, 2)),
            ),
            // cuBLAS on an H200: tests/products-h200.csv.
            (
                "cutlass::kernel2<cutlass_75_tensorop_s1688gemm_f16_128x128_tn_align1>",
                Some((7, 5)),
                Some((1, 2)),
            ),
            (
                "cutlass::kernel2<cutlass_80_tensorop_s1688gemm_128x256_32x3_tn_align1>",
                Some((8, 0)),
                Some((1, 4)),
            ),
            (
                "cutlass::kernel2<cutlass_80_tensorop_i16832gemm_s8_64x64_128x5_tn_align16>",
                Some((8, 0)),
                Some((16, 1)),
            ),
            ("cutlass::kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>", Some((8, 0)), None),
            ("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopb_tnt", Some((9, 0)), None),
            (
                "sm90_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize128x64x32_stage3_warpsize4x2x1_tensor16x8x16_aligna8_alignc8_execute_kernel__5x_cublas",
                Some((9, 0)),
                None,
            ),
            // CUTLASS's own names.
            ("cutlass_tensorop_s16816gemm_f16_128x128_32x5_nt_align8", None, Some((8, 2))),
            ("cutlass_tensorop_h16816gemm_256x128_32x3_nn_align2", None, Some((2, 2))),
            ("cutlass_tensorop_d884gemm_64x64_16x4_nn_align1", None, None),
            ("cutlass_tensorop_c1688gemm_64x64_16x4_nn_align1", None, None),
            ("cutlass3x_sm100_tensorop_gemm_bf16_bf16_f32_f32_f32_align8", Some((10, 0)), None),
            ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn", Some((8, 0)), None),
            ("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn", Some((7, 0)), None),
            ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32", Some((8, 0)), None),
            // Names that state nothing of a matrix product.
            ("nvjet_hsh_192x192_64x4_2x1_v_bz_coopa_nnt", None, None),
            ("turing_fp16_s1688cudnn_fp16_256x64_ldg8_relu_f2f", None, None),
            ("cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16", None, None),
            ("triton_mm_align1", None, None),
            ("my_ampere_gemm", None, None),
            ("cutlass_9999999999_tensorop_s1688gemm_align99999999999", None, None),
            ("", None, None),
        ] {
            assert_eq!(parse(name), (architecture, alignment), "{name}");
        }
    }

    #[test]
    fn loads_of_16_bytes_are_aligned() {
        let is_unaligned =
            |elements, element_bytes| Alignment { elements, element_bytes }.is_unaligned();
        assert!(is_unaligned(1, 2) && is_unaligned(2, 2) && is_unaligned(1, 4));
        assert!(is_unaligned(2, 4));
        assert!(!is_unaligned(8, 2) && !is_unaligned(4, 4) && !is_unaligned(4, 2));
    }
}
