//! A gate on a GPU: what did not change passes, what is slower or more does not. With `--features nvml` clocks are watched.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // tests that say what they found

use std::path::PathBuf;
use std::process::ExitCode;

use gpu_profiler_examples::mlp::Mlp;
use gpu_profiler_tests::cuda::Gpu;
use gpu_profiler_tests::harness;
use nvtx::range;
use profiler_core::gate::{Gate, Outcome, Verdict};
use profiler_core::gpu_test;

fn main() -> ExitCode {
    harness::run(&[
        (
            "what_is_the_same_passes_and_what_is_slower_fails",
            what_is_the_same_passes_and_what_is_slower_fails,
        ),
        ("training_passes_its_own_baseline", training_passes_its_own_baseline),
    ])
    .exit_code()
}

/// A baseline that goes away.
struct Baseline(PathBuf);

impl Baseline {
    fn new(test: &str) -> Self {
        let name = format!("gpu-gate-{}-{test}.json", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn gate(&self, update: bool) -> Gate {
        Gate::new(&self.0).update(update)
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn judged(gate: Gate, work: impl FnMut()) -> Verdict {
    let verdict = gpu_test().unwrap().warm_up(5).baseline(gate).try_run(work).unwrap();
    eprintln!("{verdict}\n");
    let said = |what: &str| verdict.notes().iter().any(|note| note.contains(what));
    assert_eq!(said("without the feature nvml"), !cfg!(feature = "nvml"), "{verdict}");
    verdict
}

fn what_is_the_same_passes_and_what_is_slower_fails() {
    let gpu = Gpu::get();
    let stream = gpu.stream();
    let step = |spin_ns: u64, launches: usize| {
        let gpu = &gpu;
        move || {
            let _step = range("step");
            gpu.launch_spin(stream, spin_ns);
            let _small = range("small");
            (0..launches).for_each(|_| gpu.launch_empty(stream));
            gpu.synchronize(stream);
        }
    };
    let baseline = Baseline::new("spin");
    assert!(judged(baseline.gate(true), step(200_000, 4)).is_written());
    let same = judged(baseline.gate(false), step(200_000, 4));
    assert!(same.is_pass(), "{same}");
    let slower = judged(baseline.gate(false), step(212_000, 4));
    assert!(!slower.is_pass() && !slower.is_undecided(), "{slower}");
    let spin = slower.times().iter().find(|time| time.kernel.as_deref() == Some("spin <1, 1>"));
    let spin = spin.unwrap();
    assert!(spin.outcome == Outcome::Slower && (spin.ratio - 1.06).abs() < 0.01, "{spin}");
    let more = judged(baseline.gate(false), step(200_000, 5));
    assert_eq!(more.counts().len(), 2, "{more}");
    assert!(more.to_string().contains("empty <1, 32> in step/small: 4 -> 5"), "{more}");
    gpu.destroy(stream);
}

fn training_passes_its_own_baseline() {
    let mut mlp = Mlp::new(1, 0).unwrap();
    mlp.warm_up().unwrap();
    let baseline = Baseline::new("mlp");
    let mut batch = 0;
    let mut train = || {
        mlp.train_batch(batch).unwrap();
        batch += 1;
    };
    assert!(judged(baseline.gate(true), &mut train).is_written());
    let size = std::fs::metadata(&baseline.0).unwrap().len();
    eprintln!("its baseline has {size} bytes");
    let verdict = judged(baseline.gate(false), &mut train);
    assert!(verdict.is_pass(), "{verdict}");
}
