//! Kernels that move data between GPUs, by name.
//!
//! Only the function's own name is matched: `BlockAllReduce` as a template argument of a layer
//! normalisation is not communication. [`TABLE`] has the patterns of public libraries; a program
//! can add to them with [`Profile::with_communication`](crate::Profile::with_communication).

use profiler_base::kernel_names::{Characters, displayed, lower_case, matches, without_arguments};
use rustc_hash::FxHashMap;

use crate::join::tables::{KernelNames, NameId, Names, Tables, What, WorkId};

/// A pattern of communication kernels.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// A pattern in lower case; `*` matches any text. A pattern with `::` matches the qualified
    /// name; other patterns match the name without namespaces. Both exclude template arguments and
    /// parameters.
    pub pattern: &'static str,
    characters: Characters,
    /// The libraries that use such names.
    pub family: &'static str,
    /// A public repository and file that contains them.
    #[cfg_attr(not(test), allow(dead_code, reason = "documents the row"))]
    pub source: &'static str,
    /// A name as displayed by profilers.
    #[cfg_attr(not(test), allow(dead_code, reason = "tests the row"))]
    pub example: &'static str,
}

const fn row(
    pattern: &'static str,
    family: &'static str,
    source: &'static str,
    example: &'static str,
) -> Row {
    Row { pattern, characters: Characters::from_text(pattern), family, source, example }
}

