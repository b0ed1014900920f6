use profiler_macros::gpu_test;

struct GpuTest;

#[gpu_test(warmup = 1)]
fn unknown(_test: GpuTest) {}

#[gpu_test(repeats = 2, repeats = 3)]
fn twice(_test: GpuTest) {}

#[gpu_test(repeats)]
fn no_value(_test: GpuTest) {}

#[gpu_test(repeats = 0)]
fn none(_test: GpuTest) {}

#[gpu_test(warm_up = -1)]
fn negative(_test: GpuTest) {}

#[gpu_test(repeats = "5")]
fn text(_test: GpuTest) {}

#[gpu_test(repeats = 5u64)]
fn suffix(_test: GpuTest) {}

#[gpu_test(repeats = 5000000000)]
fn too_many(_test: GpuTest) {}

#[gpu_test(repeats = 5 warm_up = 1)]
fn no_comma(_test: GpuTest) {}

#[gpu_test(crate = "profiler_core")]
fn path_in_quotes(_test: GpuTest) {}

#[gpu_test(profiler = )]
fn no_profiler(_test: GpuTest) {}

#[gpu_test(5)]
fn bare(_test: GpuTest) {}

fn main() {}
