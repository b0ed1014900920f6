//! Launch shapes of what was recorded on a GPU, and what is said of them.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::time::Duration;

use profiler_core::Profile;
use profiler_core::kernels::{FindingKind, Limiter, SmLimits};

fn quickstart() -> Profile {
    let file = "/../examples/recordings/quickstart-h200.gpuprof";
    Profile::load(format!("{}{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn every_kernel_has_its_shape() {
    let profile = quickstart();
    let shapes = profile.launch_shapes();
    println!("{shapes}");
    let kernels = profile.query().kernels();
    let counted: u64 = shapes.rows().iter().map(|row| row.instances).sum();
    assert_eq!((counted, shapes.unknown()), (kernels.count(), 0));
    assert_eq!(shapes.gpu_time(), kernels.gpu_time());
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
        println!("{:#}", train().launch_shapes());
    }
}
