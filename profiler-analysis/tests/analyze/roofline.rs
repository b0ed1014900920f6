//! Declared work under the roofs of a device: what the numbers are, and how they are shown.
use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::{load, quickstart};
use fake_cupti::{Fake, Work as Gpu};
use nvtx::{Domain, Dtype, Pipe, Work};
use profiler_analysis::prelude::*;
use profiler_analysis::roofline::{Bound, Declared, Peaks, Roofline, RooflinePoint};
use profiler_core::Profile;
use test_support::session;

static LIBRARY: Domain = Domain::new("library");

fn record(program: impl FnOnce(&Fake)) -> [Profile; 2] {
    let fake = Fake::new();
    session::record(&fake, || program(&fake))
}

/// The GPU of a published example, of which its peak alone is known.
fn six_tera() -> Peaks {
    Peaks::new("a GPU of 6 TFLOP/s").with_flops(Dtype::F32, Pipe::Vector, 6e12)
}

fn only_point(roofline: &Roofline) -> &RooflinePoint {
    assert_eq!(roofline.points.len(), 1, "{roofline}");
    &roofline.points[0]
}

/// But for the nanosecond by which a time may be off when clocks are converted.
#[track_caller]
fn assert_near(value: Option<f64>, expected: f64) {
    let value = value.unwrap();
    assert!((value / expected - 1.0).abs() < 1e-3, "{value} is not {expected}");
}

#[track_caller]
fn took(point: &RooflinePoint, ns: u64) {
    let off = point.gpu_time.as_nanos().abs_diff(u128::from(ns));
    assert!(off <= u128::from(point.kernels), "{:?} is not {ns} ns", point.gpu_time);
}

/// Eight products of 512 x 512 x 64 that take 71.964 us each, of a published course on profiling, and the same eight as two
/// launches of 99.057 us.
#[test]
fn a_small_product_is_far_off_the_peak() {
    let (m, n, k) = (512u64, 512u64, 64u64);
    for profile in record(|fake| {
        for _ in 0..8 {
            let _range = nvtx::event("gemm").flops(2 * m * n * k).dtype(Dtype::F32).range();
            fake.launch(Gpu::kernel(c"sgemm").taking_ns(71_964));
        }
    }) {
        let roofline = profile.roofline(&six_tera());
        let point = only_point(&roofline);
        assert_eq!((point.flops, point.instances), (Some(8.0 * 33_554_432.0), 8));
        took(point, 8 * 71_964);
        // 5.6 us each at the peak; 7.8 % of it.
        assert_eq!(point.ideal().unwrap() / 8, Duration::from_nanos(5_592));
        assert_near(point.achieved(), 33_554_432.0 / 71.964e-6);
        assert_near(point.of_roof(), 33_554_432.0 / 71.964e-6 / 6e12);
        // Whether memory is the limit is not known, and not said.
        assert_eq!((point.intensity(), point.bound()), (None, None));
        let text = roofline.to_string();
        assert!(text.contains("466.3 GFLOP/s") && text.contains("7.8 %"), "{text}");
    }
    for profile in record(|fake| {
        for _ in 0..2 {
            let _range = nvtx::event("gemms").work(Work::gemm(m, 4 * n, k, Dtype::F32)).range();
            fake.launch(Gpu::kernel(c"sgemm").taking_ns(99_057));
        }
    }) {
        let text = profile.roofline(&six_tera()).to_string();
        assert!(text.contains("1.355 TFLOP/s") && text.contains("22.6 %"), "{text}");
    }
}

#[nvtx::annotate(flops = 2 * m * n * k, bytes = 4 * (m * k + k * n + m * n), dtype = Dtype::F32)]
fn product(fake: &Fake, m: usize, n: usize, k: usize) {
    fake.launch(Gpu::kernel(c"product").taking_ns(2_000_000));
}

/// 10 TFLOP/s and 1 TB/s: the ridge is at 10 operations a byte.
fn ten() -> Peaks {
    Peaks::new("ten").with_flops(Dtype::F32, Pipe::Vector, 10e12).with_bandwidth(1e12)
}