/// The first match is used: specific patterns precede general ones.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    row("nccl*kernel*", "NCCL, RCCL", "NVIDIA/nccl src/device/generate.py, src/device/symmetric/generate.py",
        "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(ncclSymkDevWorkArgs4K)"),
    row("mscclkernel_*", "MSCCL, RCCL", "ROCm/rccl src/device/msccl_kernel_impl.h",
        "mscclKernel_Sum_float_Simple(ncclDevComm *, mscclAlgo *)"),
    row("mscclpp::*", "MSCCL++", "microsoft/mscclpp src/include/execution_kernel.hpp, src/ext/collectives",
        "void mscclpp::executionKernel<__half, mscclpp::LL16Packet, false>(int, mscclpp::DeviceExecutionPlan*)"),
    row("*nvshmem*", "NVSHMEM", "NVIDIA/nvshmem src/device/launch",
        "nvshmemi_proxy_quiet_kernel()"),
    row("barrier_on_stream_kernel*", "NVSHMEM", "NVIDIA/nvshmem src/host/stream/coll/barrier/barrier.cu",
        "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)"),
    row("sync_on_stream_kernel*", "NVSHMEM", "NVIDIA/nvshmem src/host/stream/coll/barrier/barrier.cu",
        "void sync_on_stream_kernel_threadgroup<(threadgroup_t)2>(int)"),
    row("rdxn_on_stream_kernel*", "NVSHMEM", "NVIDIA/nvshmem src/host/stream/coll/rdxn",
        "void rdxn_on_stream_kernel<float, (rdxn_ops)4>(int, float *, float const *, unsigned long)"),
    row("fcollect_on_stream_kernel*", "NVSHMEM", "NVIDIA/nvshmem src/host/stream/coll/fcollect/fcollect.cu",
        "void fcollect_on_stream_kernel<int>(int, int *, int const *, unsigned long)"),
    row("broadcast_on_stream_kernel*", "NVSHMEM", "NVIDIA/nvshmem src/host/stream/coll/broadcast/broadcast.cu",
        "void broadcast_on_stream_kernel<int>(int, int *, int const *, unsigned long, int)"),
    row("*userbuffers_*", "Transformer Engine, TensorRT-LLM",
        "NVIDIA/TransformerEngine transformer_engine/common/comm_gemm_overlap/userbuffers/userbuffers.cu",
        "userbuffers_fp16_sum_inplace_gpu_rw_ag(int, int, int)"),
    row("cross_device_reduce*", "vLLM, SGLang, AITER", "vllm-project/vllm csrc/custom_all_reduce.cuh",
        "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)"),
    row("multimem_*", "PyTorch symmetric memory, SGLang",
        "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu",
        "void (anonymous namespace)::multimem_one_shot_reduce_out_kernel<float, 16>(float*)"),
    row("exchangesplitandoffset*", "PyTorch symmetric memory",
        "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/nvshmem_extension.cu",
        "void c10d::nvshmem_extension::exchangeSplitAndOffset_2d<true>(long*)"),
    row("deep_ep::*", "DeepEP", "deepseek-ai/DeepEP csrc/kernels/internode_ll.cu, csrc/kernels/intranode.cu",
        "void deep_ep::internode_ll::dispatch<true, false, false, 7168>(void*, void*)"),
    row("*a2a_dispatch*", "pplx-garden", "perplexityai/pplx-garden p2p-all-to-all/a2a-kernels/src/a2a/a2a_dispatch_send.cu",
        "void a2a_dispatch_send_kernel<true, 16ul, 8ul>(unsigned long)"),
    row("*a2a_combine*", "pplx-garden", "perplexityai/pplx-garden p2p-all-to-all/a2a-kernels/src/a2a/a2a_combine_recv.cu",
        "void a2a_combine_recv_kernel<true, 16ul, 8ul>(unsigned long)"),
    row("dispatchkernel", "pplx-kernels", "ppl-ai/pplx-kernels csrc/all_to_all/intranode_dispatch.cu",
        "void <unnamed>::dispatchKernel<(unsigned int)16, (bool)1, (bool)0>(int *, unsigned long)"),
    row("pplx::*combinekernel", "pplx-kernels", "ppl-ai/pplx-kernels csrc/all_to_all/internode_combine.cu",
        "void pplx::combineKernel<(unsigned int)16, (bool)1>(int *)"),
    row("(anonymous namespace)::combinekernel", "pplx-kernels", "ppl-ai/pplx-kernels csrc/all_to_all/internode_combine.cu",
        "void (anonymous namespace)::combineKernel<__nv_bfloat16, 16u, true, false>(int*)"),
    row("moea2a*dispatchkernel", "TensorRT-LLM, FlashInfer",
        "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/communicationKernels/moeAlltoAllKernels.cu",
        "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<Policy, 8>(int const*)"),
    row("moea2a*combinekernel", "TensorRT-LLM, FlashInfer",
        "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/communicationKernels/moeAlltoAllKernels.cu",
        "void tensorrt_llm::kernels::moe_comm::moeA2APrepareCombineKernel(unsigned char*)"),
    row("*allreduce*", "TensorRT-LLM, FlashInfer, MSCCL++, QuickReduce, XLA",
        "flashinfer-ai/flashinfer include/flashinfer/comm/trtllm_mnnvl_allreduce.cuh, vllm-project/vllm \
         csrc/quickreduce/quick_reduce.h",
        "void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<8, __nv_bfloat16>(__nv_bfloat16*)"),
    row("*all_reduce*", "PyTorch symmetric memory, SGLang",
        "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu",
        "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(c10::BFloat16**)"),
    row("*all_gather*", "PyTorch symmetric memory, Flux", "bytedance/flux src/coll/all_gather_impls.cu",
        "void bytedance::flux::ring_all_gather_kernel<8>(int)"),
    row("*allgather*", "TensorRT-LLM, MSCCL++", "microsoft/mscclpp src/ext/collectives/allgather/allgather_fullmesh.cu",
        "void allgatherFullmesh<true>(void*)"),
    row("*reduce_scatter*", "PyTorch symmetric memory, SGLang",
        "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu",
        "void reduce_scatter_kernel<float>(float*)"),
    row("*reducescatter*", "TensorRT-LLM, MSCCL++, NVSHMEM",
        "NVIDIA/nvshmem src/host/stream/coll/reducescatter/reducescatter_sum.cu",
        "void reducescatter_on_stream_kernel<float, (rdxn_ops)4>(int, float *, float const *)"),
    row("*all_to_all*", "PyTorch symmetric memory",
        "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/nvshmem_extension.cu",
        "all_to_all_v_kernel(void*)"),
    row("*alltoall*", "PyTorch symmetric memory, TensorRT-LLM, NVSHMEM, XLA",
        "openxla/xla xla/stream_executor/gpu/ragged_all_to_all_kernel_lib.cu.h",
        "void stream_executor::gpu::RaggedAllToAllKernelImpl<8l>(void const*)"),
    row("all2all*", "Flux", "bytedance/flux src/coll/all2all_impl.cu",
        "bytedance::flux::all2all_v2(bytedance::flux::All2allParams)"),
];

/// Names with the words of [`TABLE`] whose kernels stay on one GPU: reductions within a block or a
/// warp, and kernels of PyTorch Inductor, whose names list the fused operations.
const WITHIN_A_GPU: &[&str] = &[
    "*block_all_reduce*",
    "*blockallreduce*",
    "*warp_all_reduce*",
    "*warpallreduce*",
    "triton_poi_*",
    "triton_red_*",
    "triton_per_*",
    "deep_ep::layout::*",
];

/// The row of [`TABLE`] for a name from [`lower_case`].
pub fn row_of(shown: &str) -> Option<usize> {
    let qualified = without_arguments(shown);
    let own = qualified.rsplit("::").next().unwrap_or(&qualified);
    let characters = Characters::from_text(&qualified);
    let is_it = |pattern: &str| match pattern.contains("::") {
        true => matches(pattern, &qualified),
        false => matches(pattern, own),
    };
    let can_match = |row: &Row| row.characters.can_match(characters);
    let row = TABLE.iter().position(|row| can_match(row) && is_it(row.pattern))?;
    (!WITHIN_A_GPU.iter().any(|pattern| is_it(pattern))).then_some(row)
}

