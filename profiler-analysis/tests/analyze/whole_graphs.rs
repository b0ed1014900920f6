//! CUDA graphs that were traced as one interval each: busy time of the range of their launch, and no kernel.

use crate::formats::export;
use crate::{capture, captured, rewritten};
use std::path::PathBuf;
use std::time::Duration;

use capture::{Folder, SCHEMA, connect, global};
use cupti::sys::generated::graph_trace;
use cupti::{ActivityKind, Config, Version};
use fake_cupti::{Fake, Work, Written};
use profiler_analysis::Format;
use profiler_analysis::diagnosis::Bottleneck;
use profiler_analysis::prelude::*;
use profiler_analysis::reports::{Rule, StatsReport};
use profiler_core::profile::OperationKind;
use profiler_core::{Profile, Profiler, at_most, expect};

const MS: u64 = 1_000_000;

/// One second in which a graph of 47 ms is launched 20 times in `step`, each waited for: 94 % busy. One kernel of 1 ms
/// stands outside.
fn busy(folder: &Folder) -> PathBuf {
    let path = folder.file("graphs.sqlite");
    let connection = connect(&path);
    connection.execute_batch(SCHEMA).unwrap();
    let (pid, tid) = (global(9, 0), global(9, 9));
    let mut rows = format!(
        "INSERT INTO StringIds VALUES (1, 'cudaGraphLaunch_v10000'), (2, 'cudaStreamSynchronize_v3020'), (3, 'k()'),
            (4, 'cudaLaunchKernel_v7000');
         CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, deviceId, contextId, greenContextId, streamId,
            correlationId, globalPid, graphId, graphExecId);
         INSERT INTO TARGET_INFO_GPU VALUES (0, 'GPU', 1024, 132, 9, 0, 0);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1000000, 1010000, 0, {tid}, 99, 4, 0);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, globalPid,
            demangledName, shortName) VALUES (1020000, 2020000, 0, 1, 7, 99, {pid}, 3, 3);
         INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (3000000, 1003000000, 59, 'step', {tid});"
    );
    for launch in 0..20 {
        let start = 3 * MS + launch * 50 * MS;
        rows += &format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({0}, {1}, 0, {tid}, {launch} + 1, 1, 0),
                ({1}, {2}, 0, {tid}, {launch} + 200, 2, 0);
             INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES ({3}, {2}, 0, 1, NULL, 7, {launch} + 1, {pid}, 5, 6);",
            start + 10,
            start + 20_000,
            start + 48 * MS,
            start + MS,
        );
    }
    connection.execute_batch(&rows).unwrap();
    path
}

fn check_busy(profile: &Profile) {
    profile.health().assert_complete();
    assert_eq!((profile.health().facts.whole_graphs, profile.graphs().count()), (20, 20));
    let step = profile.range("step").unwrap().inclusive();
    assert_eq!(
        (step.graphs, step.graph_time(), step.kernels),
        (20, Duration::from_nanos(20 * 47 * MS), 0)
    );
    assert_eq!((step.gpu_operations(), step.gpu_time()), (20, Duration::from_millis(940)));
    assert_eq!(profile.totals().kernels, 1, "a graph is no kernel");
    let in_step = profile.query().in_range("step");
    assert_eq!(in_step.busy_time(), Duration::from_millis(940));
    assert_eq!(in_step.clone().graphs().count(), 20);
    assert_eq!(in_step.clone().kernels().count(), 0);
    assert_eq!(in_step.gaps(Duration::ZERO).time(), Duration::from_millis(19 * 3));
    let graph = profile.graphs().next().unwrap();
    assert_eq!((graph.kind(), graph.executable_id()), (OperationKind::Graph, 6));
    assert_eq!(graph.template_id(), Some(5));
    assert_eq!(graph.range().unwrap().name(), "step");
    assert!(graph.call().unwrap().name().contains("GraphLaunch"));
}

#[test]
fn graphs_of_a_capture_are_busy_time_of_their_range() {
    let folder = Folder::new();
    let profile = profiler_analysis::nsys::read(busy(&folder)).unwrap();
    check_busy(&profile);
    let diagnosis = profile.diagnose();
    assert_eq!(diagnosis.verdict().bottleneck, Some(Bottleneck::GpuCompute), "{diagnosis}");
    let text = profile.to_string();
    assert!(text.contains("940.0 ms in 20 graphs traced as a whole"), "{text}");
    // What ran in the graphs is not known, how long they took is.
    let kernels = expect(&profile).range("step").kernels(at_most(99)).check().unwrap_err();
    let text = kernels.to_string();
    assert!(text.contains("cannot be known: 20 CUDA graphs were traced as a whole"), "{text}");
    expect(&profile).range("step").busy_time(at_most(Duration::from_millis(940))).assert();
    assert!(
        expect(&profile)
            .range("step")
            .busy_time(at_most(Duration::from_millis(939)))
            .check()
            .is_err()
    );
}