#[test]
fn a_point_is_under_the_lower_roof() {
    for profile in record(|fake| {
        product(fake, 1024, 1024, 1024);
        // Twice the ideal time of its bytes.
        let _axpy = nvtx::range!(work: Work::elementwise(1_000_000, 2, 1, 2, Dtype::F32), "axpy");
        fake.launch(Gpu::kernel(c"axpy").taking_ns(24_000));
    }) {
        profile.health().assert_complete();
        let roofline = profile.roofline(&ten());
        assert!(roofline.trust.is_complete());
        let [gemm, axpy] = &roofline.points[..] else { panic!("{roofline}") };
        assert_eq!((&*gemm.name, gemm.bound()), ("product", Some(Bound::Compute)));
        let flops = 2.0 * 1024f64.powi(3);
        assert_near(gemm.intensity(), flops / (12.0 * 1024.0 * 1024.0));
        assert_near(gemm.attainable(), 10e12);
        assert_near(gemm.of_roof(), flops / 2e-3 / 10e12);
        assert_eq!((&*axpy.name, axpy.bound()), ("axpy", Some(Bound::Memory)));
        assert_eq!((axpy.dtype, axpy.pipe), (Some(Dtype::F32), Some(Pipe::Vector)));
        assert_near(axpy.intensity(), 1.0 / 6.0);
        assert_near(axpy.attainable(), 1e12 / 6.0);
        assert_near(axpy.ridge(), 10.0);
        assert_near(axpy.of_roof(), 0.5);
        assert_near(axpy.distance(), 2.0);
        assert_near(axpy.achieved_bandwidth(), 0.5e12);
    }
}

#[test]
fn time_is_that_in_which_a_kernel_of_the_range_ran() {
    for profile in record(|fake| {
        let work = Work::new(1000, 1000).with_dtype(Dtype::F32);
        let _outer = nvtx::event("outer").work(work).range();
        let _inner = LIBRARY.event("inner").work(work).range();
        fake.launch(Gpu::kernel(c"a").taking_ns(5_000));
        // Copies are no kernels.
        fake.launch(Gpu::device_to_host(1 << 20).taking_ns(9_000_000));
        fake.launch(Gpu::kernel(c"b").taking_ns(7_000));
    }) {
        let roofline = profile.roofline(&ten());
        assert_eq!(roofline.points.len(), 2);
        for point in &roofline.points {
            let busy = profile.query().in_range(&point.name).kernels().busy_time();
            assert_eq!((point.kernels, point.gpu_time), (2, busy));
            assert_eq!((point.flops, point.devices), (Some(1000.0), 1));
        }
        let inner = roofline.points.iter().find(|point| point.name == "outer/inner").unwrap();
        assert_eq!(inner.domain.as_deref(), Some("library"));
    }
}

#[test]
fn work_of_a_captured_range_counts_for_every_launch() {
    for profile in record(|fake| {
        let mut graph = fake.graph();
        {
            let work = Work::new(3_000, 600).with_dtype(Dtype::F32);
            let _captured = nvtx::event("captured").work(work).range();
            fake.capture_into(&mut graph, &Gpu::kernel(c"a").taking_ns(1_000));
            fake.capture_into(&mut graph, &Gpu::kernel(c"b").taking_ns(2_000));
        }
        let exec = fake.instantiate(&graph);
        for _ in 0..4 {
            fake.launch_exec(&exec);
        }
        fake.destroy_exec(exec);
    }) {
        let roofline = profile.roofline(&ten());
        let point = only_point(&roofline);
        assert_eq!((point.instances, point.kernels), (4, 8));
        assert_eq!((point.flops, point.bytes), (Some(12_000.0), Some(2_400.0)));
        took(point, 4 * 3_000);
        assert!(roofline.trust.is_complete(), "{}", roofline.trust);
    }
}

#[nvtx::annotate(work = Work::new(5_000, 1_000).with_dtype(Dtype::F32))]
async fn future(fake: &Fake) {
    fake.launch(Gpu::kernel(c"before").taking_ns(1_000));
    let mut is_ready = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut is_ready, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    fake.launch(Gpu::kernel(c"after").taking_ns(3_000));
}

#[test]
fn the_work_of_a_future_is_held_against_all_its_polls() {
    for profile in record(|fake| {
        let _around = nvtx::range("around");
        let context = &mut Context::from_waker(Waker::noop());
        let mut future = pin!(future(fake));
        assert!(future.as_mut().poll(context).is_pending());
        // Of no poll.
        fake.launch(Gpu::kernel(c"between").taking_ns(50_000));
        assert!(future.as_mut().poll(context).is_ready());
    }) {
        let roofline = profile.roofline(&ten());
        let point = only_point(&roofline);
        assert_eq!((&*point.name, point.instances, point.kernels), ("around/future", 1, 2));
        assert_eq!(point.flops, Some(5_000.0));
        took(point, 4_000);
        assert!(roofline.trust.is_complete());
    }
}

