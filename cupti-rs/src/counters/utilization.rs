//! The utilization of a device by unit: metrics that fit in one pass of a sampler.

/// A unit of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// The display name, such as `DRAM read`.
    pub label: &'static str,
    /// The metric's names on chips and versions; the first available one applies. Byte counts
    /// precede shares of a peak.
    pub names: &'static [&'static str],
}

const fn row(label: &'static str, names: &'static [&'static str]) -> Row {
    Row { label, names }
}

/// The metrics of [`SamplerBuilder::utilization`](super::SamplerBuilder::utilization), by priority.
/// On GH100 all fit in one pass from CUPTI 12.9 on; 12.8 has shares of the peak for DRAM. GB100
/// lacks bytes of PCIe; devices without NVLink lack bytes of NVLink.
///
/// On an H200, copies to the device count as PCIe reads and copies from it as writes, with 5 to 6 %
/// more bytes. The sampler's own traffic to the host is included, about 110 MB/s at 100 us.
pub static ROWS: [Row; 10] = [
    row("SM active", &["sm__cycles_active.avg.pct_of_peak_sustained_elapsed"]),
    row(
        "tensor active",
        &[
            "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
        ],
    ),
    row(
        "DRAM read",
        &[
            "dram__bytes_read.sum",
            "dram__bytes_op_read.sum",
            "dramc__read_throughput.avg.pct_of_peak_sustained_elapsed",
        ],
    ),
    row(
        "DRAM write",
        &[
            "dram__bytes_write.sum",
            "dram__bytes_op_write.sum",
            "dramc__write_throughput.avg.pct_of_peak_sustained_elapsed",
        ],
    ),
    row("PCIe read", &["pcie__read_bytes.sum"]),
    row("PCIe write", &["pcie__write_bytes.sum"]),
    row("NVLink received", &["nvlrx__bytes.sum"]),
    row("NVLink sent", &["nvltx__bytes.sum"]),
    row("GPU active", &["gr__cycles_active.sum.pct_of_peak_sustained_elapsed"]),
    row("SM issue", &["sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed"]),
];

/// The display name of one of these metrics; `None` for others.
#[must_use]
pub fn label(metric: &str) -> Option<&'static str> {
    let named = |row: &&Row| row.names.contains(&metric);
    ROWS.iter().find(named).map(|row| row.label)
}
