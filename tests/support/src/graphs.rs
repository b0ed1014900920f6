//! Graphs that are captured in ranges and run in others; ranges with values of every kind.

use fake_cupti::Work;
use nvtx::{event, range};
use profiler_core::Profile;

use crate::everything::{fake, record};

pub fn graphs() -> Profile {
    let fake = fake();
    record(&fake, || {
        let mut graph = fake.graph();
        {
            let _capture = range("capture");
            fake.capture_into(&mut graph, &Work::kernel(c"embed").taking_ns(100));
            for layer in 0..3 {
                let _layer = range(&format!("layer {layer}"));
                fake.capture_into(&mut graph, &Work::kernel(c"gemm").taking_ns(1_000));
                fake.capture_into(&mut graph, &Work::memset(64).taking_ns(10));
            }
        }
        fake.add_node(&mut graph, &Work::kernel(c"nobody's"));
        let exec = fake.instantiate(&graph);
        for _ in 0..4 {
            let _replay = range("replay");
            fake.launch_exec(&exec);
        }
        let _real = event("real").payload(-2.5_f64).range();
        let _single = event("single").payload(0.1_f32).range();
        let _large = event("large").payload(u64::MAX).range();
        let _small = event("small").payload(i32::MIN).range();
        fake.launch_exec(&exec);
    })
}
