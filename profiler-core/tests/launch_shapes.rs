//! Launch shapes of what was recorded on a GPU, and what is said of them.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use profiler_core::Profile;
use profiler_core::kernels::{FindingKind, KernelShape, LaunchShapes, Limiter, SmLimits};

fn quickstart() -> Profile {
    let file = "/../examples/recordings/quickstart-h200.gpuprof";
    Profile::load(format!("{}{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn row<'a>(shapes: &'a LaunchShapes, name: &str, grid: [u32; 3]) -> &'a KernelShape {
    let is = |row: &&KernelShape| row.name.contains(name) && row.shape.grid == grid;
    shapes.rows().iter().find(is).unwrap_or_else(|| panic!("no {name} of {grid:?} in {shapes:#}"))
}

fn limiters(row: &KernelShape) -> Vec<Limiter> {
    row.shape.occupancy.limiters().collect()
}

#[test]
fn every_kernel_has_its_shape() {
    let profile = quickstart();
    let shapes = profile.launch_shapes();
    let kernels = profile.query().kernels();
    let counted: u64 = shapes.rows().iter().map(|row| row.instances).sum();
    assert_eq!((counted, shapes.unknown()), (kernels.count(), 0));
    assert_eq!(shapes.gpu_time(), kernels.gpu_time());
    assert_eq!(profile.sm_limits(0), SmLimits::of((9, 0)));

    // 1024 threads of 64 warps are two blocks at once; two of 264 places have one.
    let col_sum = row(&shapes, "col_sum", [2, 1, 1]);
    assert_eq!((col_sum.shape.needs.threads, col_sum.shape.occupancy.fraction()), (256, 1.0));
    assert_eq!(col_sum.shape.waves(), Some(2.0 / (8.0 * 132.0)));
    assert_eq!(
        (col_sum.headroom, col_sum.findings[0].kind),
        (1.0 - 2.0 / 132.0, FindingKind::SmallGrid)
    );
    assert_eq!(
        col_sum.saves_at_most_ns,
        (col_sum.total_ns as f64 * col_sum.headroom).round() as u64
    );
    let of_kind = shapes.time_with(FindingKind::SmallGrid);
    assert!(of_kind.as_nanos() >= col_sum.total_ns.into() && of_kind < shapes.gpu_time());

    let savings: Vec<u64> = shapes.rows().iter().map(|row| row.saves_at_most_ns).collect();
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
fn text_and_files_say_the_same() {
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
        csv.starts_with("Time (%),Total Time (ns),Instances,Head-room (%),Saves At Most (ns),")
    );
    assert_eq!(csv.lines().count(), 1 + shapes.rows().len());
    let json: serde_json::Value = serde_json::from_str(&shapes.report().json()).unwrap();
    assert_eq!(json[0]["Saves At Most (ns)"], shapes.rows()[0].saves_at_most_ns);
    let value = serde_json::to_value(&shapes).unwrap();
    assert_eq!(value["rows"][0]["occupancy"]["most_warps"], 64);
    assert_eq!(value["rows"][0]["ncu"], shapes.rows()[0].ncu);
}

#[cfg(feature = "nsys")]
mod nsys {
    use super::*;

    fn train() -> Profile {
        let file = "/tests/captures/train-h200.sqlite";
        Profile::from_nsys(format!("{}{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn a_capture_says_what_fits_on_its_device() {
        assert_eq!(train().sm_limits(0), SmLimits::of((9, 0)));
        assert_eq!(train().sm_limits(7), None);
    }

    /// Worked out by hand, from the table of compute capabilities and what nsys recorded.
    #[test]
    fn a_training_run_has_the_shapes_that_it_has() {
        let shapes = train().launch_shapes();
        // 202 registers are 208 x 32 a warp: 2 to a partition. 8 warps a block: one block.
        let large = row(&shapes, "_256x128_8x4", [64, 2, 1]);
        assert_eq!((large.shape.occupancy.blocks, limiters(large)), (1, vec![Limiter::Registers]));
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