#[test]
fn omitted_work_is_counted() {
    for profile in record(|fake| {
        drop(nvtx::event("nothing ran").flops(1u64).range());
        let event = nvtx::event("units").field("flops", 2u64, "GFLOP").bytes(100u64);
        let range = event.dtype("quaternion").pipe(Pipe::Tensor).range();
        fake.launch(Gpu::kernel(c"k"));
        drop(range);
        for flops in [f64::NAN, -1.0, f64::INFINITY] {
            let _range = nvtx::event("no number").flops(flops).range();
            fake.launch(Gpu::kernel(c"k"));
        }
        // A type alone is no work, whatever it names.
        let _range = nvtx::event("no work").dtype("string").range();
        fake.launch(Gpu::kernel(c"k"));
    }) {
        let roofline = profile.roofline(&ten());
        assert_eq!(roofline.trust.without_kernels, 1);
        assert_eq!(roofline.trust.unreadable_fields, 2 + 3);
        let point = only_point(&roofline);
        assert_eq!((&*point.name, point.flops, point.bytes), ("units", None, Some(100.0)));
        assert_eq!((point.bound(), point.pipe), (Some(Bound::Memory), Some(Pipe::Tensor)));
        assert_near(point.of_roof(), 100.0 / 1e12 / 1e-6);
        let text = roofline.to_string();
        assert!(
            text.contains("trust: 1 ranges with declared work and no kernel, 5 fields"),
            "{text}"
        );
    }
}

#[test]
fn one_path_has_a_point_for_each_type() {
    for profile in record(|fake| {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::F32] {
            let _range = nvtx::event("gemm").work(Work::gemm(8, 8, 8, dtype)).range();
            fake.launch(Gpu::kernel(c"k"));
        }
    }) {
        let roofline = profile.roofline(&profile.peaks(None).unwrap());
        let types: Vec<_> =
            roofline.points.iter().map(|p| (p.dtype, p.pipe, p.instances)).collect();
        let expected =
            [(Some(Dtype::F32), Some(Pipe::Vector), 2), (Some(Dtype::F16), Some(Pipe::Tensor), 1)];
        assert_eq!(types, expected);
    }
}

#[test]
fn work_can_be_declared_afterwards() {
    let profile = quickstart();
    let peaks = profile.peaks(None).unwrap();
    assert_eq!(peaks.device(), "NVIDIA H200");
    let bf16 = peaks.flops(Dtype::Bf16, None).unwrap().roof.peak.unwrap();
    assert!((bf16 / 989e12 - 1.0).abs() < 0.01, "{bf16}");
    assert_eq!(profile.roofline(&peaks).points, []);
    let products = Work::gemm(512, 512, 256, Dtype::F32) + Work::gemm(512, 64, 512, Dtype::F32);
    let update = Work::elementwise(512 * 256, 3, 2, 4, Dtype::F32);
    let declared = Declared::new().range("batch/forward", products).kernel("sgd_*", update);
    let roofline = profile.roofline_with(&peaks, &declared);
    let point = |name: &str| roofline.points.iter().find(|point| point.name == name).unwrap();
    let forward = point("batch/forward");
    let range = profile.range("batch/forward").unwrap();
    assert_eq!((forward.instances, forward.kernels), (range.instances(), range.kernels()));
    assert_eq!(forward.flops, Some(range.instances() as f64 * products.flops().unwrap() as f64));
    let busy = profile.query().in_range("batch/forward").kernels().busy_time();
    assert_eq!(forward.gpu_time, busy);
    let update = point("sgd_update");
    assert!(update.is_kernel && update.instances == update.kernels && update.kernels > 0);
    assert_eq!(update.bound(), Some(Bound::Memory));
}

#[test]
fn json_matches_the_table() {
    for profile in record(|fake| {
        let work = Work::new(1_000_000, 1_000_000).with_dtype(Dtype::F32);
        let _range = nvtx::event("r").work(work).range();
        fake.launch(Gpu::kernel(c"k").taking_ns(2_000));
    }) {
        let json = serde_json::to_value(profile.roofline(&ten())).unwrap();
        let point = &json["points"][0];
        assert_eq!((&point["name"], &point["dtype"]), (&"r".into(), &"f32".into()));
        assert_eq!((&point["flops"], &point["bound"]), (&1e6.into(), &"memory".into()));
        assert_near(point["of_roof"].as_f64(), 0.5);
        assert_near(point["gpu_time_ns"].as_f64(), 2_000.0);
        assert_eq!(json["peaks"]["bandwidth"]["peak"], 1e12);
        assert_eq!(json["trust"]["without_kernels"], 0);
    }
}

