//! The scorecard: what programs that are slow for one known reason are marked for and their cured twins are not, and what is
//! said where nothing is known.

#[cfg(feature = "nsys")]
use crate::captured;
use crate::{file, load, quickstart, record};
use fake_cupti::Work;
use profiler_analysis::diagnosis::{Bottleneck, Thresholds};
use profiler_analysis::prelude::*;
use profiler_analysis::scorecard::{Flag, ScoreKind, Scorecard, Target, Targets};
use profiler_core::Profile;
use serde_json::Value;

/// The first thing to fix.
fn first(card: &Scorecard) -> Value {
    serde_json::to_value(card).unwrap()["first"].clone()
}

/// What holds of any scorecard.
fn check(card: &Scorecard) {
    let text = card.to_string();
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    assert!(text.lines().count() <= 24, "{text}");
    let kinds: Vec<ScoreKind> = card.scores().iter().map(|score| score.kind).collect();
    assert_eq!(kinds, ScoreKind::ALL);
    for score in card.scores() {
        assert!(!score.note.is_empty(), "{}", score.kind);
        match score.kind {
            ScoreKind::Estimate => assert!(score.value.is_none_or(|value| value >= 1.0)),
            _ => assert!(score.value.is_none_or(|value| (0.0..=1.0).contains(&value)), "{text}"),
        }
        assert!(score.value.is_some() || score.flag == Flag::Unknown, "{text}");
        assert!(text.contains(score.kind.text()), "{text}");
    }
    let json: Value = serde_json::to_value(card).unwrap();
    assert_eq!(json["scores"].as_array().unwrap().len(), ScoreKind::ALL.len());
    for (score, json) in card.scores().iter().zip(json["scores"].as_array().unwrap()) {
        assert_eq!(json["kind"], score.kind.name());
        assert_eq!(json["flag"], score.flag.text());
        assert_eq!(json["value"].as_f64(), score.value.filter(|value| value.is_finite()));
    }
}

/// Each disease and the values that are bad for it, and not so once it is cured.
const DISEASES: [(&str, &[ScoreKind]); 9] = [
    ("launch-bound", &[ScoreKind::Launch]),
    ("sync-every-kernel", &[ScoreKind::Synchronization]),
    ("pageable-copies", &[ScoreKind::Copy, ScoreKind::Overlap, ScoreKind::Estimate]),
    ("host-preprocessing", &[ScoreKind::Host, ScoreKind::Estimate]),
    ("slow-loader", &[ScoreKind::Loading, ScoreKind::GpuBusy, ScoreKind::Estimate]),
    ("tiny-copies", &[ScoreKind::Synchronization, ScoreKind::Estimate]),
    ("small-gemms", &[ScoreKind::SmallKernels, ScoreKind::Launch, ScoreKind::Estimate]),
    ("tail-effect", &[ScoreKind::Estimate]),
    ("serial-streams", &[ScoreKind::Estimate]),
];

#[test]
fn every_anti_pattern_is_flagged_and_its_fix_is_not() {
    for (name, own) in DISEASES {
        let [ill, cured] = ["ill", "cured"]
            .map(|state| load(&format!("diseases/{name}-{state}")))
            .map(|profile| profile.scorecard());
        check(&ill);
        check(&cured);
        for kind in own {
            // Five batched products are too few for a word on the clock.
            let thin = name == "small-gemms" && *kind != ScoreKind::SmallKernels;
            let (before, after) = (ill.flag(*kind), cured.flag(*kind));
            assert_eq!(before, Flag::Bad, "{name}: {kind}\n{ill}");
            match thin {
                true => assert_eq!(after, Flag::Unknown, "{name}: {kind}\n{cured}"),
                false => {
                    assert!(after > Flag::Unknown && after < Flag::Bad, "{name}: {kind}\n{cured}")
                }
            }
        }
        assert_eq!(ill.flag(ScoreKind::Health), Flag::Good);
    }
}