#[test]
fn graphs_are_in_every_export_and_in_a_rewritten_capture() {
    let folder = Folder::new();
    let profile = profiler_analysis::nsys::read(busy(&folder)).unwrap();
    check_busy(&rewritten(&profile));
    for (format, what) in [
        (Format::Chrome, "\"CUDA graph\""),
        (Format::Kineto, "\"CUDA graph\""),
        (Format::Perfetto, "CUDA graph"),
        (Format::Folded, "CUDA graph"),
    ] {
        let bytes = export(&profile, format);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains(what), "{format}: {}", &text[..text.len().min(2000)]);
    }
    assert!(profile.counts().contains("20 graphs traced as a whole"), "{}", profile.counts());
    assert!(profile.json_lines().contains("\"graphs\":20,"), "{}", profile.json_lines());
    let page = profile.to_html();
    assert!(
        page.contains("\"graphs\":20,\"graph_ns\":940000000"),
        "the page has no sums of graphs"
    );
    assert!(page.contains("GPU 0 was busy for 93."), "the page does not count graphs as busy");
}

/// Reports that have nsys's names leave graphs out as nsys does, and say so.
#[test]
fn reports_of_nsys_omit_graphs_with_a_note() {
    // The program of `tests/captures/program.rs`, whose graphs nsys 2025.3 traced as a whole.
    let profile = captured("whole-graphs");
    profile.health().assert_complete();
    assert_eq!((profile.health().facts.whole_graphs, profile.totals().graphs), (15, 15));
    for report in [
        StatsReport::CudaGpuSum,
        StatsReport::CudaGpuTrace,
        StatsReport::CudaApiGpuSum,
        StatsReport::NvtxGpuProjSum,
        StatsReport::NvtxGpuProjTrace,
    ] {
        let report = profile.stats(report);
        assert_eq!(report.whole_graphs(), 15, "{}", report.name());
        assert!(!report.csv().to_lowercase().contains("[cuda graph]"));
        assert!(report.to_string().contains("(15 graph launches traced as a whole are not in it"));
    }
    assert_eq!(profile.rules().get(Rule::GpuGaps).whole_graphs(), 15);
    assert_eq!(profile.stats(StatsReport::CudaGpuKernSum).whole_graphs(), 0);
}

const VERSION: Version = Version(130_001);

/// Launches a graph that CUPTI traces as one interval of so many nanoseconds.
fn launch(fake: &Fake, ns: u64) {
    use graph_trace::*;
    let id = fake.launch_graph(&[]);
    let start = cupti::clock::now_ns();
    fake.write(
        &Written::new(ActivityKind::GRAPH_TRACE, VERSION)
            .unwrap()
            .set(START, start)
            .set(END, start + ns)
            .set(CONTEXT_ID, 1)
            .set(STREAM_ID, 7)
            .set(GRAPH_ID, 6)
            .set(CORRELATION_ID, id),
    );
}

fn tracing() -> (Fake, Profiler) {
    let fake = Fake::builder().version(VERSION.0).clock_offset(0).build();
    let profiler = crate::profiler(&fake, Config::new().add_kind(ActivityKind::GRAPH_TRACE));
    (fake, profiler)
}

#[test]
fn graphs_of_a_session_match_a_capture() {
    let (fake, profiler) = tracing();
    profiler.start().unwrap();
    {
        let _step = nvtx::range("step");
        launch(&fake, 5000);
        launch(&fake, 7000);
        fake.launch(Work::kernel(c"k").taking_ns(100));
    }
    let profile = profiler.stop().unwrap();
    profile.health().assert_complete();
    let step = profile.range("step").unwrap().inclusive();
    assert_eq!(
        (step.graphs, step.graph_time(), step.kernels, step.launches),
        (2, Duration::from_micros(12), 1, 3)
    );
    assert_eq!(profile.health().facts.silent_graph_launches, 0);
    let graph = profile.graphs().next().unwrap();
    assert_eq!((graph.executable_id(), graph.template_id()), (6, None));
    let again = rewritten(&profile);
    assert_eq!(again.totals(), profile.totals());
    assert_eq!(again.health().facts.whole_graphs, 2);
}

#[test]
fn a_graph_without_its_call_is_a_loss() {
    let (fake, profiler) = tracing();
    profiler.start().unwrap();
    launch(&fake, 5000);
    let start = cupti::clock::now_ns();
    let record = Written::new(ActivityKind::GRAPH_TRACE, VERSION).unwrap();
    let record = record.set(graph_trace::START, start).set(graph_trace::END, start + 5);
    fake.write(&record.set(graph_trace::CORRELATION_ID, 1 << 20));
    let profile = profiler.stop().unwrap();
    let health = profile.health();
    assert!(!health.is_complete(), "{health}");
    assert_eq!((health.facts.whole_graphs, health.losses.whole_graphs_without_call), (2, 1));
}

#[test]
fn a_summary_counts_graphs_as_a_profile_does() {
    let (fake, profiler) = tracing();
    let summarizing = profiler.summarize().unwrap();
    {
        let _step = nvtx::range("step");
        launch(&fake, 5000);
        launch(&fake, 7000);
    }
    let summary = summarizing.stop().unwrap();
    assert!(summary.health().is_complete(), "{}", summary.health());
    assert_eq!(
        (summary.totals().graphs, summary.totals().graph_time()),
        (2, Duration::from_micros(12))
    );
    assert_eq!(summary.find("step").next().unwrap().inclusive().graphs, 2);
    assert_eq!(summary.health().facts.whole_graphs, 2);
}
