//! Every output of a profile takes time in proportion to the profile, whatever its shape: deep, wide, of many names, threads,
//! streams or shared contexts.
//!
//! The time is the CPU time of the test's own thread, so a busy machine does not count.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::time::Duration;

use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_analysis::formats::stacks::{StackRoot, StackWeight};
use profiler_analysis::prelude::*;
use profiler_analysis::reports::{Rule, StatsReport};
use profiler_analysis::{Format, compare};
use profiler_core::{Context, Profile, Profiler, at_most, expect};
use test_support::effort;

/// Rows of the small profile if the test is thorough, and half of them otherwise; the large one has [`TIMES`] as many.
const ROWS: usize = 200;
const TIMES: usize = 8;
/// A step of n log n grows by less than 12, one of n * n by 64.
const MOST: f64 = 26.0;
/// Less than this for each row of the small profile is not looked at.
const LEAST_NS: u64 = 750_000;
/// The scheduler's clock steps by some milliseconds.
const STEP_NS: u64 = 5_000_000;

fn rows() -> usize {
    if effort::is_thorough() { ROWS } else { ROWS / 2 }
}

/// Nanoseconds that this thread ran.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

fn kernel(number: usize) -> &'static CStr {
    Box::leak(CString::new(format!("kernel_{number}")).unwrap().into_boxed_c_str())
}

fn record(program: impl FnOnce(&Fake)) -> Profile {
    let fake = Fake::builder().clock_offset(0).build();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.start().unwrap();
    program(&fake);
    profiler.stop().unwrap()
}

/// Ranges in ranges, with a kernel and a wait in each, closed from the inside out.
fn deep(rows: usize, name: impl Fn(usize) -> String) -> Profile {
    record(|fake| {
        let mut open = Vec::with_capacity(rows);
        for row in 0..rows {
            open.push(range(&name(row)));
            fake.launch(Work::kernel(c"kernel").taking_ns(1_000 + row as u64 % 7));
            if row % 4 == 0 {
                fake.launch(Work::synchronize());
                fake.launch(Work::host_to_device(1 << 20).taking_ns(3_000));
                nvtx::mark("mark");
            }
        }
        while open.pop().is_some() {
            fake.launch(Work::kernel(c"after").taking_ns(500));
        }
    })
}

