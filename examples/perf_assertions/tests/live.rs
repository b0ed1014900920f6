//! On the GPU of this machine; skipped with the reason on standard error where there is none.

use std::error::Error;
use std::time::Duration;

use gpu_profiler_examples::mlp::{self, Mlp};
use gpu_profiler_perf_assertions::lean_batch;
use profiler_core::statistics::Statistic;
use profiler_core::{GpuTest, at_most, exactly, expect, gpu_test};

/// The network, after its first batch. A GPU without the CUDA libraries that it needs is a failure, not a skip.
fn network() -> Result<Mlp, Box<dyn Error>> {
    if let Some(why) = mlp::unavailable() {
        return Err(why.into());
    }
    let mut mlp = Mlp::new(1, 0)?;
    mlp.warm_up()?;
    Ok(mlp)
}

#[gpu_test(warm_up = 2, repeats = 5)]
fn a_batch_keeps_its_budgets(test: GpuTest) -> Result<(), Box<dyn Error>> {
    let mut mlp = network()?;
    let mut batch = 0;
    let run = test.run(|| {
        batch += 1;
        mlp.train_batch(batch - 1)
    });
    assert!(run.result().as_ref().is_ok_and(|loss| loss.is_finite()), "{:?}", run.result());
    lean_batch(expect(&run))
        .range("batch")
        .instances(exactly(1))
        .gpu_time_of(Statistic::Median, at_most(Duration::from_millis(5)))
        .assert();
    Ok(())
}

#[gpu_test(repeats = 2)]
fn a_budget_that_is_too_tight_fails(test: GpuTest) {
    let mut mlp = network().unwrap();
    let run = test.run(|| mlp.train_batch(0).unwrap());
    let violations = expect(&run).range("batch").kernels(at_most(1)).check().unwrap_err();
    let text = violations.to_string();
    let first = "kernels: 2 of 2 not kept, the budget is at most 1; at most 18 would pass";
    assert!(text.contains(first) && text.contains("4 x sgd_update in batch/optimizer"), "{text}");
}