/// For each row of [`Tables::works`], true if it is communication between GPUs.
#[derive(Debug)]
pub struct Communication(Vec<bool>);

impl Communication {
    /// Matches by [`TABLE`]. Costs microseconds for each kernel name.
    pub fn new(store: &Tables) -> Self {
        Self::with_patterns(store, |_| false)
    }

    /// Matches by [`TABLE`] and a function of the program, which receives a kernel's displayed
    /// name, then its mangled one.
    pub fn with_patterns(store: &Tables, is_added: impl Fn(&str) -> bool) -> Self {
        let is_named = |names: KernelNames| {
            let by_table = |id: NameId| row_of(&lower_case(store.names.get(id)).0).is_some();
            // A capture of nsys may have the matching name in either field.
            by_table(names.name)
                || names.demangled.is_some_and(by_table)
                || is_added(&shown(&store.names, names))
                || is_added(store.names.get(names.name))
        };
        let mut known: FxHashMap<(NameId, Option<NameId>), bool> = FxHashMap::default();
        let rows = store.works.rows().iter().map(|work| match work.what {
            What::Kernel { names, .. } => {
                *known.entry((names.name, names.demangled)).or_insert_with(|| is_named(names))
            }
            _ => false,
        });
        Self(rows.collect())
    }

    /// True if this work moves data between GPUs.
    #[inline]
    pub fn contains(&self, work: WorkId) -> bool {
        self.0.get(work.at()).copied().unwrap_or(false)
    }
}

fn shown(names: &Names, kernel: KernelNames) -> String {
    displayed(names.get(kernel.name), kernel.demangled.map(|id| names.get(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_of_name(name: &str) -> Option<usize> {
        row_of(&lower_case(name).0)
    }

    #[test]
    fn each_row_has_a_source_and_is_the_first_of_its_example() {
        for (at, row) in TABLE.iter().enumerate() {
            assert_eq!(row_of_name(row.example), Some(at), "{row:?}");
            assert_eq!(row.pattern, row.pattern.to_ascii_lowercase());
            // OWNER/NAME PATH
            let (repository, path) = row.source.split_once(' ').unwrap();
            assert!(repository.split('/').count() == 2 && path.contains('/'), "{row:?}");
        }
    }

    #[test]
    fn names_of_public_libraries_are_communication() {
        for name in [
            "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
            "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
            "_Z27ncclDevKernel_ReduceScatterPv",
            "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)",
            "kuserbuffers_pushsend(int *, int, int)",
            "userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_fp8<__nv_fp8_e4m3>(int)",
            "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16**)",
            "void c10d::symmetric_memory::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
            "void <unnamed>::multimem_all_gather_kernel<(int)16>(char *)",
            "void vllm::cross_device_reduce_1stage<half, 4>(vllm::RankData*)",
            "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half>>(__half const*)",
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(int)1>(int)",
            "void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8, true>(int)",
            "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*)",
            "void pplx::dispatchKernel<(unsigned int)16, (bool)1>(int *)",
            "a2a_combine_send_kernel",
            "c10d::nvshmem_extension::allToAllV(void*, void*, long*)",
        ] {
            assert!(row_of_name(name).is_some(), "{name}");
        }
    }

    #[test]
    fn words_of_communication_elsewhere_in_a_name_are_compute() {
        for name in [
            "void layer_norm_kernel<float, BlockAllReduce<SumOp, float, 256> >(float *)",
            "void oneflow::cuda::softmax::SoftmaxBlockSMemImpl<Load, Tables, all_reduce<Max> >(int)",
            "void block_all_reduce_sum_f32_f32_kernel<256>(float*, float*, int)",
            "triton_poi_fused_add_all_reduce_4",
            "triton_red_fused_all_gather_into_tensor_mean_2",
            "void allreduce::tests::fill<int>(int*)",
            "void at::native::reduce_kernel<512, 1, ReduceOp<float> >(int)",
            "void at::native::vectorized_gather_kernel<16, long>(char*)",
            "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
            "gemm(nccl::ncclDevKernel, deep_ep::Config)",
            "void combineKernel<float>(float*)",
            "void render::combineKernel(float*)",
            "void deep_ep::layout::get_dispatch_layout<256, 4, 8>(long const*)",
            "dispatch_indirect(int)",
            "",
        ] {
            assert_eq!(row_of_name(name).map(|row| TABLE[row].pattern), None, "{name}");
        }
    }
}
