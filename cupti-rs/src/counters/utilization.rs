//! How busy a device is, part by part: metrics that go together in one pass of a sampler.

/// One part of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// For people: `DRAM read`.
    pub label: &'static str,
    /// The metric, under the names that chips and versions have for it; the first one there is counts. A byte count is
    /// better than a share of a peak.
    pub names: &'static [&'static str],
}

const fn row(label: &'static str, names: &'static [&'static str]) -> Row {
    Row { label, names }
}

/// What [`SamplerBuilder::utilization`](super::SamplerBuilder::utilization) asks for, the most wanted first. On GH100 all of it
/// fits in one pass from CUPTI 12.9 on; 12.8 has shares of the peak for DRAM. GB100 has no bytes of PCIe, devices without
/// NVLink none of that.
///
/// On an H200, copies to the device read over PCIe and copies from it write: 5 to 6 % more bytes than they copy. What the
/// sampler itself sends to the host is in there too, some 110 MB/s at 100 us.
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

/// What a metric of these is called for people. `None` for others.
#[must_use]
pub fn label(metric: &str) -> Option<&'static str> {
    let named = |row: &&Row| row.names.contains(&metric);
    ROWS.iter().find(named).map(|row| row.label)
}
