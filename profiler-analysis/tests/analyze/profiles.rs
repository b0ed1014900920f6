//! pprof, OTLP and Firefox profiles add up to the profile. `profile_referees.rs` has their readers.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::formats::{export, json};
use crate::quickstart;
use fake_cupti::Work;
use profiler_analysis::Format;
use profiler_analysis::formats::Export;
use profiler_analysis::formats::stacks::{FrameKind, StackRoot};
use profiler_analysis::prelude::*;
use profiler_core::Profile;
use serde_json::Value;
use test_support::everything::{everything, fake, record};

fn profiles() -> [Profile; 2] {
    [quickstart(), everything()]
}

#[test]
fn pprof_has_a_sample_for_each_stack_of_a_root() {
    use std::io::Read as _;
    for profile in profiles() {
        for root in StackRoot::ALL {
            let bytes = export(&profile, Export::new(Format::Pprof).stacks(root));
            let mut message = Vec::new();
            flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut message).unwrap();
            let fields = crate::perfetto::fields(&message);
            let count = |number| fields.iter().filter(|(field, _)| *field == number).count();
            let stacks = profile.stacks(root);
            assert_eq!((count(1), count(2)), (stacks.weights().len(), stacks.len()), "{root}");
            // As many functions as locations, and a string for each name.
            assert_eq!(count(4), count(5));
            assert!(count(6) > count(5), "{root}");
        }
    }
}

#[test]
fn otlp_values_add_up_to_each_weight() {
    use opentelemetry_proto::tonic::profiles::v1development::ProfilesData;
    use prost::Message as _;
    for profile in profiles() {
        for root in StackRoot::ALL {
            let bytes = export(&profile, Export::new(Format::Otlp).stacks(root));
            let data = ProfilesData::decode(&bytes[..]).unwrap();
            let tables = data.dictionary.unwrap();
            let [resource] = &data.resource_profiles[..] else { panic!("one resource") };
            let stacks = profile.stacks(root);
            let total = stacks.total();
            let profiles = &resource.scope_profiles[0].profiles;
            assert_eq!(profiles.len(), stacks.weights().len());
            for (read, weight) in profiles.iter().zip(stacks.weights().iter().copied()) {
                let kind = read.sample_type.unwrap();
                assert_eq!(tables.string_table[kind.type_strindex as usize], weight.key());
                let values = read.samples.iter().flat_map(|sample| &sample.values);
                assert_eq!(values.sum::<i64>(), total.get(weight) as i64, "{root} {weight}");
            }
        }
    }
}

fn weights_of_streams(read: &Value) -> Vec<u64> {
    let threads = read["threads"].as_array().unwrap().iter();
    let of_streams =
        threads.filter(|thread| thread["name"].as_str().unwrap().starts_with("stream "));
    let weights = of_streams.flat_map(|thread| thread["samples"]["weight"].as_array().unwrap());
    weights.map(|weight| weight.as_u64().unwrap()).collect()
}

#[test]
fn firefox_samples_of_streams_add_up_to_the_gpu_time() {
    for profile in profiles() {
        let bytes = export(&profile, Format::Firefox);
        let read: Value = serde_json::from_slice(&bytes).unwrap();
        let sum: u64 = weights_of_streams(&read).iter().sum();
        assert_eq!(u128::from(sum), profile.totals().gpu_time().as_nanos());
        let stacks = profile.stacks(StackRoot::Streams);
        let timed = stacks.iter().filter(|stack| !stack.weights.gpu_time.is_zero());
        let kernels = timed.flat_map(|stack| stack.frames);
        for kernel in kernels.filter(|frame| frame.kind == FrameKind::Kernel) {
            let text = serde_json::to_string(&kernel.name).unwrap();
            assert!(String::from_utf8_lossy(&bytes).contains(&text), "{text}");
        }
    }
}

