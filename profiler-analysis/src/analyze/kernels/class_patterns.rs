//! The built-in classes of kernel names, which follow those of
//! [communication](profiler_core::tables::communication::TABLE).
//!
//! A row is a class, the libraries, and lower-case patterns. The first match counts, so specific
//! patterns come before general ones.

use super::class::KernelClass::{self, *};

pub(super) type Row = (KernelClass, &'static str, &'static [&'static str]);

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    // Optimizers; before elementwise, whose functors they use.
    (Optimizer, "PyTorch foreach, apex", &["*multi_tensor_apply_kernel*"]),
    (Optimizer, "PyTorch, apex, DeepSpeed", &["*fusedadam*", "*fused_adam*"]),
    (Optimizer, "apex", &["*adam_cuda_kernel*"]),
    (Optimizer, "any", &["*adamw*"]),
    (Optimizer, "apex", &["*lambstage*"]),
    (Optimizer, "PyTorch, apex", &["*fusedsgd*"]),
    (Optimizer, "bitsandbytes", &["*koptimizer*", "*kpreconditionoptimizer*"]),
    (Optimizer, "TensorFlow", &["*applyadam*", "*applygradientdescent*"]),
    (Optimizer, "burn, candle programs", &["*adam_step*"]),
    (Optimizer, "any", &["*sgd_step*"]),

    // Softmax by itself; before attention, whose template arguments contain it.
    (Softmax, "PyTorch, Megatron", &["*softmax_warp_forward*", "*softmax_warp_backward*"]),
    (Softmax, "PyTorch", &["*cunn_softmax*", "*cunn_spatialsoftmax*"]),

    // Attention.
    (Attention, "FlashAttention 2", &["*flash_fwd*", "*flash_bwd*"]),
    (Attention, "FlashAttention 3", &["*flashattn*"]),
    (Attention, "llama.cpp, FlashAttention", &["*flash_attn*"]),
    (Attention, "cuDNN", &["*flash_fprop*", "*flash_bprop*"]),
    (Attention, "CUTLASS, xFormers, TensorRT-LLM", &["*fmha*"]),
    (Attention, "cuDNN", &["*sdpa*"]),
    (Attention, "vLLM", &["*paged_attention*"]),
    (Attention, "FlashInfer", &["flashinfer::*prefill*", "flashinfer::*decode*",
        "*batchprefillwith*", "*batchdecodewith*", "*singleprefillwith*", "*singledecodewith*"]),
    (Attention, "TensorRT-LLM, FasterTransformer", &["*multihead*attention*"]),
    (Attention, "PyTorch flex_attention, vLLM, burn", &["*attention*"]),
    (Attention, "Triton", &["*_attn*"]),
    (Attention, "Triton, vLLM", &["*attn_*"]),
    (Attention, "FlashAttention, xFormers", &["*mha_fwd*", "*mha_bwd*"]),
    (Attention, "FlashMLA", &["*flash_mla*"]),
    (Attention, "SageAttention", &["*sage*attn*"]),

    (Softmax, "cuDNN, PyTorch, candle, Triton", &["*softmax*"]),
    (Softmax, "llama.cpp", &["*soft_max*"]),

    // Normalisation.
    (Normalisation, "PyTorch, Triton", &["*layer_norm*"]),
    (Normalisation, "PyTorch, apex, candle, Transformer Engine", &["*layernorm*"]),
    (Normalisation, "vLLM, llama.cpp, Liger", &["*rms_norm*"]),
    (Normalisation, "candle, FlashInfer, Transformer Engine", &["*rmsnorm*"]),
    (Normalisation, "PyTorch", &["*batch_norm*"]),
    (Normalisation, "cuDNN, apex", &["*batchnorm*"]),
    (Normalisation, "PyTorch", &["*group_norm*"]),
    (Normalisation, "apex, TensorRT", &["*groupnorm*"]),
    (Normalisation, "any", &["*instance_norm*"]),
    (Normalisation, "apex, TensorRT", &["*instancenorm*"]),
    (Normalisation, "PyTorch", &["*rowwisemoments*", "*gammabeta*"]),
    (Normalisation, "cuDNN", &["*bn_fw_*", "*bn_bw_*"]),
    (Normalisation, "Transformer Engine, apex", &["*ln_fwd*", "*ln_bwd*"]),
    (Normalisation, "llama.cpp", &["*norm_f32*"]),

    // Convolution; before gemm, which many of these names contain.
    (Convolution, "cuDNN, CUTLASS", &["*fprop*", "*dgrad*", "*wgrad*"]),
    (Convolution, "cuDNN", &["*scudnn*"]),
    (Convolution, "cuDNN on Volta", &["*884cudnn*"]),
    (Convolution, "cuDNN on Turing", &["*1688cudnn*"]),
    (Convolution, "cuDNN", &["*hcudnn*", "*icudnn*"]),
    (Convolution, "cuDNN, CUTLASS", &["*implicit_gemm*"]),
    (Convolution, "cuDNN", &["*implicit_convolve*", "*explicit_convolve*", "*convolve*"]),
    (Convolution, "cuDNN, Triton", &["*convolution*"]),
    (Convolution, "cuDNN", &["*winograd*"]),
    (Convolution, "PyTorch, cuDNN, candle", &["*im2col*"]),
    (Convolution, "PyTorch, candle", &["*col2im*"]),
    (Convolution, "PyTorch", &["*conv_depthwise*"]),
    (Convolution, "candle, PyTorch, Mamba", &["*conv1d*"]),
    (Convolution, "cuDNN, candle, PyTorch", &["*conv2d*"]),
    (Convolution, "PyTorch", &["*conv3d*"]),
    (Convolution, "candle", &["*conv_transpose*"]),
    (Convolution, "cuDNN", &["*fft2d_*"]),
    (Convolution, "CUTLASS", &["*cutlass*conv::*"]),

    // Products.
    (Gemm, "cuBLAS, CUTLASS, DeepGEMM", &["*gemm*"]),
    (Gemm, "cuBLAS", &["*gemv*"]),
    (Gemm, "cuBLAS on Hopper and Blackwell", &["*nvjet*"]),
    (Gemm, "cuBLAS", &["*splitkreduce*", "cublaslt::epilogue*", "*cublas*symm*", "*syrk*",
        "*trmm*"]),
    (Gemm, "Triton, burn, cubecl", &["*matmul*"]),
    (Gemm, "any", &["*mat_mul*"]),
    (Gemm, "llama.cpp, candle", &["*mul_mat*"]),
    (Gemm, "PyTorch Inductor", &["*triton_*mm_*", "triton_mm", "triton_bmm",
        "triton_tem_fused_*mm*"]),
    (Gemm, "vLLM, SGLang", &["*fused_moe_kernel*"]),
    (Gemm, "TensorRT-LLM on Blackwell", &["bmm_*"]),
    (Gemm, "Marlin", &["*marlin*"]),
    (Gemm, "vLLM", &["*machete*"]),
    (Gemm, "cuBLAS on Volta", &["*mma_884*"]),
    (Gemm, "CUTLASS", &["cutlass::kernel*"]),
    (Gemm, "CUTLASS 3", &["cutlass::device_kernel*"]),
    (Gemm, "cuBLAS", &["*xmma_*"]),

    // Memset; before elementwise, which PyTorch uses for it.
    (Memset, "PyTorch", &["*fillfunctor*"]),
    (Memset, "any", &["*fill_kernel*"]),
    (Memset, "candle", &["fill_*", "const_set_*"]),
    (Memset, "any", &["*memset*", "*zero_kernel*"]),
    (Memset, "Thrust", &["*uninitialized_fill*"]),

    // Before embedding.
    (Elementwise, "vLLM, FlashInfer", &["*rotary*"]),

    // Copies; before elementwise, which PyTorch uses for them.
    (Copy, "PyTorch, candle, Thrust", &["*copy*"]),
    (Copy, "PyTorch", &["*catarray*"]),
    (Copy, "any", &["*concat*"]),
    (Copy, "PyTorch Inductor", &["triton_poi_fused_cat_*", "triton_poi_fused_clone_*"]),
    (Copy, "cuDNN", &["*nchwtonhwc*", "*nhwctonchw*", "*nhwcaddpadding*", "*converttensor*",
        "*tensortransform*"]),
    (Copy, "cuBLAS", &["*transpose_readwrite*"]),
    (Copy, "any", &["*transpose_kernel*"]),
    (Copy, "Transformer Engine", &["*transpose*cast*"]),
    (Copy, "any", &["*permute*"]),
    (Copy, "PyTorch", &["*indexselect*", "*index_elementwise_kernel*"]),
    (Copy, "PyTorch, candle", &["*gather*", "*scatter*"]),
    (Copy, "PyTorch", &["*embedding*"]),
    (Copy, "vLLM", &["*reshape_and_cache*"]),
    (Copy, "candle", &["is_u32_*", "is_u8_*", "is_i64_*", "cast_*"]),

    // Reductions.
    (Reduction, "PyTorch, cubecl", &["*reduce_kernel*"]),
    (Reduction, "cuBLAS", &["*reduce_1block*"]),
    (Reduction, "CUB", &["*devicereduce*", "*devicesegmentedreduce*", "*devicescan*"]),
    (Reduction, "PyTorch", &["*tensor_kernel_scan*", "*cumsum*"]),
    (Reduction, "cuBLAS", &["dot_kernel*", "*::dot_kernel*", "*asum_kernel*", "*nrm2*"]),
    (Reduction, "PyTorch", &["*nll_loss*"]),
    (Reduction, "PyTorch Inductor", &["triton_red_*", "triton_per_*"]),
    (Reduction, "candle", &["fast_sum_*", "fast_max_*", "fast_min_*", "fast_argm*"]),
    (Reduction, "llama.cpp", &["*sum_rows*"]),
    (Reduction, "any", &["*argmax*"]),
    (Reduction, "burn, cubecl", &["*reduce_sum*", "*sharedsum*"]),
    (Reduction, "any", &["*reduction*", "*reduce*"]),

    // The same arithmetic on every element.
    (Elementwise, "PyTorch", &["*elementwise*"]),
    (Elementwise, "burn, cubecl", &["*elemwise*"]),
    (Elementwise, "any", &["*element_wise*"]),
    (Elementwise, "cuDNN", &["*op_tensor*"]),
    (Elementwise, "cuDNN, PyTorch", &["*pointwise*"]),
    (Elementwise, "PyTorch Inductor", &["triton_poi_*"]),
    (Elementwise, "vLLM, FlashInfer", &["*act_and_mul*"]),
    (Elementwise, "llama.cpp, candle", &["rope*"]),
    (Elementwise, "Triton, Liger", &["*_rope*"]),
    (Elementwise, "PyTorch", &["*dropout*"]),
    (Elementwise, "candle, Triton", &["*gelu*", "*silu*"]),
    (Elementwise, "Liger", &["*swiglu*"]),
    (Elementwise, "Triton", &["*_relu*"]),
    (Elementwise, "candle", &["*relu_*"]),
    (Elementwise, "any", &["relu*", "*sigmoid*"]),
    (Elementwise, "llama.cpp, candle, bitsandbytes", &["*dequantize*"]),
    (Elementwise, "llama.cpp, vLLM, bitsandbytes", &["*quantize*"]),
    (Elementwise, "vLLM", &["*_quant_*"]),
    (Elementwise, "llama.cpp", &["*bin_bcast*"]),
    (Elementwise, "cuBLAS", &["scal_kernel*", "*::scal_kernel*", "*axpy*"]),
    (Elementwise, "candle", &["affine_*", "where_*", "badd_*", "bsub_*", "bmul_*", "bdiv_*",
        "bmaximum_*", "bminimum_*", "uneg_*", "uexp_*", "ulog_*", "usqr*", "utanh_*", "urecip_*",
        "usin_*", "ucos_*", "uerf_*"]),
    (Elementwise, "burn, cubecl", &["*unary*", "*binop*", "*scalarop*"]),
    (Elementwise, "CUDA samples", &["*vectoradd*"]),
    (Elementwise, "any", &["*vector_add*"]),
    (Elementwise, "Triton", &["*add_kernel*"]),
    (Elementwise, "any", &["*mul_kernel*"]),
];