type Shape = (&'static str, fn(usize) -> Profile);

const SHAPES: &[Shape] = &[
    ("deep, one name", |rows| deep(rows, |_| "again".to_owned())),
    ("deep, many names", |rows| deep(rows, |row| format!("range {row}"))),
    ("wide, many names", |rows| {
        record(|fake| {
            for row in 0..rows {
                let _range = range(&format!("range {row}"));
                fake.launch(Work::kernel(kernel(row)).with_shape(1 + row as u32, 32));
                fake.launch(Work::host_to_device(row as u64));
                nvtx::mark(&format!("mark {row}"));
            }
        })
    }),
    ("wide, in one range", |rows| {
        record(|fake| {
            let _all = range("all");
            for row in 0..rows {
                let _step = range("step");
                let _inner = range(&format!("inner {}", row % 10));
                fake.launch(Work::kernel(c"kernel").taking_ns(1_000));
                fake.launch(Work::synchronize());
            }
        })
    }),
    ("many threads", |rows| {
        record(|fake| {
            for row in 0..rows {
                std::thread::scope(|scope| {
                    let thread = std::thread::Builder::new().name(format!("thread {row}"));
                    let work = || {
                        let _range = range("range");
                        fake.launch(Work::kernel(c"kernel"));
                    };
                    thread.spawn_scoped(scope, work).unwrap();
                });
            }
        })
    }),
    ("many streams", |rows| {
        record(|fake| {
            let _range = range("range");
            for row in 0..rows {
                fake.launch(
                    Work::kernel(c"kernel").on_stream(row as u32 + 10).taking_ns(50_000_000),
                );
            }
        })
    }),
    ("contexts of many ranges", |rows| {
        record(|fake| {
            let mut contexts = Vec::new();
            for row in 0..rows {
                let _range = range(&format!("range {row}"));
                contexts.push(Context::capture());
                fake.launch(Work::kernel(c"kernel"));
            }
            let all = Context::join(contexts.iter().copied());
            for _ in 0..rows {
                let _attached = all.attach();
                fake.launch(Work::kernel(c"shared"));
            }
        })
    }),
    ("entries in entries", |rows| {
        record(|fake| {
            let whole = nvtx::process_range("whole");
            let mut open = Vec::new();
            for _ in 0..rows {
                open.push(nvtx::event("entry").within(&whole).range());
                fake.launch(Work::kernel(c"kernel"));
            }
            while open.pop().is_some() {}
        })
    }),
    ("process ranges", |rows| {
        record(|fake| {
            let mut open = Vec::new();
            for row in 0..rows {
                let whole = nvtx::process_range(&format!("request {row}"));
                {
                    let _range = nvtx::event("entry").within(&whole).range();
                    fake.launch(Work::kernel(c"kernel"));
                }
                open.push(whole);
                // nsys's reports count an operation for every range of the process that is open then.
                if open.len() > 20 {
                    drop(open.remove(0));
                }
            }
        })
    }),
    ("process ranges, all open", |rows| {
        record(|fake| {
            let _ranges: Vec<_> = (0..rows)
                .map(|row| {
                    let _range = range("step");
                    fake.launch(Work::kernel(c"kernel"));
                    nvtx::process_range(&format!("request {row}"))
                })
                .collect();
            for _ in 0..rows {
                let _range = range("after");
                fake.launch(Work::kernel(c"kernel"));
            }
        })
    }),
    ("handed from thread to thread", |rows| {
        record(|fake| {
            let mut context = Context::capture();
            for _ in 0..rows {
                context = std::thread::scope(|scope| {
                    let next = scope.spawn(|| {
                        let _attached = context.attach();
                        let _range = range("handed");
                        fake.launch(Work::kernel(c"kernel"));
                        Context::capture()
                    });
                    next.join().unwrap()
                });
            }
        })
    }),
    ("large graphs", |rows| {
        record(|fake| {
            let mut graph = fake.graph();
            {
                let _range = range("capture");
                for _ in 0..rows {
                    fake.capture_into(&mut graph, &Work::kernel(c"node"));
                }
            }
            let exec = fake.instantiate(&graph);
            let _range = range("launch");
            fake.launch_exec(&exec);
        })
    }),
];

type Output = (&'static str, fn(&Profile) -> String);

const OUTPUTS: &[Output] = &[
    ("load and drop", |profile| {
        drop(Profile::from_bytes(&profile.recording().unwrap().to_bytes()).unwrap());
        String::new()
    }),
    ("report", |profile| profile.to_string()),
    ("report with a diagnosis", |profile| profile.report_with_findings().to_string()),
    ("diagnose", |profile| profile.diagnose().to_string()),
    ("scorecard", |profile| profile.scorecard().to_string()),
    ("counts", |profile| profile.counts()),
    ("JSON lines", |profile| profile.json_lines()),
    ("page", |profile| profile.to_html()),
    ("Perfetto", |profile| export(profile, Format::Perfetto)),
    ("Kineto", |profile| export(profile, Format::Kineto)),
    ("Chrome", |profile| export(profile, Format::Chrome)),
    ("folded", |profile| export(profile, Format::Folded)),
    #[cfg(feature = "pprof")]
    ("pprof", |profile| export(profile, Format::Pprof)),
    #[cfg(feature = "otlp")]
    ("OTLP", |profile| export(profile, Format::Otlp)),
    #[cfg(feature = "firefox")]
    ("Firefox", |profile| export(profile, Format::Firefox)),
    ("stacks by stream", |profile| {
        profile.stacks(StackRoot::Streams).folded(StackWeight::Bytes).count().to_string()
    }),
    ("compare", |profile| {
        let compared = compare(profile, profile);
        compared.to_string() + &compared.to_html() + &compared.to_csv() + &compared.to_markdown()
    }),
    ("shapes", |profile| profile.launch_shapes().to_string()),
    ("tensor cores", |profile| profile.tensor_cores().to_string()),
    ("gaps", |profile| profile.query().gaps(Duration::ZERO).to_string()),
    ("gaps by cause", |profile| profile.query().gaps(Duration::ZERO).by_cause().to_string()),
    ("launches", |profile| profile.query().launches().by_range().len().to_string()),
    ("query in a range", |profile| {
        let mut text = String::new();
        for path in ["range", "again", "a*", "range 1*/range 5", "*"] {
            let query = profile.query().in_range(path);
            let _ = write!(text, "{} {:?}", query.count(), query.busy_time());
            let _ = write!(text, "{:?}", profile.range(path));
        }
        text
    }),
    ("query by window", |profile| {
        let query = profile.query().in_range("*a*").by_window();
        query.count().to_string()
    }),
    ("groups", |profile| {
        let query = profile.query();
        format!(
            "{}{}{}{}{}{}",
            query.by_kernel(),
            query.by_range(),
            query.by_stream(),
            query.by_thread(),
            query.by_transfer(),
            profile.kernel_classes()
        )
    }),
    ("overlap", |profile| format!("{:?}", profile.query().overlap())),
    ("waits", |profile| {
        let waits = profile.waits();
        format!("{}{}", waits.by_range(), waits.in_range("*1*").count())
    }),
    ("memory", |profile| format!("{:?}", !profile.memory().is_empty())),
    ("steps", |profile| {
        let steps = ["*", "step", "again"].map(|path| profile.steps(path));
        steps.iter().map(ToString::to_string).collect()
    }),
    ("process ranges", |profile| {
        profile.process_ranges().map(|range| range.inclusive().kernels.to_string()).collect()
    }),
    ("expectations", |profile| {
        let all = expect(profile).range("*").kernels(at_most(0)).busy_time(at_most(Duration::ZERO));
        format!("{:?}", all.check())
    }),
    ("tracks by range", |profile| profile.range_track_sums().to_string()),
];

fn export(profile: &Profile, format: Format) -> String {
    let mut bytes = Vec::new();
    profile.export(format, &mut bytes).unwrap();
    bytes.len().to_string()
}

fn ns_of(output: impl Fn() -> String) -> u64 {
    let start = cpu_ns();
    let text = output();
    assert!(text.len() < 1 << 30);
    cpu_ns() - start
}

/// Reports that are known to grow with the square of these: a kernel is reported for each range of the process around it.
const SQUARE: &[(&str, &str)] = &[("process ranges, all open", "nvtx_kern_sum")];

/// Runs an output of the small and of the large profile.
fn check(shape: &str, name: &str, profiles: &[Profile; 2], output: &dyn Fn(&Profile) -> String) {
    if SQUARE.contains(&(shape, name)) {
        return;
    }
    let [small, large] = profiles.each_ref().map(|profile| ns_of(|| output(profile)));
    if !is_too_much(small, large) {
        return;
    }
    // Once may be chance: on a shared machine the clock counts what others took. Now as much work on both sides, and the
    // least of several times.
    let least = |runs: usize, profile: &Profile| {
        let of_one = |_| (0..runs).map(|_| ns_of(|| output(profile))).sum::<u64>() / runs as u64;
        (0..5).map(of_one).min().unwrap()
    };
    let [small, large] = [least(TIMES, &profiles[0]), least(1, &profiles[1])];
    assert!(
        !is_too_much(small, large),
        "{shape}: {name} took {:.1} ms, of {TIMES} times the rows {:.1} ms, {:.1} times as long",
        small as f64 / 1e6,
        large as f64 / 1e6,
        large as f64 / small as f64
    );
}

fn is_too_much(small: u64, large: u64) -> bool {
    large >= LEAST_NS * rows() as u64 && large as f64 / small.max(STEP_NS) as f64 >= MOST
}

fn check_all((shape, make): &Shape) {
    let profiles = [make(rows()), make(TIMES * rows())];
    for profile in &profiles {
        profile.health().assert_complete();
    }
    for (name, output) in OUTPUTS {
        check(shape, name, &profiles, output);
    }
    for &report in StatsReport::ALL {
        let output = |profile: &Profile| profile.stats(report).to_string();
        check(shape, &report.to_string(), &profiles, &output);
    }
    for &rule in Rule::ALL {
        let output = |profile: &Profile| profile.rules().within("*").get(rule).to_string();
        check(shape, &rule.to_string(), &profiles, &output);
    }
    #[cfg(feature = "nsys")]
    {
        let place = shape.replace(|c: char| !c.is_alphabetic(), "-");
        let folder = std::env::temp_dir().join(format!("growth-{}-{place}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("capture.sqlite");
        check(shape, "nsys, written and read", &profiles, &|profile| {
            profile.write_nsys(&file, |_, _| ()).unwrap();
            profiler_analysis::nsys::read(&file).unwrap().health().to_string()
        });
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn every_output_takes_time_in_proportion_to_the_profile() {
    SHAPES.iter().for_each(check_all);
}