/// Shares of the clock that a disease is not made of stay good: a mark is no accident.
#[test]
fn anti_pattern_flags_only_its_own_value() {
    use ScoreKind::{Communication, Copy, Host, Launch, Loading, Synchronization};
    for (name, own) in DISEASES {
        let ill = load(&format!("diseases/{name}-ill")).scorecard();
        for kind in [Launch, Synchronization, Host, Loading, Copy, Communication] {
            let is_bad = ill.flag(kind) == Flag::Bad;
            assert_eq!(is_bad, own.contains(&kind), "{name}: {kind}\n{ill}");
        }
    }
}

#[test]
fn values_match_the_diagnosis_and_the_tables() {
    let profile = quickstart();
    let card = profile.scorecard();
    check(&card);
    let diagnosis = profile.diagnose();
    assert_eq!(card.bottleneck, Some(Bottleneck::Copy));
    assert_eq!(card.clock, diagnosis.verdict().clock);
    let value = |kind| card.score(kind).unwrap().value.unwrap();
    let cause = diagnosis.verdict().cause().unwrap();
    assert!((value(ScoreKind::Copy) - cause.share).abs() < 1e-12);
    assert_eq!(first(&card), serde_json::to_value(diagnosis.first()).unwrap());
    assert_eq!(first(&card)["kind"], "pageable_copies");
    let findings = diagnosis.findings().iter().filter(|found| !found.kind.is_note());
    let largest = findings.map(|found| found.estimate).fold(cause.estimate, f64::max);
    assert_eq!(value(ScoreKind::Estimate), largest);
    let steady = diagnosis.phases().iter().find(|phase| phase.verdict.is_some()).unwrap();
    let steady = profile.query().between(steady.span.start, steady.span.end);
    assert_eq!(value(ScoreKind::Occupancy), steady.launch_shapes().mean_occupancy());
    let clock = diagnosis.verdict().clock.as_secs_f64();
    let busy = steady.busy_time().as_secs_f64() / clock;
    assert!((value(ScoreKind::GpuBusy) - busy).abs() < 1e-12);
    // f32 on vector units, though the GPU has tensor cores.
    assert_eq!(
        (value(ScoreKind::TensorCores), card.flag(ScoreKind::TensorCores)),
        (0.0, Flag::Bad)
    );

    let profile = load("roofline-h200");
    let card = profile.scorecard();
    check(&card);
    let points = profile.roofline(&profile.peaks(None).unwrap()).points;
    let time = points.iter().map(|point| point.gpu_time.as_secs_f64()).sum::<f64>();
    let ideal = points.iter().map(|point| point.ideal().unwrap().as_secs_f64()).sum::<f64>();
    let of_roof = card.score(ScoreKind::OfRoof).unwrap();
    assert!((of_roof.value.unwrap() - ideal / time).abs() < 1e-6, "{card}");
    assert_eq!(of_roof.flag, Flag::Look);
    assert!(of_roof.note.ends_with(": gemm"), "{card}");
}

#[test]
fn products_on_tensor_cores_are_good() {
    let profile = record(|fake| {
        for _ in 0..20 {
            fake.launch(
                Work::kernel(c"ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn")
                    .taking_ns(95_000),
            );
            fake.launch(Work::kernel(c"ampere_sgemm_32x128_tn").taking_ns(5_000));
            fake.launch(Work::kernel(c"vectorized_elementwise_kernel").taking_ns(50_000));
        }
    });
    let card = profile.scorecard();
    check(&card);
    let score = card.score(ScoreKind::TensorCores).unwrap();
    assert_eq!(score.flag, Flag::Good, "{card}");
    assert!(
        (score.value.unwrap() - 0.95).abs() < 1e-9,
        "elementwise kernels are none of it: {card}"
    );
    let small = card.score(ScoreKind::SmallKernels).unwrap();
    assert!((small.value.unwrap() - 5.0 / 150.0).abs() < 1e-9, "{card}");
    // The share is one of time, and the note has both.
    assert!(small.note.starts_with("100.0 us of 3.000 ms; 20 of 60 kernels "), "{}", small.note);
}

