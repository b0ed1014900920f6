//! The successors of nvprof's metrics, or the reason why there is none.
//!
//! nvprof supported GPUs before Turing. Tutorials and scripts still use its names.

/// One metric of nvprof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// nvprof's name.
    pub name: &'static str,
    /// The successors; empty if there are none.
    pub today: &'static [&'static str],
    /// The formula for nvprof's metric from the successors, and differences; without successors,
    /// the reason.
    pub note: &'static str,
    /// True if it is in [`Set::Memory`](super::Set::Memory).
    pub is_memory: bool,
}

/// The row of this metric of nvprof; `None` if it is not listed.
#[must_use]
pub fn row(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

/// The successors of the memory metrics, without duplicates.
pub(super) fn memory() -> Vec<&'static str> {
    let mut metrics = Vec::new();
    for row in ROWS.iter().filter(|row| row.is_memory) {
        for metric in row.today {
            if !metrics.contains(metric) {
                metrics.push(*metric);
            }
        }
    }
    metrics
}

macro_rules! rows {
    (@memory memory) => { true };
    (@memory other) => { false };
    ($($kind:ident $name:literal = [$($today:literal)*] $note:literal;)*) => {
        /// nvprof's metrics, memory metrics first.
        pub const ROWS: &[Row] = &[$(Row {
            name: $name,
            today: &[$($today),*],
            note: $note,
            is_memory: rows!(@memory $kind),
        }),*];
    };
}

