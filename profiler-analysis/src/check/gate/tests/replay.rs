//! Gates replayed on H200 measurements: their error rates and their detection of planted faults.

use std::collections::BTreeMap;
use std::path::PathBuf;

use profiler_base::hodges_lehmann::midmean;

use super::super::baseline::Key;
use super::super::run::{EVERYTHING, Kernels, Part, Run};
use super::super::{CountOutcome, Gate, GateVerdict, Outcome, Sample};

/// True if all cases are tried; otherwise a part of them.
fn is_thorough() -> bool {
    std::env::var_os("THOROUGH_TESTS").is_some()
}

/// The README beside the file describes its origin.
const SAMPLES: &str = include_str!("../../../../tests/gate-samples/h200.csv");
const PROCESSES: usize = 20;
/// Sessions per process of the unchanged step, and of each fault.
const PLAIN: usize = 24;
const PLANTED: usize = 8;

/// The sessions of each process and variant, in order.
struct Samples(BTreeMap<(usize, String), Vec<Run>>);

impl Samples {
    fn read() -> Self {
        let mut lines = SAMPLES.lines();
        let head: Vec<&str> = lines.next().unwrap().split(',').collect();
        let mut sessions: BTreeMap<(usize, String), Vec<Run>> = BTreeMap::new();
        for line in lines {
            let cells: Vec<&str> = line.split(',').collect();
            let of = (cells[0].parse().unwrap(), cells[2].to_owned());
            sessions.entry(of).or_default().push(run(&head[3..], &cells[3..]));
        }
        Self(sessions)
    }

    fn runs(&self, process: usize, variant: &str) -> &[Run] {
        &self.0[&(process, variant.to_owned())]
    }
}

/// The equivalent of `Run::from_profile` for a line of samples.
fn run(columns: &[&str], cells: &[&str]) -> Run {
    let mut parts: BTreeMap<String, Part> = BTreeMap::new();
    for (column, cell) in columns.iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
        let [path, name, grid, block] = column.split('|').collect::<Vec<_>>()[..] else {
            panic!("{column}");
        };
        let mut times: Vec<u64> = cell.split(' ').map(|ns| ns.parse().unwrap()).collect();
        let (count, sum) = (times.len() as u64, times.iter().sum::<u64>() as f64);
        let part = parts.entry(path.to_owned()).or_default();
        *part.counts.entry("launches").or_default() += count;
        *part.counts.entry("kernels").or_default() += count;
        let kernels = Kernels { count, ns: midmean(&mut times) };
        part.kernels.insert(format!("{name} <{grid}, {block}>"), kernels);
        for path in [path, "step", EVERYTHING] {
            parts.entry(path.to_owned()).or_default().kernel_ns += sum;
        }
    }
    Run { parts, ..Run::default() }
}

/// One baseline for each process, in a temporary folder.
struct Baselines(PathBuf);

impl Baselines {
    fn write(samples: &Samples, test: &str) -> Self {
        let name = format!("gate-replay-{}-{test}", std::process::id());
        let baselines = Self(std::env::temp_dir().join(name));
        for process in 0..PROCESSES {
            let plain = samples.runs(process, "plain");
            assert_eq!(plain.len(), PLAIN);
            let gate = baselines.gate(process).runs(PLAIN as u32, PLAIN as u32).update(true);
            assert!(judged(&gate, plain.iter()).is_written());
        }
        baselines
    }

    fn gate(&self, process: usize) -> Gate {
        Gate::new(self.0.join(format!("{process}.json"))).update(false)
    }
}

impl Drop for Baselines {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn key() -> Key {
    let (device, driver, build) = ("H200".to_owned(), "580".to_owned(), "release".to_owned());
    Key { device, driver, clocks: None, build }
}

fn judged<'r>(gate: &Gate, runs: impl IntoIterator<Item = &'r Run>) -> GateVerdict {
    let (mut runs, key) = (runs.into_iter(), key());
    let sample = || {
        // `decide` never takes more runs than its budget.
        let run = runs.next().unwrap().clone();
        Ok(Sample {
            key: key.clone(),
            recorded: String::new(),
            run,
            throttled: None,
            unwatched: None,
        })
    };
    gate.decide(&gate.plan, sample).unwrap()
}

