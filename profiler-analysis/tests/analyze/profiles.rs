//! pprof, OTLP and Firefox profiles add up to the profile. `profile_referees.rs` has their readers.

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
