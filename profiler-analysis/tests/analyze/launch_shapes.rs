//! Launch shapes of what was recorded on a GPU, and what is said of them.

use std::ffi::CStr;

use crate::{load, profiler, quickstart};
use cupti::sys::generated::{device, kernel};
use cupti::{ActivityKind, Config, Version};
use fake_cupti::{Fake, Written};
use profiler_analysis::kernels::{KernelShape, LaunchShapes, ShapeFindingKind, SmLimits};
use profiler_analysis::prelude::*;
use profiler_core::Profile;

fn row<'a>(shapes: &'a LaunchShapes, name: &str, grid: [u32; 3]) -> &'a KernelShape {
    let is = |row: &&KernelShape| row.name.contains(name) && row.shape.grid == grid;
    shapes
        .rows()
        .iter()
        .find(is)
        .unwrap_or_else(|| panic!("no {name} of {grid:?} in {}", shapes.all_rows()))
}

#[test]
fn every_kernel_has_its_shape() {
    let profile = quickstart();
    let shapes = profile.launch_shapes();
    let kernels = profile.query().kernels();
    let counted: u64 = shapes.rows().iter().map(|row| row.instances).sum();
    assert_eq!((counted, shapes.unknown()), (kernels.count(), 0));
    assert_eq!(shapes.gpu_time(), kernels.gpu_time());
    assert_eq!(profile.sm_limits(0), SmLimits::from_compute_capability((9, 0)));

    // 1024 threads of 64 warps are two blocks at once; two of 264 places have one.
    let col_sum = row(&shapes, "col_sum", [2, 1, 1]);
    assert_eq!((col_sum.shape.needs.threads, col_sum.shape.occupancy.fraction()), (256, 1.0));
    assert_eq!(col_sum.shape.waves(), Some(2.0 / (8.0 * 132.0)));
    assert_eq!(
        (col_sum.headroom, col_sum.findings[0].kind),
        (1.0 - 2.0 / 132.0, ShapeFindingKind::SmallGrid)
    );
    assert_eq!(
        col_sum.estimated_saving_ns,
        (col_sum.total_ns as f64 * col_sum.headroom).round() as u64
    );
    let of_kind = shapes.time_with(ShapeFindingKind::SmallGrid);
    assert!(of_kind.as_nanos() >= col_sum.total_ns.into() && of_kind < shapes.gpu_time());

    let savings: Vec<u64> = shapes.rows().iter().map(|row| row.estimated_saving_ns).collect();
    assert!(savings.is_sorted_by(|a, b| a >= b), "{savings:?}");
    let weighted = |row: &KernelShape| {
        row.shape.configured.unwrap_or(row.shape.occupancy).fraction() * row.total_ns as f64
    };
    let mean =
        shapes.rows().iter().map(weighted).sum::<f64>() / shapes.gpu_time().as_nanos() as f64;
    assert!((shapes.mean_occupancy() - mean).abs() < 1e-9);
    let forward = profile.query().in_range("forward").launch_shapes();
    assert_eq!(forward.gpu_time(), profile.query().in_range("forward").kernels().gpu_time());
}

const VERSION: Version = Version(130_001);