/// A collective may wait for another rank: its time is no reason to call a GPU busy.
#[test]
fn collectives_alone_are_not_busy() {
    let profile = record(|fake| {
        for _ in 0..20 {
            fake.launch(Work::kernel(c"gemm").taking_ns(100_000));
            fake.launch(
                Work::kernel(c"ncclDevKernel_AllReduce_Sum_f32_RING_LL").taking_ns(900_000),
            );
        }
    });
    let card = profile.scorecard();
    check(&card);
    let busy = card.score(ScoreKind::GpuBusy).unwrap();
    assert!((0.05..0.11).contains(&busy.value.unwrap()) && busy.flag == Flag::Bad, "{card}");
    assert_eq!(card.flag(ScoreKind::Communication), Flag::Bad, "{card}");
    assert!(
        card.verdict.contains("waits for other ranks and transfers are distinguished"),
        "{card}"
    );
    let devices = profile.query().devices();
    // The fake's operations may overlap at their ends, and are busy there.
    assert_eq!(devices[0].busy.as_micros(), 2_000);
    assert!((17_900..=18_000).contains(&devices[0].communication.as_micros()), "{}", devices[0]);
}

/// What misses its target is never called good.
#[test]
fn hidden_copies_of_no_weight_are_unknown_with_the_reason() {
    let profile = record(|fake| {
        fake.launch(Work::host_to_device(1 << 20).taking_ns(10_000));
        (0..20).for_each(|_| _ = fake.launch(Work::kernel(c"gemm").taking_ns(1_000_000)));
    });
    let card = profile.scorecard();
    check(&card);
    let hidden = card.score(ScoreKind::Overlap).unwrap();
    assert_eq!((hidden.value, hidden.flag), (Some(0.0), Flag::Unknown), "{card}");
    assert!(hidden.note.starts_with("too little to matter: "), "{card}");
}

#[test]
fn empty_profile_has_unknown_values() {
    let profile = record(|_| ());
    let card = profile.scorecard();
    check(&card);
    assert!(card.scores().iter().all(|score| score.flag == Flag::Unknown), "{card}");
    assert!(card.scores().iter().all(|score| score.value.is_none()), "{card}");
    assert_eq!((card.bottleneck, first(&card)), (None, Value::Null));
    assert!(card.to_string().contains("no GPU operation was recorded"), "{card}");

    // A host that did something, and no GPU.
    let profile = record(|_| drop(nvtx::range("alone")));
    let card = profile.scorecard();
    check(&card);
    assert_eq!(card.with_flag(Flag::Unknown).count(), ScoreKind::ALL.len(), "{card}");
}

#[test]
fn a_few_operations_are_no_verdict() {
    let card = record(|fake| {
        fake.launch(Work::kernel(c"one").taking_ns(100));
    })
    .scorecard();
    check(&card);
    for kind in [ScoreKind::GpuBusy, ScoreKind::Launch, ScoreKind::Host, ScoreKind::Estimate] {
        let score = card.score(kind).unwrap();
        assert_eq!(score.flag, Flag::Unknown, "{card}");
        assert!(score.note.contains("too few"), "{card}");
    }
    assert_eq!(card.flag(ScoreKind::SmallKernels), Flag::Bad);
}

/// What is missing looks like an idle GPU: nothing that is of the clock is marked.
#[test]
fn incomplete_recording_has_no_clock_value() {
    let mut bytes = std::fs::read(file("recordings/diseases/launch-bound-ill.gpuprof")).unwrap();
    let needle = b"\"dropped_by_cupti\":0";
    let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    bytes[at + needle.len() - 1] = b'7';
    let card = Profile::from_bytes(&bytes).unwrap().scorecard();
    check(&card);
    let health = card.score(ScoreKind::Health).unwrap();
    assert_eq!((health.flag, health.value), (Flag::Bad, Some(0.0)), "{card}");
    assert_eq!(health.note, "7 records dropped by CUPTI");
    for kind in [ScoreKind::GpuBusy, ScoreKind::Launch, ScoreKind::Estimate] {
        assert_eq!(card.flag(kind), Flag::Unknown, "{card}");
    }
    assert!(card.score(ScoreKind::Launch).unwrap().value.unwrap() > 0.7);
    assert_eq!((card.bottleneck, first(&card)), (None, Value::Null));
}

