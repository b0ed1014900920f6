//! A summary of names that never repeat stays within its rows, and its totals stay exact.

use std::ffi::{CStr, CString};
use std::time::Duration;

use fake_cupti::Work;
use nvtx::range;
use profiler_core::{Profile, Profiler, Summary};

fn kernel(number: usize) -> &'static CStr {
    Box::leak(CString::new(format!("kernel_{number}")).unwrap().into_boxed_c_str())
}

/// A server whose every request has names of its own, as a session that keeps so many rows sums it up, and as a profile.
fn serve(rows: usize, requests: usize) -> (Summary, Profile) {
    let fake = fake_cupti::Fake::new();
    let builder = Profiler::builder().library(fake.library().unwrap());
    let profiler = builder.period(Duration::from_millis(1)).summary_rows(rows).build().unwrap();
    profiler.start().unwrap();
    let sums = profiler.summarize().unwrap();
    for request in 0..requests {
        let job = nvtx::process_range(&format!("job {request}"));
        nvtx::mark(&format!("mark {request}"));
        let _request = nvtx::event(&format!("request {request}")).within(&job).range();
        fake.launch(Work::host_to_device(100));
        let _forward = range("forward");
        fake.launch(Work::kernel(kernel(request)).taking_ns(1_000 + request as u64));
        fake.launch(Work::kernel(c"shared").taking_ns(500));
        let _deep = [range("a"), range("b"), range("c")];
        fake.launch(Work::memset(64));
    }
    (sums.stop().unwrap(), profiler.stop().unwrap())
}

/// What all rows together hold, and those of the name `(other)` alone.
fn check(rows: usize, requests: usize) -> usize {
    let (summary, profile) = serve(rows, requests);
    summary.health().assert_complete();
    profile.health().assert_complete();
    let count = requests as u64;
    assert_eq!(summary.totals(), profile.totals());
    let own = summary.paths().fold(summary.outside_ranges(), |mut sum, path| {
        sum += path.exclusive();
        sum
    });
    assert_eq!(own, profile.totals());
    let kernel_time = Duration::from_nanos((0..count).map(|at| 1_500 + at).sum());
    assert_eq!((own.kernels, own.kernel_time()), (2 * count, kernel_time));
    assert_eq!(summary.paths().map(|path| path.instances()).sum::<u64>(), 5 * count);
    assert_eq!(summary.marks().map(|(.., count)| count).sum::<u64>(), count);
    let (mut begun, mut in_jobs) = (0, 0);
    for job in summary.process_ranges() {
        (begun, in_jobs) = (begun + job.instances(), in_jobs + job.inclusive().kernels);
    }
    assert_eq!((begun, in_jobs), (count, 2 * count));
    let of_kernels: u64 = summary.kernels().iter().map(|(_, sum)| sum.kernels).sum();
    assert_eq!(of_kernels, 2 * count);

    let is_other = |name: &str| name == "(other)";
    let paths = summary.paths().filter(|path| is_other(path.name()));
    let other_ranges: u64 = paths.map(|path| path.instances()).sum();
    let jobs = summary.process_ranges().filter(|job| is_other(job.name()));
    let other_jobs: u64 = jobs.map(|job| job.instances()).sum();
    let marks = summary.marks().filter(|(_, name, _)| is_other(name));
    let other_marks: u64 = marks.map(|(.., count)| count).sum();
    let own = summary.kernels();
    let other_kernels: u64 =
        own.iter().filter(|(name, _)| is_other(name)).map(|(_, sum)| sum.kernels).sum();
    let others = other_ranges + other_jobs + other_marks + other_kernels;
    assert_eq!(summary.health().facts.summed_as_other, others);
    let kernel_rows: usize = summary.paths().map(|path| path.kernels().count()).sum();
    let jobs = summary.process_ranges().count() + summary.marks().count();
    summary.paths().count() + kernel_rows + jobs
}

#[test]
fn names_that_never_repeat_do_not_grow_a_summary() {
    let (few, many) = (check(40, 500), check(40, 2_000));
    assert_eq!(few, many, "rows of 500 requests and of 2,000");
    assert!(few <= 10 * 40, "{few} rows");
}

#[test]
fn new_ranges_beyond_the_rows_count_as_other() {
    let (summary, _) = serve(40, 500);
    let first = summary.find("request 0/forward").next().unwrap();
    assert_eq!((first.instances(), first.exclusive().kernels), (1, 2));
    let other = summary.roots().find(|root| root.name() == "(other)").unwrap();
    assert!(other.instances() > 450, "{}", other.instances());
    let forward = other.children().find(|path| path.name() == "forward").unwrap();
    assert_eq!(
        (forward.path(), forward.instances()),
        ("(other)/forward".into(), other.instances())
    );
    let deepest = summary.find("(other)/forward/a/b/c").next().unwrap();
    assert_eq!((deepest.instances(), deepest.exclusive().memsets), (492, 492));
    assert!(summary.to_string().contains("summed up as (other)"), "{summary}");
}

#[test]
fn summary_within_its_rows_has_no_other() {
    let (summary, profile) = serve(10_000, 200);
    assert_eq!(summary.health().facts.summed_as_other, 0);
    assert_eq!(summary.paths().count(), profile.walk().count());
    for (path, (_, node)) in summary.paths().zip(profile.walk()) {
        assert_eq!((path.path(), path.inclusive()), (node.path(), node.inclusive()));
    }
}

#[test]
fn limit_of_zero_rows_has_one_exact_row() {
    assert!(check(0, 300) <= 8);
}

#[test]
fn a_range_that_is_called_other_is_not_counted_as_such() {
    let fake = fake_cupti::Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let sums = profiler.summarize().unwrap();
    {
        let _other = range("(other)");
        fake.launch(Work::kernel(c"kernel"));
    }
    let summary = sums.stop().unwrap();
    assert_eq!((summary.health().facts.summed_as_other, summary.paths().count()), (0, 1));
}