#[test]
fn names_are_text_in_pictures_and_pages() {
    const HOSTILE: [&str; 6] = [
        "</title><script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "</style><b>'&amp;'",
        "]]><!--",
        "a\u{0}b\u{1b}[31m\u{ffff}\u{7}",
        "größe ∑ 核 🚀",
    ];
    for profile in record(|fake| {
        for name in HOSTILE {
            let work = Work::new(1_000_000, 10_000).with_dtype(Dtype::F32);
            let _range = nvtx::event(name).work(work).range();
            fake.launch(Gpu::kernel(c"k").taking_ns(2_000));
        }
    }) {
        let peaks = Peaks::new(HOSTILE[0]).with_bandwidth(1e12);
        let peaks = peaks.with_flops(Dtype::F32, Pipe::Vector, 10e12);
        let roofline = profile.roofline(&peaks);
        for page in [roofline.to_svg(), roofline.to_html()] {
            assert_eq!(page.matches("<circle").count(), HOSTILE.len());
            assert!(
                page.contains("&lt;script&gt;alert(1)&lt;/script&gt;")
                    && page.contains("größe ∑ 核 🚀")
            );
            for markup in ["<script", "<img", "<b>", "<!--", "]]>", "\u{0}", "\u{1b}", "\u{ffff}"] {
                assert!(!page.contains(markup), "{markup:?}");
            }
            // Nothing is fetched: the name space is the one address.
            let addresses = page.matches("http").count() - page.matches("http-equiv").count();
            assert_eq!(addresses, page.matches("http://www.w3.org/2000/svg").count());
            assert_eq!(page.matches("<style").count(), 1);
        }
        assert!(!roofline.to_string().contains('\u{1b}'));
    }
}

/// Elements that are opened are closed, in order.
#[test]
fn plots_are_complete_for_any_numbers() {
    for profile in record(|fake| {
        for (flops, bytes) in
            [(0, 0), (0, 5), (5, 0), (1, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX)]
        {
            let work = Work::new(flops, bytes).with_dtype(Dtype::F32);
            let _range = nvtx::event("range").work(work).range();
            fake.launch(Gpu::kernel(c"k").taking_ns(1));
        }
    }) {
        for peaks in [Peaks::new("none"), ten(), six_tera(), Peaks::new("m").with_bandwidth(1.0)] {
            for roofline in [profile.roofline(&peaks), quickstart().roofline(&peaks)] {
                for page in [roofline.to_svg(), roofline.to_html()] {
                    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
                    balanced(&page);
                }
                let json = serde_json::to_string(&roofline).unwrap();
                assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
            }
        }
    }
}

fn balanced(page: &str) {
    const VOID: [&str; 3] = ["meta", "link", "!doctype"];
    let mut open = Vec::new();
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap();
        let name = tag.split([' ', '\n']).next().unwrap();
        match name.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed)),
            None if tag.ends_with('/') || VOID.contains(&name) => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// What a capture holds of fields is enough.
#[cfg(feature = "nsys")]
#[test]
fn capture_gives_the_same_result() {
    for profile in record(|fake| {
        product(fake, 1024, 512, 256);
        let _half = nvtx::event("half").flops(1.5e9).dtype("half").range();
        fake.launch(Gpu::kernel(c"k").taking_ns(2_000));
    }) {
        let capture = crate::rewritten(&profile);
        let peaks = profile.peaks(None).unwrap();
        assert_eq!(capture.peaks(None).unwrap(), peaks);
        let points = profile.roofline(&peaks).points;
        assert_eq!((points.len(), capture.roofline(&peaks).points), (2, points));
    }
}

/// What `examples/roofline.rs --times 10` saved on an H200. `ncu` counted the same operations there for every launch, and bytes
/// within 1.1 % of those declared.
#[test]
fn counted_kernels_of_a_recording_keep_their_position() {
    let profile = load("roofline-h200");
    profile.health().assert_complete();
    let peaks = profile.peaks(None).unwrap();
    assert_eq!(peaks.bandwidth().peak, Some(4_814_304_000_000.0));
    assert_near(peaks.flops(Dtype::Bf16, None).unwrap().roof.peak, 989.4e12);
    let roofline = profile.roofline(&peaks);
    assert!(roofline.trust.is_complete() && roofline.points.len() == 3, "{roofline}");
    for (point, (name, flops, share, bound)) in roofline.points.iter().zip([
        ("gemm", 34_359_738_368u64, 0.401, Bound::Compute),
        ("axpy", 536_870_912, 0.908, Bound::Memory),
        ("reduction", 268_697_855, 0.532, Bound::Memory),
    ]) {
        assert_eq!((&*point.name, point.flops), (name, Some((10 * flops) as f64)));
        assert_eq!(point.bound(), Some(bound));
        let reached = point.of_roof().unwrap();
        assert!((reached - share).abs() < 0.001, "{name}: {reached}");
    }
}
