//! Tensor-core use by patterns of kernel names.

use super::confidence::Confidence::{self, *};

use self::NameUse::*;

/// Tensor-core use by a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameUse {
    /// Uses tensor cores.
    Using,
    /// Multiplies matrices without them.
    Plain,
    /// A part of a product or attention that tensor cores cannot execute: vectors, sums, moves.
    Helper,
}

pub(super) type Row = (NameUse, Confidence, &'static str, &'static [&'static str]);

/// The first match counts; patterns are in lower case. Unambiguous names come first.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    // Without tensor cores, by name.
    (Plain, High, "cuBLAS, cuDNN: xmma kernels of plain arithmetic", &["*_ffma_*"]),
    (Plain, High, "CUTLASS: SIMT", &["*_simt_*", "*opclasssimt*"]),
    (Plain, High, "cuBLAS, cuDNN: of a GPU without", &["maxwell_*", "pascal_*"]),

    // The shapes of the instructions.
    (Using, High, "cuBLAS, cuDNN on Volta: f16 into f32", &["*s884*"]),
    (Using, High, "cuBLAS, cuDNN on Volta: f16", &["*h884*"]),
    (Using, High, "cuBLAS, CUTLASS from Ampere on: f64", &["*d884*"]),
    (Using, High, "cuBLAS on Hopper: f64", &["*d16816*"]),
    (Using, High, "Turing: f16; from Ampere on: tf32", &["*s1688*"]),
    (Using, High, "cuBLAS, cuDNN on Turing: f16", &["*h1688*"]),
    (Using, High, "from Ampere on: f16, bf16", &["*s16816*"]),
    (Using, High, "from Ampere on: f16", &["*h16816*"]),
    (Using, High, "Turing: int8", &["*i8816*"]),
    (Using, High, "Turing: int4", &["*i8832*"]),
    (Using, High, "from Ampere on: int8", &["*i16832*"]),
    (Using, High, "from Ampere on: int4", &["*i16864*"]),
    (Using, High, "CUTLASS: WMMA", &["*s161616*"]),
    (Using, High, "cuBLAS, cuDNN: xmma", &["*tensor16x8x*", "*tensor8x8x*"]),
    (Using, High, "CUTLASS", &["*_tensorop_*", "*opclasstensorop*"]),
    (Using, High, "Hopper", &["*wgmma*"]),
    (Using, High, "CUTLASS on Hopper", &["*gmma*"]),
    (Using, High, "Blackwell", &["*tcgen05*", "*utcmma*"]),
    (Using, High, "CUDA's WMMA", &["*wmma*"]),
    (Using, High, "by instruction", &["*_hmma*", "*_imma*", "*_qmma*", "*_dmma*"]),
    (Using, High, "CUTLASS 3: CuTe atoms", &["*sm70_8x8x4*", "*sm75_16x8x*", "*sm80_16x8x*",
        "*sm90_64x*", "*sm100_mma*", "*sm120_16x8x*"]),

    // Libraries without other kernels.
    (Using, High, "cuBLAS on Hopper and Blackwell", &["*nvjet*"]),
    (Using, High, "cuBLAS, cuDNN: xmma on Hopper", &["*warpgroupsize*"]),
    (Using, High, "cuBLAS, cuDNN: xmma", &["*xmma*tf32*", "*xmma*bf16*"]),
    (Using, Medium, "cuBLAS, cuDNN: xmma", &["*xmma*f16*"]),
    (Using, High, "cuBLAS, cuDNN: xmma", &["*xmma*e4m3*", "*xmma*e5m2*"]),
    (Using, High, "DeepGEMM", &["*deep_gemm*"]),
    (Using, High, "Marlin", &["*marlin*"]),
    (Using, High, "vLLM on Hopper", &["*machete*"]),
    (Using, High, "TensorRT-LLM on Blackwell", &["bmm_*", "fmhasm*"]),
    (Using, High, "TensorRT-LLM", &["*fmha_v2*"]),

    // Attention.
    (Helper, High, "FlashAttention 2: its preparation", &["*flash_bwd_dot_do_o*"]),
    (Helper, High, "FlashAttention 2: its conversion", &["*flash_bwd_convert*"]),
    (Helper, High, "FlashAttention 2: its sum", &["*splitkv_combine*"]),
    (Using, High, "FlashAttention 2: f16 and bf16 alone", &["*flash_fwd*", "*flash_bwd*"]),
    (Using, High, "FlashAttention 3", &["*flashattn*"]),
    (Using, High, "cuDNN", &["*flash_fprop*", "*flash_bprop*"]),
    (Helper, High, "llama.cpp", &["*flash_attn_vec*"]),
    (Plain, High, "llama.cpp", &["*flash_attn_tile*"]),
    (Using, Medium, "llama.cpp", &["*flash_attn_*"]),
    (Using, Low, "xFormers: f32 as tf32 from Ampere on", &["fmha_cutlass*_f32_*"]),
    (Using, High, "xFormers", &["fmha_cutlass*"]),
    (Helper, High, "vLLM: products with vectors", &["*paged_attention*"]),
    (Using, High, "FlashInfer", &["*flashinfer*prefill*"]),
    (Helper, Medium, "FlashInfer: products with vectors", &["*flashinfer*decode*"]),

    // Products without tensor cores.
    (Helper, High, "cuBLAS: products with vectors", &["*gemv*"]),
    (Helper, High, "cuBLAS: sums of parts", &["*splitkreduce*"]),
    (Helper, High, "cuBLAS: epilogue of a product", &["cublaslt::epilogue*"]),
    (Helper, High, "llama.cpp, candle: products with vectors", &["*mul_mat_vec*"]),
    (Helper, High, "bitsandbytes: products with vectors", &["*kgemm_4bit_inference_naive*"]),
    (Plain, Medium, "cuBLAS: small products", &["*gemmsn_*", "*gemmk1_*"]),
    (Plain, High, "cuBLAS: plain f32", &["*sgemm*"]),
    (Plain, Medium, "cuBLAS: plain f64", &["*dgemm*"]),
    (Plain, Medium, "cuBLAS: plain complex", &["*cgemm*", "*zgemm*"]),
    (Plain, Medium, "cuBLAS: plain f16", &["*hgemm*"]),
    (Plain, High, "cuDNN: plain f32", &["*scudnn*"]),
    (Plain, High, "cuDNN: plain f16", &["*hcudnn*"]),
    (Plain, High, "cuDNN", &["*implicit_convolve*", "*explicit_convolve*"]),
    (Plain, Medium, "cuDNN", &["*winograd*"]),
    (Plain, High, "cuDNN", &["*fft2d_*"]),
    (Helper, High, "PyTorch, cuDNN", &["*depthwise*"]),
    (Helper, High, "PyTorch, candle: moves elements alone", &["*im2col*", "*col2im*"]),
    (Plain, High, "candle", &["conv1d_*", "conv2d_*", "conv_transpose*"]),

    // Compilers that select tensor cores if types allow it.
    (Using, Medium, "llama.cpp: int8 from Turing on", &["*mul_mat_q*"]),
    (Using, Medium, "vLLM, SGLang: Triton's tl.dot", &["*fused_moe_kernel*"]),
    (Using, Low, "PyTorch Inductor: Triton's tl.dot", &["*triton_*mm*"]),
    (Using, Low, "Triton: tl.dot", &["matmul_kernel*", "_attn_fwd*", "_attn_bwd*"]),
];

/// Each pattern with its use and confidence, in order.
pub(super) fn patterns() -> impl Iterator<Item = (&'static str, NameUse, Confidence)> {
    ROWS.iter().flat_map(|&(name_use, confidence, _, patterns)| {
        patterns.iter().map(move |pattern| (*pattern, name_use, confidence))
    })
}
