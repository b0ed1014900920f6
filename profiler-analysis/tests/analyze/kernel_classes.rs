//! Kernel classes: by names that libraries give their kernels, and as shares of what was recorded on a GPU.

use std::time::Duration;

use crate::quickstart;
use profiler_analysis::kernels::KernelClass::{self, *};
use profiler_analysis::kernels::{Classifier, Rule};
use profiler_analysis::prelude::*;

/// Names as profilers of the last five architectures show them.
const NAMES: &[(&str, KernelClass)] = &[
    // cuBLAS: Volta, Turing, Ampere, Hopper, Blackwell.
    ("volta_sgemm_128x64_nn", Gemm),
    ("volta_h884gemm_256x64_ldg8_tn", Gemm),
    ("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn", Gemm),
    ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", Gemm),
    ("turing_h1688gemm_128x128_ldg8_nn", Gemm),
    ("ampere_sgemm_32x128_tn", Gemm),
    ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn", Gemm),
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn", Gemm),
    (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        Gemm,
    ),
    ("nvjet_hsh_192x192_64x4_2x1_v_bz_coopA_NNT", Gemm),
    ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", Gemm),
    (
        "_Z18sgemm_largek_lds64ILb1ELb0ELi5ELi5ELi4ELi4ELi4ELi34EEvPfPKfS2_iiiiiiS2_S2_ffiiPiS3_",
        Gemm,
    ),
    (
        "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, float, float, float, float, false, true, true, false, 7, false, cublasGemvParamsEx<int>>(T13)",
        Gemm,
    ),
    (
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>(float)",
        Gemm,
    ),
    (
        "void cublasLt::epilogue::impl::globalKernel<8, 32, float, float, float, true, true, 1>(int, int)",
        Gemm,
    ),
    // CUTLASS, Triton, burn, llama.cpp and others.
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(T1::Params)",
        Gemm,
    ),
    ("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8", Gemm),
    ("matmul_kernel", Gemm),
    ("triton_tem_fused_addmm_relu_0", Gemm),
    ("triton_mm", Gemm),
    ("fused_moe_kernel", Gemm),
    ("void marlin::Marlin<__nv_bfloat16, 256, 1, 8, 8, 4, 8>(int4 const*)", Gemm),
    ("void mul_mat_q<(ggml_type)12, 64, 8, false>(char const*)", Gemm),
    ("dequantize_mul_mat_vec_q4_k", Gemm),
    ("matmul_entry_f32", Gemm),
    // cuDNN.
    ("volta_scudnn_128x64_relu_interior_nn_v1", Convolution),
    ("volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_exp_interior_nhwc_tn_v1", Convolution),
    ("turing_fp16_s1688cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc_tn_v1", Convolution),
    (
        "sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_t1r3s3_kernel_cudnn",
        Convolution,
    ),
    (
        "sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x64x64_warpgroupsize1x1x1_g1_strided_execute_kernel__5x_cudnn",
        Convolution,
    ),
    (
        "cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x64_32x3_nhwc_align4>",
        Convolution,
    ),
    ("void cudnn::cnn::wgrad2d_grouped_direct_kernel<float, float, float, int>(int)", Convolution),
    ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)", Convolution),
    (
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, true, false, true>(int)",
        Convolution,
    ),
    ("im2col_f32", Convolution),
    ("conv_transpose2d_f32", Convolution),
    // Attention.
    (
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t>>(pytorch_flash::Flash_fwd_params)",
        Attention,
    ),
    (
        "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8, 2, 4, 2, false, false, cutlass::bfloat16_t>>(Flash_bwd_params)",
        Attention,
    ),
    (
        "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>>(T1::Params)",
        Attention,
    ),
    (
        "fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>::Params)",
        Attention,
    ),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
        Attention,
    ),
    (
        "void vllm::paged_attention_v2_kernel<unsigned short, unsigned short, 128, 16, 128>(float*)",
        Attention,
    ),
    ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<1>(int)", Attention),
    ("_attn_fwd", Attention),
    ("void flash_attn_ext_f16<128, 128, 16, 2, false>(char const*)", Attention),
    // The rest of PyTorch.
    (
        "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::BUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>>(at::TensorIteratorBase&)::{lambda(int)#1}>(int)",
        Elementwise,
    ),
    (
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>(int)",
        Copy,
    ),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1>>(int)",
        Memset,
    ),
    (
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 3, 128, 1>(float*)",
        Copy,
    ),
    (
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)",
        Copy,
    ),
    (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
        Normalisation,
    ),
    (
        "void at::native::batch_norm_collect_statistics_kernel<InvStd, float, float, float, int>(int)",
        Normalisation,
    ),
    (
        "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long)",
        Normalisation,
    ),
    (
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(int)",
        Normalisation,
    ),
    ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(int)", Normalisation),
    ("rmsnorm_f32", Normalisation),
    (
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>(float*)",
        Softmax,
    ),
    (
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>(float*)",
        Softmax,
    ),
    ("void cudnn::softmax_fw_kernel<2, float, float, 256, 1, 0, 0>(int)", Softmax),
    ("triton_per_fused__softmax_3", Softmax),
    (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>>>(int)",
        Reduction,
    ),
    ("void cub::CUB_200200_900_NS::DeviceReduceSingleTileKernel<int>(int)", Reduction),
    ("triton_red_fused_sum_12", Reduction),
    ("triton_poi_fused_add_gelu_4", Elementwise),
    ("fast_sum_f32", Reduction),
    ("badd_f32", Elementwise),
    ("ucopy_f32", Copy),
    ("cast_f32_f16", Copy),
    ("elemwise_fuse", Elementwise),
    (
        "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>>(int)",
        Elementwise,
    ),
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)", Elementwise),
    // Optimizers and communication.
    (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4>>(int)",
        Optimizer,
    ),
    ("void kOptimizerStatic8bit2StateBlockwise<float, 0, 256, 1>(float*)", Optimizer),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", Collective),
    ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", Collective),
    ("void vllm::cross_device_reduce_1stage<nv_bfloat16, 8>(int)", Collective),
    // What nobody can tell by its name.
    ("_Z6kernelPf", Other),
    ("step_17", Other),
    ("read_properties", Other),
    ("prelude", Other),
    ("", Other),
];