/// The exact 95 % interval of a share (Clopper and Pearson 1934), of `hits` among `of`.
fn interval(hits: usize, of: usize) -> (f64, f64) {
    // The binomial distribution up to `hits`, from the ratio of each term to the one before.
    let at_most = |hits: usize, share: f64| {
        let mut term = of as f64 * (1.0 - share).ln();
        let mut sum = term.exp();
        for k in 0..hits {
            term += (((of - k) as f64) / ((k + 1) as f64)).ln() + (share / (1.0 - share)).ln();
            sum += term.exp();
        }
        sum
    };
    let solve = |is_below: &dyn Fn(f64) -> bool| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if is_below(middle) { low = middle } else { high = middle }
        }
        low
    };
    let low = if hits == 0 { 0.0 } else { solve(&|share| 1.0 - at_most(hits - 1, share) < 0.025) };
    let high = if hits == of { 1.0 } else { solve(&|share| at_most(hits, share) > 0.025) };
    (low, high)
}

#[test]
fn the_interval_matches_the_tables() {
    let rounded = |(low, high): (f64, f64)| ((1e4 * low).round() / 1e4, (1e4 * high).round() / 1e4);
    assert_eq!(rounded(interval(0, 1000)), (0.0, 0.0037));
    assert_eq!(rounded(interval(5, 100)), (0.0164, 0.1128));
    assert_eq!(rounded(interval(100, 100)), (0.9638, 1.0));
}

/// Every process is judged by the baseline of every other one, on each third of its sessions: 1,000
/// of 1,140 gates. They share sessions, so they are not independent; the text also has the number
/// of processes with an alarm.
#[test]
fn unchanged_program_fails_at_most_one_percent_of_gates() {
    let samples = Samples::read();
    let baselines = Baselines::write(&samples, "null");
    let mut pairs: Vec<(usize, usize, usize)> = (0..PROCESSES)
        .flat_map(|a| (0..PROCESSES).map(move |b| (a, b)))
        .filter(|(a, b)| a != b)
        .flat_map(|(a, b)| (0..3).map(move |third| (a, b, third)))
        .collect();
    fastrand::Rng::with_seed(1).shuffle(&mut pairs);
    pairs.truncate(if is_thorough() { 1000 } else { 200 });
    let of = pairs.len();
    let (mut alarms, mut slower, mut runs) = (0, 0, 0);
    let mut alarmed = [false; PROCESSES];
    for (before, after, third) in pairs {
        let gate = baselines.gate(before).runs(4, PLANTED as u32);
        let verdict = judged(&gate, &samples.runs(after, "plain")[third * 8..]);
        runs += verdict.runs();
        if !verdict.is_pass() {
            alarms += 1;
            alarmed[after] = true;
            slower += usize::from(!verdict.is_undecided());
        }
    }
    let (low, high) = interval(alarms, of);
    let text = format!(
        "{alarms} of {of} fail ({:.2} % to {:.2} %), {slower} of them as slower, in {} of {PROCESSES} processes; {:.2} runs each",
        100.0 * low,
        100.0 * high,
        alarmed.iter().filter(|alarmed| **alarmed).count(),
        runs as f64 / of as f64,
    );
    println!("{text}");
    assert!(alarms * 100 <= of, "{text}");
}

/// The same with three looks, on all sessions of a process.
#[test]
fn unchanged_program_never_fails_on_a_larger_budget() {
    let samples = Samples::read();
    let baselines = Baselines::write(&samples, "large");
    let mut alarms = 0;
    for (before, after) in (0..PROCESSES).flat_map(|a| (0..PROCESSES).map(move |b| (a, b))) {
        let gate = baselines.gate(before).runs(6, PLAIN as u32);
        let verdict = judged(&gate, samples.runs(after, "plain"));
        alarms += usize::from(before != after && !verdict.is_pass());
    }
    let of = PROCESSES * (PROCESSES - 1);
    println!("{alarms} of {of} fail at up to {PLAIN} runs");
    assert!(alarms * 100 <= of, "{alarms} of {of}");
}

