//! Products of cuBLAS in every type, and whether they use tensor cores: what we say by their kernels' names beside how fast
//! they are. What is faster than a GPU can be without tensor cores uses them, and what cuBLAS promises to do without does
//! not. With `OUT` set, names, types and rates are written there.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // a test that says what it saw

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use cudarc::driver::sys::CUdevice_attribute_enum as Device;
use gpu_profiler_tests::blas::{self, Blas, Numbers};
use gpu_profiler_tests::cuda::{DEFAULT, Gpu};
use gpu_profiler_tests::harness;
use profiler_analysis::kernels::{KernelClass, TcStatus, TcUse};
use profiler_analysis::prelude::*;
use profiler_core::Profiler;

/// Sizes of which the first is large enough to tell by its rate.
const SIZES: [[u32; 3]; 9] = [
    [4096, 4096, 4096],
    [2048, 2048, 2048],
    [256, 256, 256],
    [64, 64, 64],
    [1000, 1000, 1000],
    [1001, 999, 997],
    [4096, 1, 4096],
    [4096, 4096, 16],
    [128, 128, 4096],
];

fn main() -> ExitCode {
    harness::run(&[("names_of_products_match_their_rates", products)]).exit_code()
}

fn products() {
    assert_eq!(blas::unavailable(), None);
    let gpu = Gpu::get();
    let blas = Blas::new(&gpu, 4096 * 4096);
    let run = |numbers: Numbers, [m, n, k]: [u32; 3], name: &'static str| {
        let event = nvtx::event(name).field("dtype", numbers.name(), "");
        let event = event.field("m", m, "").field("n", n, "").field("k", k, "");
        let _range = event.range();
        (0..5).all(|_| blas.multiply(numbers, [m, n, k]))
    };
    for numbers in Numbers::ALL {
        SIZES.into_iter().for_each(|sizes| _ = run(numbers, sizes, "warm-up"));
    }
    gpu.synchronize(DEFAULT);

    let profiler = Profiler::builder().build().unwrap();
    profiler.start().unwrap();
    for numbers in Numbers::ALL {
        let _all = nvtx::range(numbers.name());
        for sizes in SIZES {
            // By its range each product can be found again.
            let name: &'static str = format!("{sizes:?}").leak();
            run(numbers, sizes, name);
            gpu.synchronize(DEFAULT);
        }
    }
    let profile = profiler.stop().unwrap();
    profile.health().assert_complete();

    let of = |attribute| f64::from(gpu.device_attribute(attribute));
    let multiprocessors = of(Device::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    let hertz = 1e3 * of(Device::CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    let tensor_cores = profile.tensor_cores();
    let mut rows = String::from("dtype,m,n,k,using,confidence,class,status,rate_over_plain,name\n");
    let mut wrong = Vec::new();
    for numbers in Numbers::ALL {
        for [m, n, k] in SIZES {
            let path = format!("{}/{:?}", numbers.name(), [m, n, k]);
            let kernels = profile.query().in_range(&path).kernels();
            if kernels.count() == 0 {
                continue;
            }
            let op = tensor_cores.ops().iter().find(|op| op.path == path).unwrap();
            let flops = 5.0 * f64::from(m) * f64::from(n) * f64::from(k);
            let plain = f64::from(numbers.plain_per_cycle()) * multiprocessors * hertz;
            let rate = flops / kernels.gpu_time().as_secs_f64() / plain;
            for group in &kernels.by_kernel() {
                let name = group.key().to_string();
                let kernel = profile.kernels().find(|of| of.demangled_name() == name).unwrap();
                let (of, class) = (kernel.tensor_core_use(), kernel.class());
                let is_using = of.tensor_cores;
                writeln!(
                    rows,
                    "{},{m},{n},{k},{is_using},{},{class},{},{rate:.2},\"{name}\"",
                    numbers.name(),
                    of.confidence,
                    op.status
                )
                .unwrap();
                if is_using == TcUse::Unknown || class == KernelClass::Other {
                    wrong.push(format!("not known: {name}, of {path}"));
                }
                if numbers == Numbers::F32 && is_using == TcUse::Using {
                    wrong.push(format!("cuBLAS promised to do without: {name}, of {path}"));
                }
            }
            if rate > 1.0 && op.status != TcStatus::Using {
                wrong.push(format!("{rate:.2} of the rate without tensor cores: {op:?}"));
            }
            if rate > 1.0 && numbers == Numbers::F32 {
                wrong.push(format!("the peak is wrong: {rate:.2} of it, by {op:?}"));
            }
        }
    }
    if let Some(out) = std::env::var_os("OUT") {
        std::fs::create_dir_all(&out).unwrap();
        std::fs::write(Path::new(&out).join("products.csv"), &rows).unwrap();
    }
    eprint!("{rows}");
    // The large ones are so fast that it was tried.
    for numbers in [Numbers::F16, Numbers::Bf16, Numbers::Tf32] {
        let path = format!("{}/{:?}", numbers.name(), SIZES[0]);
        let op = tensor_cores.ops().iter().find(|op| op.path == path).unwrap();
        assert_eq!(op.status, TcStatus::Using, "{op:?}");
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
