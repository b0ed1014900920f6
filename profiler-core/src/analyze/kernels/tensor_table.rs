//! Which names are those of kernels that use tensor cores, and of kernels that multiply without them.

use super::confidence::Confidence::{self, *};

use self::Says::*;

/// What a name says of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// It uses tensor cores.
    Using,
    /// It multiplies matrices without them.
    Plain,
    /// It belongs to a product or attention, and is nothing that they could do: vectors, sums, moves.
    Helper,
}

pub(super) type Row = (&'static str, Says, Confidence, &'static str);

/// The first row that fits counts; patterns are in lower case. What a name says outright comes first.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    // Without, by name.
    ("*_ffma_*", Plain, High, "cuBLAS, cuDNN: xmma kernels of plain arithmetic"),
    ("*_simt_*", Plain, High, "CUTLASS: SIMT"),
    ("*opclasssimt*", Plain, High, "CUTLASS: SIMT"),
    ("maxwell_*", Plain, High, "cuBLAS, cuDNN: of a GPU without"),
    ("pascal_*", Plain, High, "cuBLAS, cuDNN: of a GPU without"),

    // The shapes of the instructions.
    ("*s884*", Using, High, "cuBLAS, cuDNN on Volta: f16 into f32"),
    ("*h884*", Using, High, "cuBLAS, cuDNN on Volta: f16"),
    ("*d884*", Using, High, "cuBLAS, CUTLASS from Ampere on: f64"),
    ("*d16816*", Using, High, "cuBLAS on Hopper: f64"),
    ("*s1688*", Using, High, "Turing: f16; from Ampere on: tf32"),
    ("*h1688*", Using, High, "cuBLAS, cuDNN on Turing: f16"),
    ("*s16816*", Using, High, "from Ampere on: f16, bf16"),
    ("*h16816*", Using, High, "from Ampere on: f16"),
    ("*i8816*", Using, High, "Turing: int8"),
    ("*i8832*", Using, High, "Turing: int4"),
    ("*i16832*", Using, High, "from Ampere on: int8"),
    ("*i16864*", Using, High, "from Ampere on: int4"),
    ("*s161616*", Using, High, "CUTLASS: WMMA"),
    ("*tensor16x8x*", Using, High, "cuBLAS, cuDNN: xmma"),
    ("*tensor8x8x*", Using, High, "cuBLAS, cuDNN: xmma"),
    ("*_tensorop_*", Using, High, "CUTLASS"),
    ("*opclasstensorop*", Using, High, "CUTLASS"),
    ("*wgmma*", Using, High, "Hopper"),
    ("*gmma*", Using, High, "CUTLASS on Hopper"),
    ("*tcgen05*", Using, High, "Blackwell"),
    ("*utcmma*", Using, High, "Blackwell"),
    ("*wmma*", Using, High, "CUDA's WMMA"),
    ("*_hmma*", Using, High, "by instruction"),
    ("*_imma*", Using, High, "by instruction"),
    ("*_qmma*", Using, High, "by instruction"),
    ("*_dmma*", Using, High, "by instruction"),
    ("*sm70_8x8x4*", Using, High, "CUTLASS 3: CuTe atoms"),
    ("*sm75_16x8x*", Using, High, "CUTLASS 3: CuTe atoms"),
    ("*sm80_16x8x*", Using, High, "CUTLASS 3: CuTe atoms"),
    ("*sm90_64x*", Using, High, "CUTLASS 3: CuTe atoms"),
    ("*sm100_mma*", Using, High, "CUTLASS 3: CuTe atoms"),
    ("*sm120_16x8x*", Using, High, "CUTLASS 3: CuTe atoms"),

    // Libraries that have no other kernels.
    ("*nvjet*", Using, High, "cuBLAS on Hopper and Blackwell"),
    ("*warpgroupsize*", Using, High, "cuBLAS, cuDNN: xmma on Hopper"),
    ("*xmma*tf32*", Using, High, "cuBLAS, cuDNN: xmma"),
    ("*xmma*bf16*", Using, High, "cuBLAS, cuDNN: xmma"),
    ("*xmma*f16*", Using, Medium, "cuBLAS, cuDNN: xmma"),
    ("*xmma*e4m3*", Using, High, "cuBLAS, cuDNN: xmma"),
    ("*xmma*e5m2*", Using, High, "cuBLAS, cuDNN: xmma"),
    ("*deep_gemm*", Using, High, "DeepGEMM"),
    ("*marlin*", Using, High, "Marlin"),
    ("*machete*", Using, High, "vLLM on Hopper"),
    ("bmm_*", Using, High, "TensorRT-LLM on Blackwell"),
    ("fmhasm*", Using, High, "TensorRT-LLM on Blackwell"),
    ("*fmha_v2*", Using, High, "TensorRT-LLM"),

    // Attention.
    ("*flash_bwd_dot_do_o*", Helper, High, "FlashAttention 2: its preparation"),
    ("*flash_bwd_convert*", Helper, High, "FlashAttention 2: its conversion"),
    ("*splitkv_combine*", Helper, High, "FlashAttention 2: its sum"),
    ("*flash_fwd*", Using, High, "FlashAttention 2: f16 and bf16 alone"),
    ("*flash_bwd*", Using, High, "FlashAttention 2: f16 and bf16 alone"),
    ("*flashattn*", Using, High, "FlashAttention 3"),
    ("*flash_fprop*", Using, High, "cuDNN"),
    ("*flash_bprop*", Using, High, "cuDNN"),
    ("*flash_attn_vec*", Helper, High, "llama.cpp"),
    ("*flash_attn_tile*", Plain, High, "llama.cpp"),
    ("*flash_attn_*", Using, Medium, "llama.cpp"),
    ("fmha_cutlass*_f32_*", Using, Low, "xFormers: f32 as tf32 from Ampere on"),
    ("fmha_cutlass*", Using, High, "xFormers"),
    ("*paged_attention*", Helper, High, "vLLM: products with vectors"),
    ("*flashinfer*prefill*", Using, High, "FlashInfer"),
    ("*flashinfer*decode*", Helper, Medium, "FlashInfer: products with vectors"),

    // Products without.
    ("*gemv*", Helper, High, "cuBLAS: products with vectors"),
    ("*splitkreduce*", Helper, High, "cuBLAS: sums of parts"),
    ("cublaslt::epilogue*", Helper, High, "cuBLAS: what follows a product"),
    ("*mul_mat_vec*", Helper, High, "llama.cpp, candle: products with vectors"),
    ("*kgemm_4bit_inference_naive*", Helper, High, "bitsandbytes: products with vectors"),
    ("*gemmsn_*", Plain, Medium, "cuBLAS: small products"),
    ("*gemmk1_*", Plain, Medium, "cuBLAS: small products"),
    ("*sgemm*", Plain, High, "cuBLAS: plain f32"),
    ("*dgemm*", Plain, Medium, "cuBLAS: plain f64"),
    ("*cgemm*", Plain, Medium, "cuBLAS: plain complex"),
    ("*zgemm*", Plain, Medium, "cuBLAS: plain complex"),
    ("*hgemm*", Plain, Medium, "cuBLAS: plain f16"),
    ("*scudnn*", Plain, High, "cuDNN: plain f32"),
    ("*hcudnn*", Plain, High, "cuDNN: plain f16"),
    ("*implicit_convolve*", Plain, High, "cuDNN"),
    ("*explicit_convolve*", Plain, High, "cuDNN"),
    ("*winograd*", Plain, Medium, "cuDNN"),
    ("*fft2d_*", Plain, High, "cuDNN"),
    ("*depthwise*", Helper, High, "PyTorch, cuDNN"),
    ("*im2col*", Helper, High, "PyTorch, candle: moves elements alone"),
    ("*col2im*", Helper, High, "PyTorch, candle: moves elements alone"),
    ("conv1d_*", Plain, High, "candle"),
    ("conv2d_*", Plain, High, "candle"),
    ("conv_transpose*", Plain, High, "candle"),

    // Compilers that choose them where types allow it.
    ("*mul_mat_q*", Using, Medium, "llama.cpp: int8 from Turing on"),
    ("*fused_moe_kernel*", Using, Medium, "vLLM, SGLang: Triton's tl.dot"),
    ("*triton_*mm*", Using, Low, "PyTorch Inductor: Triton's tl.dot"),
    ("matmul_kernel*", Using, Low, "Triton: tl.dot"),
    ("_attn_fwd*", Using, Low, "Triton: tl.dot"),
    ("_attn_bwd*", Using, Low, "Triton: tl.dot"),
];