#[test]
fn a_kernel_with_five_percent_more_work_is_seen_in_ninety_five_of_a_hundred() {
    let samples = Samples::read();
    let baselines = Baselines::write(&samples, "slow");
    for (variant, kernel) in [
        ("slow:latency", "latency <1, 32>"),
        ("slow:reduce", "reduce <528, 256>"),
        ("slow:arithmetic_long", "arithmetic <1056, 256>"),
        ("slow:arithmetic_short", "arithmetic <264, 256>"),
        ("slow:gather", "gather <528, 256>"),
        ("slow:stream_add", "stream_add <2112, 256>"),
    ]
    .into_iter()
    .take(if is_thorough() { 6 } else { 2 })
    {
        let (mut failed, mut named, mut others, mut runs) = (0, 0, 0, 0);
        for comparison in 0..100 {
            // Five other processes for each of the twenty.
            let (before, after) = (comparison % PROCESSES, comparison / PROCESSES * 3 + 1);
            let after = (before + after) % PROCESSES;
            let gate = baselines.gate(before).runs(4, PLANTED as u32);
            let verdict = judged(&gate, samples.runs(after, variant));
            runs += verdict.runs();
            failed += usize::from(!verdict.is_pass());
            let slower = verdict.times().iter().filter(|time| time.outcome == Outcome::Slower);
            let mut of_kernels: Vec<_> = slower.filter_map(|time| time.kernel.as_deref()).collect();
            of_kernels.sort_unstable();
            named += usize::from(of_kernels.contains(&kernel));
            of_kernels.retain(|name| *name != kernel);
            others += of_kernels.len();
        }
        let text = format!(
            "{variant}: {failed} of 100 fail, {named} as slower; {others} other kernels are called slower; {:.2} runs each",
            runs as f64 / 100.0
        );
        println!("{text}");
        assert!(failed >= 95 && others <= 1, "{text}");
    }
}

#[test]
fn a_kernel_more_is_always_seen() {
    let samples = Samples::read();
    let baselines = Baselines::write(&samples, "extra");
    for comparison in (0..PROCESSES * PROCESSES).step_by(if is_thorough() { 1 } else { 3 }) {
        let (before, after) = (comparison / PROCESSES, comparison % PROCESSES);
        let gate = baselines.gate(before).runs(4, PLANTED as u32);
        let verdict = judged(&gate, samples.runs(after, "extra"));
        let counts: Vec<String> = verdict.counts().iter().map(ToString::to_string).collect();
        assert!(verdict.counts().iter().all(|count| count.outcome == CountOutcome::Failed));
        assert_eq!(
            counts,
            ["new: latency <1, 32> in step/update: 0 -> 2", "launches in step/update: 2 -> 4"]
        );
        assert!(!verdict.is_pass() && !verdict.is_undecided() && verdict.runs() == 4);
    }
}

/// The limits of the rates above: gates with an effect below the difference between processes.
#[test]
fn an_effect_within_the_noise_is_undecided_and_not_called_slower() {
    let samples = Samples::read();
    let baselines = Baselines::write(&samples, "small");
    let (mut alarms, mut slower) = (0, 0);
    for before in 0..PROCESSES {
        for after in (0..PROCESSES).filter(|after| *after != before) {
            let mut gate = baselines.gate(before).runs(4, PLANTED as u32).minimum_effect(0.005);
            gate.plan.least_ns = 0.0;
            let verdict = judged(&gate, samples.runs(after, "plain"));
            alarms += usize::from(!verdict.is_pass());
            slower += usize::from(!verdict.is_pass() && !verdict.is_undecided());
        }
    }
    let of = PROCESSES * (PROCESSES - 1);
    println!("0.5 %: {alarms} of {of} fail, {slower} as slower");
    assert!(alarms > of / 2, "{alarms} of {of}: half a percent is within the noise of `reduce`");
    assert!(slower * 10 < of, "{slower} of {of} are called slower");
}

