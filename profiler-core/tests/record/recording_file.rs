//! A session that is written to a file while it runs: what the file has at any time, and in the end.

use std::fs;
use std::time::Duration;

use cupti::fake::{Fake, Work};
use nvtx::range;
use profiler_core::{Profile, Profiler, ProfilerBuilder};

use crate::folder::Folder;

/// The thread takes nothing by itself.
const HOUR: Duration = Duration::from_secs(3600);

fn builder(fake: &Fake) -> ProfilerBuilder {
    Profiler::builder().library(fake.library().unwrap()).period(HOUR)
}

fn step(fake: &Fake) {
    let _step = range("step");
    fake.launch(Work::host_to_device(1000));
    fake.launch(Work::kernel(c"gemm"));
    fake.launch(Work::synchronize());
}

#[test]
fn finished_file_is_the_recording_of_the_session() {
    let (fake, folder) = (Fake::new(), Folder::new());
    let path = folder.0.join("run.gpuprof");
    let profiler = builder(&fake).build().unwrap();
    profiler.start().unwrap();
    let file = profiler.record_to(&path).unwrap();
    let outer = range("outer");
    for _ in 0..3 {
        step(&fake);
        file.flush().unwrap();
    }
    step(&fake);
    drop(outer);
    let totals = file.finish().unwrap();
    let read = Profile::load(&path).unwrap();
    let beside = profiler.stop().unwrap();
    read.health().assert_complete();
    assert_eq!(read.kernels().count(), 4);
    assert_eq!((totals.operations, totals.calls), (8, 12));
    assert_eq!(totals.bytes, fs::metadata(&path).unwrap().len());
    assert_eq!(read.ranges().count(), beside.ranges().count());
}