#[test]
fn names_that_libraries_give_their_kernels_are_known() {
    let classifier = Classifier::new();
    let wrong: Vec<String> = NAMES
        .iter()
        .filter(|(name, class)| classifier.classify(name) != *class)
        .map(|(name, class)| {
            let by = classifier.explain(name).map(Rule::pattern);
            format!("{name}: {} by {by:?}, not {class}", classifier.classify(name))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    for class in KernelClass::ALL {
        assert!(NAMES.iter().any(|(_, of)| of == class), "no name of {class}");
    }
}

#[test]
fn no_rule_is_shadowed_by_an_earlier_one() {
    let classifier = Classifier::new();
    let rules: Vec<&Rule> = classifier.rules().collect();
    let mut hidden = Vec::new();
    for rule in &rules {
        assert_eq!(rule.pattern(), rule.pattern().to_ascii_lowercase());
        assert!(!rule.family().is_empty(), "{rule:?}");
        // A name that is no more than the pattern's own text.
        let first = classifier.explain(&rule.pattern().replace('*', "")).unwrap();
        if first != *rule {
            hidden.push(format!("{} behind {}", rule.pattern(), first.pattern()));
        }
    }
    assert!(hidden.is_empty(), "\n{}", hidden.join("\n"));
}

#[test]
fn rules_of_the_program_count_before_the_table() {
    let classifier = Classifier::new()
        .rule("my_*", Convolution)
        .rule("MY_gemm", Reduction)
        .rule("ns::k<*>", Attention);
    assert_eq!(classifier.classify("my_gemm"), Convolution, "the first that fits");
    assert_eq!(classifier.classify("MY_GEMM"), Convolution, "case does not count");
    assert_eq!(classifier.classify("_ZN2ns1kIfEEvi"), Attention, "as reports show it");
    assert_eq!(classifier.classify("not_my_gemm"), Gemm);
    assert_eq!(classifier.explain("my_gemm").map(Rule::family), Some(""));
    assert!(Classifier::new().explain("my_kernel").is_none());
}

#[test]
fn classes_of_a_profile_add_up_to_its_kernels() {
    let profile = quickstart();
    let classes = profile.kernel_classes();
    let kernels = profile.query().kernels();
    assert_eq!(classes.iter().map(|group| group.count()).sum::<u64>(), kernels.count());
    assert_eq!(classes.iter().map(|group| group.time()).sum::<Duration>(), kernels.gpu_time());
    let shares: f64 = classes.iter().map(|group| group.share()).sum();
    assert!((shares - 1.0).abs() < 1e-9);

    let all = profile.query().by_kernel_class();
    let copies = profile.query().copies();
    assert_eq!(all.get("copy").unwrap().count(), copies.count());
    let sums = profile.query().range_class_sums(&Classifier::new());
    let rows = serde_json::to_value(&sums).unwrap();
    let rows = rows.as_array().unwrap();
    let backward: Vec<_> = rows.iter().filter(|row| row["path"] == "batch/backward").collect();
    let percent: f64 = backward.iter().map(|row| row["time_percent"].as_f64().unwrap()).sum();
    assert!((percent - 100.0).abs() < 1e-9 && backward[0]["class"] == Gemm.name(), "{sums}");
    let total: u64 = rows.iter().map(|row| row["total_ns"].as_u64().unwrap()).sum();
    assert_eq!(u128::from(total), kernels.gpu_time().as_nanos());
}

#[cfg(feature = "nsys")]
#[test]
fn kernels_of_a_pytorch_run_are_classified() {
    let profile = crate::captured("train");
    let classes = profile.kernel_classes();
    let count = |class: KernelClass| classes.get(class.name()).map_or(0, |group| group.count());
    // By hand, from what `nsys stats -r cuda_gpu_kern_sum` lists: seven kernels of cuBLAS and CUTLASS with their epilogue
    // and split-k sums, a loss and two sums, six of foreach with its divisions, and what is done by element.
    assert_eq!(count(Gemm), 20 * 7, "{classes}");
    assert_eq!(count(Optimizer), 20 * 7);
    assert_eq!(count(Reduction), 20 * 3);
    assert_eq!(count(Memset), 28);
    assert_eq!(count(Elementwise), 20 * 7);
    assert_eq!(count(Other), 0);
    let forward = profile.query().in_range("Forward pass").kernels().by_kernel_class();
    assert!(forward.get("optimizer").is_none() && forward.get("gemm").is_some());
}