/// A session in which CUPTI reported this device, and of these kernels: name, carveout and setting in KiB.
fn with_device(capability: (u32, u32), kernels: &[(&'static CStr, Option<u8>, u32)]) -> Profile {
    let fake = Fake::new();
    let profiler = profiler(&fake, Config::new().add_kind(ActivityKind::DEVICE));
    let now_ns = fake.now_ns();
    let program = || {
        let record = Written::new(ActivityKind::DEVICE, VERSION).unwrap();
        fake.write(
            &record
                .set(device::COMPUTE_CAPABILITY_MAJOR, capability.0)
                .set(device::COMPUTE_CAPABILITY_MINOR, capability.1)
                .set(device::NUM_MULTIPROCESSORS, 10)
                .set(device::MAX_WARPS_PER_MULTIPROCESSOR, 96)
                .set(device::MAX_BLOCKS_PER_MULTIPROCESSOR, 40)
                .set(device::MAX_REGISTERS_PER_MULTIPROCESSOR, 131_072),
        );
        for &(name, carveout, setting_kib) in kernels {
            let call = fake.call_only("cuLaunchKernel", 0);
            let at = now_ns + u64::from(call) * 1000;
            let record = Written::new(ActivityKind::CONCURRENT_KERNEL, VERSION).unwrap();
            fake.write(
                &record
                    .text(kernel::NAME, name)
                    .set(kernel::CORRELATION_ID, call)
                    .set(kernel::START, at)
                    .set(kernel::END, at + 500)
                    .set(kernel::GRID_X, 20)
                    .set(kernel::GRID_Y, 1)
                    .set(kernel::GRID_Z, 1)
                    .set(kernel::BLOCK_X, 64)
                    .set(kernel::BLOCK_Y, 1)
                    .set(kernel::BLOCK_Z, 1)
                    .set(kernel::REGISTERS_PER_THREAD, 32)
                    .set(kernel::DYNAMIC_SHARED_MEMORY, 16 << 10)
                    .set(kernel::IS_SHARED_MEMORY_CARVEOUT_REQUESTED, carveout.is_some().into())
                    .set(kernel::SHARED_MEMORY_CARVEOUT_REQUESTED, carveout.unwrap_or(0))
                    .set(kernel::SHARED_MEMORY_EXECUTED, setting_kib << 10),
            );
        }
    };
    profiler.record(program).unwrap().1
}

#[test]
fn recorded_device_facts_override_the_table() {
    let profile = with_device((13, 0), &[(c"k", None, 0)]);
    let limits = profile.sm_limits(0).unwrap();
    assert_eq!((limits.warps, limits.blocks, limits.registers), (96, 40, 131_072));
    assert_eq!(limits.compute_capability, (13, 0));
    assert_eq!(limits.reserved_shared_bytes_per_block, 1024, "as the newest that is known");
    let shapes = profile.launch_shapes();
    assert_eq!((shapes.rows().len(), shapes.unknown()), (1, 0));
    assert_eq!(shapes.rows()[0].shape.multiprocessors, 10);

    // Older than what the table knows: its units are not known.
    let profile = with_device((6, 1), &[(c"k", None, 0)]);
    assert_eq!(profile.sm_limits(0), None);
    let shapes = profile.launch_shapes();
    assert_eq!((shapes.rows().len(), shapes.unknown()), (0, 1));
    let text = shapes.to_string();
    assert!(text.contains("no limits are known of the devices"), "{text}");
}

#[test]
fn cache_configuration_distinguishes_launches() {
    let launches: [(&'static CStr, Option<u8>, u32); 5] = [
        (c"k", None, 228),
        (c"k", Some(30), 100),
        (c"k", Some(30), 100),
        (c"k", Some(30), 64),
        (c"k", None, 0),
    ];
    let profile = with_device((9, 0), &launches);
    let shapes = profile.launch_shapes();
    let mut rows: Vec<_> = shapes
        .rows()
        .iter()
        .map(|row| {
            let configured = row.shape.configured.map(|of| of.blocks);
            (
                row.shape.needs.shared_carveout_percent,
                configured,
                row.shape.occupancy.blocks,
                row.instances,
            )
        })
        .collect();
    rows.sort_unstable();
    // 17 KiB a block: 13 in 228 KiB, 5 in 100, which are the setting after 30 %, and 3 in 64.
    assert_eq!(
        rows,
        [
            (None, None, 13, 1),
            (None, Some(13), 13, 1),
            (Some(30), Some(3), 5, 1),
            (Some(30), Some(5), 5, 2)
        ]
    );
}

#[test]
fn limits_of_a_gpu_match_the_table() {
    for version in ["26", "28", "130001", "130500"] {
        let profile = load(&format!("kinds-{version}"));
        assert_eq!(profile.sm_limits(0), SmLimits::from_compute_capability((9, 0)), "{version}");
        assert_eq!(profile.launch_shapes().unknown(), 0);
    }
}

#[test]
fn commands_name_the_launch_by_how_many_came_before() {
    let profile = quickstart();
    let shapes = profile.launch_shapes();
    for row in shapes.rows() {
        let words: Vec<&str> = row.ncu.split(' ').collect();
        let after = |flag: &str| words[words.iter().position(|word| *word == flag).unwrap() + 1];
        let skip: usize = after("--launch-skip").parse().unwrap();
        let name = after("--kernel-name").trim_matches('\'');
        let mut same: Vec<_> = profile.kernels().filter(|kernel| kernel.name() == name).collect();
        same.sort_by_key(|kernel| kernel.correlation_id());
        // The one after those that are skipped has the row's shape.
        assert_eq!(same[skip].launch_shape(), Some(row.shape), "{}", row.ncu);
        assert_eq!(words[0], "ncu");
    }
}

#[test]
fn text_and_files_agree() {
    let shapes = quickstart().launch_shapes();
    let text = shapes.to_string();
    for part in
        ["theoretical occupancy, weighted by time: ", "\nsmall grid, in ", "--launch-count 1"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.lines().next().unwrap().contains("ncu"));
    let csv = shapes.report().csv();
    assert!(
        csv.starts_with("Time (%),Total Time (ns),Instances,Head-room (%),Estimated Saving (ns),")
    );
    assert_eq!(csv.lines().count(), 1 + shapes.rows().len());
    let json: serde_json::Value = serde_json::from_str(&shapes.report().json()).unwrap();
    assert_eq!(json[0]["Estimated Saving (ns)"], shapes.rows()[0].estimated_saving_ns);
    let value = serde_json::to_value(&shapes).unwrap();
    assert_eq!(value["rows"][0]["occupancy"]["most_warps"], 64);
    assert_eq!(value["rows"][0]["ncu"], shapes.rows()[0].ncu);
}

#[cfg(feature = "nsys")]
mod nsys {
    use profiler_analysis::kernels::Limiter;

    use super::*;
    use crate::captured;

    #[test]
    fn capture_has_the_limits_of_its_device() {
        assert_eq!(captured("train").sm_limits(0), SmLimits::from_compute_capability((9, 0)));
        assert_eq!(captured("train").sm_limits(7), None);
    }

    /// Worked out by hand, from the table of compute capabilities and what nsys recorded.
    #[test]
    fn training_run_has_the_expected_shapes() {
        let shapes = captured("train").launch_shapes();
        // 202 registers are 208 x 32 a warp: 2 to a partition. 8 warps a block: one block.
        let large = row(&shapes, "_256x128_8x4", [64, 2, 1]);
        assert_eq!(
            (large.shape.occupancy.blocks, large.shape.occupancy.limiters().collect::<Vec<_>>()),
            (1, vec![Limiter::Registers])
        );
        // The driver set 64 KiB, in which one block of 48 + 1 fits.
        let configured = large.shape.configured.unwrap();
        assert_eq!((configured.shared_config_bytes, configured.blocks), (65_536, 1));
        assert_eq!(configured.by_shared_memory, Some(1));
        assert_eq!(large.shape.waves(), Some(128.0 / 132.0));
        // 34 registers are 40 x 32 a warp: 12 to a partition, 48 of 64 warps, three blocks of 16.
        let divides = row(&shapes, "std::divides", [130, 1, 1]);
        let of = |row: &KernelShape| (row.shape.occupancy.blocks, row.shape.occupancy.warps());
        let all = shapes.rows().iter().filter(|row| row.name.contains("std::divides")).map(of);
        assert_eq!(all.collect::<Vec<_>>(), [(3, 48), (4, 64)], "{}", divides.name);
        // 4096 blocks of 128 threads, 16 at once: a wave of 2112 and one of 1984.
        let fill = row(&shapes, "FillFunctor", [4096, 1, 1]);
        assert_eq!((fill.shape.tail(), fill.instances), (Some(0.5), 4));
        // 100 KiB hold 18 blocks of 5.375; 32 would fit.
        let largek = row(&shapes, "sgemm_largek_lds64", [32, 2, 4]);
        assert_eq!((largek.shape.needs.threads, largek.shape.occupancy.warps_per_block), (256, 8));
    }
}
