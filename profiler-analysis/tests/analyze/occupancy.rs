//! Theoretical occupancy beside what CUDA's own calculator said on a GPU: `occupancy/*.csv`, which `tests/gpu_occupancy.rs`
//! wrote there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use profiler_analysis::kernels::{BlockNeeds, Limiter, Occupancy, SmLimits};

/// Compute capability, needs and CUDA's answer.
type Answer = ((u32, u32), BlockNeeds, u32);

fn answers() -> Vec<Answer> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/occupancy");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let tables = files.filter(|file| file.extension().is_some_and(|extension| extension == "csv"));
    let text = tables.map(|file| fs::read_to_string(file).unwrap()).collect::<String>();
    let rows = text.lines().filter(|line| !line.starts_with("cc,"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split(',').collect();
        let number = |cell: usize| cells[cell].parse().unwrap();
        let (major, minor) = cells[0].split_once('.').unwrap();
        let needs = BlockNeeds {
            threads: number(1),
            registers_per_thread: number(2),
            static_shared_bytes: number(3),
            dynamic_shared_bytes: number(4),
            shared_carveout_percent: cells[5].parse().ok(),
        };
        ((major.parse().unwrap(), minor.parse().unwrap()), needs, number(6))
    })
    .collect()
}

#[test]
fn occupancy_matches_cuda() {
    let answers = answers();
    assert!(answers.len() >= 1000, "{} answers", answers.len());
    let mut limiters = BTreeSet::new();
    let mut differences = Vec::new();
    for (capability, needs, by_cuda) in &answers {
        let ours = Occupancy::new(&SmLimits::from_compute_capability(*capability).unwrap(), needs);
        limiters.extend(ours.limiters());
        if ours.blocks != *by_cuda {
            differences.push(format!("CUDA {by_cuda}: {needs:?}: {ours:?}"));
        }
    }
    let first = differences.iter().take(10).cloned().collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} of {} differ:\n{first}", differences.len(), answers.len());
    let all = [Limiter::Warps, Limiter::Registers, Limiter::SharedMemory, Limiter::Blocks];
    assert_eq!(limiters.into_iter().collect::<Vec<_>>(), all, "each limits some of them");
}

/// Each rule decides some of the answers, so that none could be left out.
#[test]
fn limits_that_are_a_little_off_are_noticed() {
    let wrong = |change: fn(&mut SmLimits)| {
        let differs = |(capability, needs, by_cuda): &&Answer| {
            let mut limits = SmLimits::from_compute_capability(*capability).unwrap();
            change(&mut limits);
            Occupancy::new(&limits, needs).blocks != *by_cuda
        };
        answers().iter().filter(differs).count()
    };
    assert_eq!(wrong(|_| ()), 0);
    assert_ne!(wrong(|limits| limits.reserved_shared_bytes_per_block = 0), 0);
    assert_ne!(wrong(|limits| limits.shared_unit = 1024), 0);
    assert_ne!(wrong(|limits| limits.register_unit = 512), 0);
    assert_ne!(wrong(|limits| limits.partitions = 1), 0);
    assert_ne!(wrong(|limits| limits.blocks = 16), 0);
    assert_ne!(wrong(|limits| limits.warps = 48), 0);
    assert_ne!(wrong(|limits| limits.shared_bytes -= 32 << 10), 0);
}