/// A sample for each operation, however long: their unit follows the longest one.
#[test]
fn firefox_samples_are_as_many_as_operations() {
    const NS: [u64; 4] = [4_000_000_000_000_000_000, 3_000_000_000, 2_147_483_648, 2_147_483_647];
    for longest in NS {
        let fake = fake();
        let profile = record(&fake, || {
            fake.launch(Work::kernel(c"short").taking_ns(1_234));
            fake.launch(Work::kernel(c"long").taking_ns(longest));
        });
        let read = json(&profile, Format::Firefox);
        let weights = weights_of_streams(&read);
        // The first and the last are the edges of the recording.
        assert_eq!(weights.len(), 4, "{longest}");
        let unit_ns = (read["meta"]["interval"].as_f64().unwrap() * 1e6).round() as u64;
        let sum = weights.iter().sum::<u64>() * unit_ns;
        assert!((longest + 1_234 - sum) < unit_ns, "{longest}: {sum} of {unit_ns} each");
        assert_eq!(unit_ns == 1, i32::try_from(longest).is_ok());
    }
}

/// Instruction samples by range, kernel, file and line.
#[test]
fn firefox_samples_have_files_and_lines() {
    let bytes = include_bytes!("../../../tests/recordings/lines/planted-h200.gpuprof");
    let profile = Profile::from_bytes(bytes).unwrap();
    let read = json(&profile, Export::new(Format::Firefox).lines());
    let [thread] = &read["threads"].as_array().unwrap()[..] else { panic!("one thread") };
    assert!(thread["name"].as_str().unwrap().starts_with("thread "), "{}", thread["name"]);
    assert!(thread["processName"].as_str().unwrap().starts_with("process "));
    let cell = |table: &str, column: &str, row: &Value| {
        &thread[table][column][row.as_u64().unwrap() as usize]
    };
    let text = |row: &Value| {
        thread["stringArray"][row.as_u64().unwrap() as usize].as_str().unwrap().to_owned()
    };
    let mut found: BTreeMap<(String, String, u64), u64> = BTreeMap::new();
    let samples = &thread["samples"];
    let weights = samples["weight"].as_array().unwrap().iter();
    for (stack, weight) in samples["stack"].as_array().unwrap().iter().zip(weights) {
        let weight = weight.as_u64().unwrap();
        if stack.is_null() {
            assert_eq!(weight, 0, "an edge of the recording");
            continue;
        }
        let frame_of = |stack: &Value| cell("stackTable", "frame", stack);
        let function_of = |stack: &Value| cell("frameTable", "func", frame_of(stack));
        let name_of = |stack: &Value| text(cell("funcTable", "name", function_of(stack)));
        let kernel = cell("stackTable", "prefix", stack);
        let range = cell("stackTable", "prefix", kernel);
        assert_eq!(name_of(range), name_of(kernel), "each kernel has a range of its name");
        assert!(cell("stackTable", "prefix", range).is_null());
        let line = cell("frameTable", "line", frame_of(stack));
        assert_eq!(line, cell("funcTable", "lineNumber", function_of(stack)));
        assert!(cell("frameTable", "line", frame_of(kernel)).is_null());
        let file = text(cell("funcTable", "fileName", function_of(stack)));
        assert_eq!(name_of(stack), format!("{file}:{line}"));
        *found.entry((name_of(kernel), file, line.as_u64().unwrap())).or_default() += weight;
    }
    let recorded = profile.instruction_counts().unwrap().recorded;
    assert_eq!(found.values().sum::<u64>(), recorded);
    let all = profile.instructions();
    let lines = all.by_line();
    assert_eq!(found.len(), lines.len());
    for line in lines {
        let (file, number) = line.line.unwrap();
        let key = (line.kernel.to_string(), file.to_owned(), number.into());
        assert_eq!(found[&key] as f64, line.stalls.total(), "{key:?}");
    }
    let of_gather = found.iter().filter(|((kernel, ..), _)| kernel == "gather");
    let ((_, file, line), _) = of_gather.max_by_key(|(_, samples)| **samples).unwrap();
    assert_eq!((&**file, *line), ("planted.cu", 4));
}

#[test]
fn firefox_samples_of_idle_time_add_up_to_it() {
    for profile in profiles() {
        for root in StackRoot::ALL {
            let idle = Export::new(Format::Firefox).idle(Duration::ZERO).stacks(root);
            let read = json(&profile, idle);
            let threads = read["threads"].as_array().unwrap().iter();
            let weights = threads.flat_map(|of| of["samples"]["weight"].as_array().unwrap());
            let sum: u64 = weights.map(|weight| weight.as_u64().unwrap()).sum();
            let total = profile.idle_stacks(root, Duration::ZERO).total().idle_time;
            assert_eq!(u128::from(sum), total.as_nanos(), "{root}");
        }
    }
}