#[test]
fn targets_can_be_set() {
    let profile = quickstart();
    let flag = |target| {
        profile
            .scorecard_with(&Targets::new().with_target(ScoreKind::GpuBusy, target))
            .flag(ScoreKind::GpuBusy)
    };
    // It is 0.490.
    assert_eq!(flag(Target::new(0.4, 0.1)), Flag::Good);
    assert_eq!(flag(Target::new(0.9, 0.4)), Flag::Look);
    assert_eq!(flag(Target::new(0.9, 0.5)), Flag::Bad);
    let thresholds = Thresholds::new().verdict_share(0.5).cause_share(0.4);
    let targets = Targets::new().thresholds(thresholds);
    assert_eq!(targets.get(ScoreKind::Copy), Target::new(0.4, 0.5));
    assert_eq!(targets.get(ScoreKind::Estimate).bad, 2.0);
    let card = profile.scorecard_with(&targets);
    let bottleneck = Some(Bottleneck::GpuCompute);
    assert_eq!((card.bottleneck, card.flag(ScoreKind::Copy)), (bottleneck, Flag::Good), "{card}");
    for kind in ScoreKind::ALL {
        assert_eq!(ScoreKind::named(kind.name()), Some(kind));
        let (target, more) = (Targets::new().get(kind), kind.more_is_better());
        assert_eq!(target.good > target.bad, more, "{kind}");
        assert_eq!(target.flag(kind, target.good), Flag::Good);
        assert_eq!(target.flag(kind, target.bad), Flag::Bad);
        assert_eq!(target.flag(kind, f64::midpoint(target.good, target.bad)), Flag::Look);
        assert_eq!(target.flag(kind, f64::NAN), Flag::Unknown);
        let infinite = if more { Flag::Good } else { Flag::Bad };
        assert_eq!(target.flag(kind, f64::INFINITY), infinite);
    }
}

#[test]
fn hostile_names_are_text() {
    const EVIL: &str = "<script>alert(1)</script>|`x` @you **b** \u{1b}[2J\"&'\n| bad |\u{202e}";
    let long = "x".repeat(10_000);
    let profile = record(|fake| {
        for _ in 0..30 {
            let _evil = nvtx::event(EVIL).flops(1_000_u64).dtype("f32").range();
            let _long = nvtx::range(&long);
            fake.launch(Work::kernel(c"<img src=x>|\n\x1b[31m").taking_ns(2_000));
            fake.launch(Work::synchronize());
        }
    });
    let card = profile.scorecard();
    check(&card);
    let text = card.to_string();
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    assert!(text.lines().all(|line| line.chars().count() < 400), "{text}");
    let markdown = card.to_markdown();
    assert!(!markdown.contains("<script") && !markdown.contains("@you"), "{markdown}");
    assert!(!markdown.contains("`x`") && !markdown.contains('\u{1b}'), "{markdown}");
    let rows = markdown.lines().filter(|line| line.starts_with('|')).count();
    assert_eq!(rows, ScoreKind::ALL.len() + 2, "{markdown}");
}

#[cfg(feature = "nsys")]
#[test]
fn captures_of_nsys_have_one_too() {
    for name in ["train", "family", "managed", "one", "whole-graphs"] {
        let card = captured(name).scorecard();
        check(&card);
        assert_ne!(card.flag(ScoreKind::GpuBusy), Flag::Unknown, "{name}\n{card}");
    }
    let train = captured("train").scorecard();
    assert_eq!(train.flag(ScoreKind::Host), Flag::Bad);
    // 3 ms of products are much of the steps, though little in a run of 6 s.
    assert_eq!(train.flag(ScoreKind::TensorCores), Flag::Bad);
    let loading = Targets::new().thresholds(Thresholds::new().loading("*"));
    let train = captured("train");
    assert!(
        train.scorecard_with(&loading).score(ScoreKind::Loading).unwrap().value
            > train.scorecard().score(ScoreKind::Loading).unwrap().value
    );
}
