use profiler_macros::gpu_test;

struct GpuTest;

#[gpu_test]
fn no_parameter() {}

#[gpu_test]
fn two_parameters(_test: GpuTest, _more: u32) {}

#[gpu_test]
async fn future(_test: GpuTest) {}

#[gpu_test]
const fn constant(_test: &GpuTest) {}

#[gpu_test]
fn generic<T>(_test: GpuTest) {}

#[gpu_test]
#[should_panic]
fn panics(_test: GpuTest) {}

#[gpu_test]
struct NoFunction;

fn main() {}