rows! {
    memory "dram_read_bytes" = ["dram__bytes_read.sum"] "the same";
    memory "dram_write_bytes" = ["dram__bytes_write.sum"] "the same";
    memory "dram_read_throughput" = ["dram__bytes_read.sum.per_second"] "bytes a second";
    memory "dram_write_throughput" = ["dram__bytes_write.sum.per_second"] "bytes a second";
    memory "dram_read_transactions" = ["dram__sectors_read.sum"] "sectors of 32 bytes";
    memory "dram_write_transactions" = ["dram__sectors_write.sum"] "sectors of 32 bytes";
    memory "dram_utilization" = ["dram__throughput.avg.pct_of_peak_sustained_elapsed"]
        "percent of the peak; nvprof reported tenths of the peak, 0 to 10";
    memory "sysmem_read_transactions" = ["lts__t_sectors_aperture_sysmem_op_read.sum"] "sectors of 32 bytes at L2";
    memory "sysmem_write_transactions" = ["lts__t_sectors_aperture_sysmem_op_write.sum"] "sectors of 32 bytes at L2";
    memory "sysmem_read_bytes" = ["lts__t_sectors_aperture_sysmem_op_read.sum"] "sectors: times 32";
    memory "sysmem_write_bytes" = ["lts__t_sectors_aperture_sysmem_op_write.sum"] "sectors: times 32";
    memory "sysmem_read_throughput" = ["lts__t_sectors_aperture_sysmem_op_read.sum.per_second"] "sectors per second: multiply by 32";
    memory "sysmem_write_throughput" = ["lts__t_sectors_aperture_sysmem_op_write.sum.per_second"] "sectors per second: multiply by 32";
    memory "sysmem_utilization" = []
        "none: the link has metrics of its own (pcie__read_bytes.sum, pcie__write_bytes.sum), counted apart from \
         others";
    memory "l2_l1_read_hit_rate" = [] "none: L1 and texture are one unit since Volta; see l2_tex_read_hit_rate";
    memory "l2_l1_read_throughput" = [] "none: L1 and texture are one unit since Volta; see l2_tex_read_throughput";
    memory "l2_l1_read_transactions" = [] "none: L1 and texture are one unit since Volta; see l2_tex_read_transactions";
    memory "l2_l1_write_throughput" = [] "none: L1 and texture are one unit since Volta; see l2_tex_write_throughput";
    memory "l2_l1_write_transactions" = [] "none: L1 and texture are one unit since Volta; see \
                                            l2_tex_write_transactions";
    memory "l2_tex_read_hit_rate" = [
        "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum" "lts__t_sectors_srcunit_tex_op_read.sum"
    ] "the first over the second";
    memory "l2_tex_write_hit_rate" = [
        "lts__t_sectors_srcunit_tex_op_write_lookup_hit.sum" "lts__t_sectors_srcunit_tex_op_write.sum"
    ] "the first over the second";
    memory "l2_tex_hit_rate" = [
        "lts__t_sectors_srcunit_tex_lookup_hit.sum" "lts__t_sectors_srcunit_tex.sum"
    ] "the first over the second";
    memory "l2_tex_read_throughput" = ["lts__t_sectors_srcunit_tex_op_read.sum.per_second"] "sectors per second: multiply by 32";
    memory "l2_tex_write_throughput" = ["lts__t_sectors_srcunit_tex_op_write.sum.per_second"] "sectors per second: multiply by 32";
    memory "l2_tex_read_transactions" = ["lts__t_sectors_srcunit_tex_op_read.sum"] "sectors of 32 bytes";
    memory "l2_tex_write_transactions" = ["lts__t_sectors_srcunit_tex_op_write.sum"] "sectors of 32 bytes";
    memory "l2_read_transactions" = ["lts__t_sectors_op_read.sum"] "sectors of 32 bytes, from all units";
    memory "l2_write_transactions" = ["lts__t_sectors_op_write.sum"] "sectors of 32 bytes, from all units";
    memory "l2_read_throughput" = ["lts__t_sectors_op_read.sum.per_second"] "sectors per second: multiply by 32";
    memory "l2_write_throughput" = ["lts__t_sectors_op_write.sum.per_second"] "sectors per second: multiply by 32";
    memory "l2_utilization" = ["lts__t_sectors.avg.pct_of_peak_sustained_elapsed"]
        "percent of the peak; nvprof reported tenths of the peak, 0 to 10";
    memory "shared_load_transactions" = ["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] "wavefronts";
    memory "shared_store_transactions" = ["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"] "wavefronts";
    memory "shared_load_throughput" = ["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum.per_second"]
        "wavefronts per second: multiply by 128 for an upper bound";
    memory "shared_store_throughput" = ["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum.per_second"]
        "wavefronts per second: multiply by 128 for an upper bound";
    memory "shared_load_transactions_per_request" = [
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum" "smsp__inst_executed_op_shared_ld.sum"
    ] "the first over the second";
    memory "shared_store_transactions_per_request" = [
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum" "smsp__inst_executed_op_shared_st.sum"
    ] "the first over the second";
    memory "shared_efficiency" = ["smsp__sass_average_data_bytes_per_wavefront_mem_shared.pct"] "percent";
    memory "shared_utilization" = ["l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed"]
        "percent of the peak; nvprof reported tenths of the peak, 0 to 10";
    memory "l1_cache_local_hit_rate" = ["l1tex__t_sector_pipe_lsu_mem_local_op_ld_hit_rate.pct"] "of loads";
    memory "l1_cache_global_hit_rate" = ["l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct"] "of loads";
    memory "local_hit_rate" = ["l1tex__t_sector_pipe_lsu_mem_local_op_ld_hit_rate.pct"] "of loads";
    memory "global_hit_rate" = ["l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct"] "of loads";
    memory "tex_cache_hit_rate" = ["l1tex__t_sector_hit_rate.pct"] "of the unit that L1 and texture are today";
    memory "local_load_transactions" = ["l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"] "sectors of 32 bytes";
    memory "local_store_transactions" = ["l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"] "sectors of 32 bytes";
    memory "gld_transactions" = ["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] "sectors of 32 bytes";
    memory "gst_transactions" = ["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] "sectors of 32 bytes";
    memory "gld_transactions_per_request" = ["l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"]
        "sectors of 32 bytes a request";
    memory "gst_transactions_per_request" = ["l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio"]
        "sectors of 32 bytes a request";
    memory "gld_throughput" = ["l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum.per_second"] "bytes a second";
    memory "gst_throughput" = ["l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum.per_second"] "bytes a second";
    memory "gld_requested_throughput" = ["smsp__sass_data_bytes_mem_global_op_ld.sum" "gpu__time_duration.sum"]
        "the first over the second: bytes a nanosecond";
    memory "gst_requested_throughput" = ["smsp__sass_data_bytes_mem_global_op_st.sum" "gpu__time_duration.sum"]
        "the first over the second: bytes a nanosecond";
    memory "gld_efficiency" = ["smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"] "percent";
    memory "gst_efficiency" = ["smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct"] "percent";
    other "achieved_occupancy" = ["sm__warps_active.avg.pct_of_peak_sustained_active"] "percent; nvprof reported 0 \
                                                                                        to 1";
    other "ipc" = ["sm__inst_executed.avg.per_cycle_active"] "of an SM; smsp__inst_executed is of one of its four \
                                                              partitions";
    other "issued_ipc" = ["sm__inst_issued.avg.per_cycle_active"] "of an SM";
    other "issue_slot_utilization" = ["smsp__issue_active.avg.pct_of_peak_sustained_active"] "percent";
    other "inst_executed" = ["smsp__inst_executed.sum"] "instructions of warps";
    other "sm_efficiency" = ["smsp__cycles_active.avg.pct_of_peak_sustained_elapsed"] "percent";
    other "warp_execution_efficiency" = ["smsp__thread_inst_executed_per_inst_executed.pct"] "percent";
    other "branch_efficiency" = ["smsp__sass_average_branch_targets_threads_uniform.pct"] "percent";
    other "flop_count_hp" = [
        "smsp__sass_thread_inst_executed_op_hadd_pred_on.sum" "smsp__sass_thread_inst_executed_op_hmul_pred_on.sum"
        "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum"
    ] "the first two and twice the third; without tensor cores";
    other "flop_count_sp" = [
        "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum" "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum"
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
    ] "the first two and twice the third; without tensor cores";
    other "flop_count_dp" = [
        "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum" "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum"
        "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum"
    ] "the first two and twice the third; without tensor cores";
    other "flop_sp_efficiency" = [] "none: divide flop_count_sp by the time and the peak of the GPU";
    other "tensor_precision_fu_utilization" = ["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"]
        "percent of the peak; nvprof reported tenths of the peak, 0 to 10";
    other "stall_memory_dependency" = ["smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct"]
        "percent of a warp's time; waits for L1, L2 and DRAM";
    other "stall_exec_dependency" = [
        "smsp__warp_issue_stalled_short_scoreboard_per_warp_active.pct" "smsp__warp_issue_stalled_wait_per_warp_active.pct"
    ] "their sum";
    other "stall_sync" = ["smsp__warp_issue_stalled_barrier_per_warp_active.pct"] "percent of a warp's time";
    other "stall_inst_fetch" = ["smsp__warp_issue_stalled_no_instruction_per_warp_active.pct"] "percent of a warp's time";
    other "stall_not_selected" = ["smsp__warp_issue_stalled_not_selected_per_warp_active.pct"] "percent of a warp's time";
    other "stall_pipe_busy" = ["smsp__warp_issue_stalled_math_pipe_throttle_per_warp_active.pct"] "percent of a warp's time";
    other "stall_memory_throttle" = ["smsp__warp_issue_stalled_lg_throttle_per_warp_active.pct"] "percent of a warp's time";
    other "pcie_total_data_received" = ["pcie__read_bytes.sum"] "of the device; counted apart from metrics of kernels";
    other "pcie_total_data_transmitted" = ["pcie__write_bytes.sum"] "of the device; counted apart from metrics of \
                                                                     kernels";
    other "nvlink_total_data_received" = ["nvlrx__bytes.sum"] "of the device; counted apart from metrics of kernels";
    other "nvlink_total_data_transmitted" = ["nvltx__bytes.sum"] "of the device; counted apart from metrics of kernels";
    other "elapsed_cycles_sm" = ["sm__cycles_elapsed.sum"] "the same";
}