/// Throttled runs are repeated and do not affect times; a GPU that is always throttled is an error.
#[test]
fn runs_in_which_the_gpu_was_throttled_are_set_aside() {
    let samples = Samples::read();
    let baselines = Baselines::write(&samples, "throttled");
    let gate = baselines.gate(0).runs(4, 8);
    let plain = samples.runs(1, "plain");
    let mut slow = plain[0].clone();
    let parts = slow.parts.values_mut();
    parts.flat_map(|part| part.kernels.values_mut()).for_each(|kernels| kernels.ns *= 1.5);
    let sample = |run: &Run, throttled: Option<&'static str>, limits: &str| {
        let (run, clocks) = (run.clone(), Some(limits.to_owned()));
        let key = Key { clocks, ..key() };
        Ok(Sample { key, recorded: String::new(), run, throttled, unwatched: None })
    };
    let mut made = 0;
    let every_third = || {
        made += 1;
        match made % 3 {
            1 => sample(&slow, Some("heat"), "1980 MHz"),
            _ => sample(&plain[made], None, "1980 MHz"),
        }
    };
    let verdict = gate.decide(&gate.plan, every_third).unwrap();
    assert!(verdict.is_pass() && verdict.runs() == 4 && made == 6, "{made}: {verdict}");
    assert!(verdict.notes()[0].contains("2 runs were set aside"), "{verdict}");
    let always = || sample(&slow, Some("heat"), "1980 MHz");
    let error = gate.decide(&gate.plan, always).unwrap_err().to_string();
    assert!(error.contains("throttled in 9 of 9 runs, last by heat"), "{error}");
    // A change to unknown clocks is noted once.
    let mut made = 0;
    let unwatched_from_the_third = || {
        made += 1;
        let unwatched = (made > 2).then(|| "clocks are not watched any more: planted".to_owned());
        Ok(Sample { unwatched, ..sample(&plain[made], None, "1980 MHz")? })
    };
    let verdict = gate.decide(&gate.plan, unwatched_from_the_third).unwrap();
    assert_eq!(verdict.notes(), ["clocks are not watched any more: planted"], "{verdict}");
    // Limits that change between runs make it another machine.
    let mut made = 0;
    let relocked = || {
        made += 1;
        sample(&plain[made], None, if made < 3 { "1980 MHz" } else { "1200 MHz" })
    };
    let error = gate.decide(&gate.plan, relocked).unwrap_err().to_string();
    assert!(error.contains("not of one machine") && error.contains("1200 MHz"), "{error}");
}

/// The two errors bounded by the rate, at the limit plus or minus the difference between processes.
/// A kernel above passes, and a kernel below is called slower, at most at that rate. At the limit
/// itself both are more frequent (9 % and 14 % for a kernel whose runs vary less than its
/// processes): the two cases cannot be distinguished there.
#[test]
fn errors_are_as_rare_as_the_rate_beside_the_limit() {
    const BETWEEN_PROCESSES: f64 = 0.006;
    let samples = Samples::read();
    let baselines = Baselines::write(&samples, "limit");
    let tick = 100.0 / 3004.0;
    // All of them take half a minute without optimisation.
    let cases = if is_thorough() { 6 } else { 1 };
    for (kernel, limit) in [
        ("latency <1, 32>", 1.0 + tick),
        ("reduce <528, 256>", 1.03),
        ("arithmetic <1056, 256>", 1.03),
        ("arithmetic <264, 256>", 1.03),
        ("gather <528, 256>", 1.03),
        ("stream_add <2112, 256>", 1.03),
    ]
    .into_iter()
    .take(cases)
    {
        let (mut passed, mut slower) = (0, 0);
        for (before, after) in (0..PROCESSES).flat_map(|a| (0..PROCESSES).map(move |b| (a, b))) {
            for (beside, wrong) in
                [(BETWEEN_PROCESSES, &mut passed), (-BETWEEN_PROCESSES, &mut slower)]
            {
                let mut runs = samples.runs(after, "plain").to_vec();
                let parts = runs.iter_mut().flat_map(|run| run.parts.values_mut());
                let kernels = parts.flat_map(|part| &mut part.kernels);
                kernels
                    .filter(|(name, _)| *name == kernel)
                    .for_each(|(_, kernels)| kernels.ns *= limit + beside);
                let verdict = judged(&baselines.gate(before).runs(4, PLANTED as u32), &runs);
                let mut times = verdict.times().iter();
                let time = times.find(|time| time.kernel.as_deref() == Some(kernel)).unwrap();
                *wrong += usize::from(match beside > 0.0 {
                    true => time.outcome.is_pass(),
                    false => time.outcome == Outcome::Slower,
                });
            }
        }
        let of = PROCESSES * PROCESSES;
        let text = format!("{kernel}: of {of} each {passed} pass, {slower} are called slower");
        println!("{text}");
        assert!(passed * 100 <= of && slower * 100 <= of, "{text}");
    }
}
