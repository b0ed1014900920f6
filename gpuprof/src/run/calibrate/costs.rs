//! The costs of the arms, from the times of all rounds.

use std::fmt;
use std::time::Duration;

use profiler_analysis::Speed;
use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::hodges_lehmann::Factor;
use profiler_base::statistics::Statistic;
use profiler_base::table::{Table, time};
use profiler_base::units::nanoseconds;
use serde::Serialize;

use super::super::program::Times;
use super::arm::Arm;

/// The confidence of the intervals.
const CONFIDENCE: f64 = 0.95;
/// With fewer rounds an interval has the extreme ratios as its bounds.
const FEWEST_ROUNDS: usize = 9;
/// In shorter runs, start and end of the profiler are a visible share.
const SHORT: Duration = Duration::from_secs(5);

/// The costs of all arms.
#[derive(Debug, Serialize)]
pub(super) struct Costs {
    rounds: usize,
    /// The number of rounds whose run with everything recorded left a recording.
    recorded_rounds: usize,
    arms: [ArmCosts; Arm::ALL.len()],
}

#[derive(Debug, Serialize)]
struct ArmCosts {
    arm: Arm,
    wall: Cost,
    cpu: Cost,
}

#[derive(Debug, Serialize)]
struct Cost {
    median_ns: u64,
    /// The time of each round.
    rounds_ns: Vec<u64>,
    /// `None` for the program alone.
    #[serde(flatten)]
    change: Option<Change>,
}

/// The ratio to the program alone: the median of the ratios within each round.
#[derive(Debug, Serialize)]
struct Change {
    ratio: f64,
    /// The 95 % interval; 0 with too few rounds.
    low: f64,
    /// Infinity with too few rounds, written as `null`.
    high: f64,
    speed: Speed,
}

impl Costs {
    /// The costs from the times of each arm by round.
    pub(super) fn new(times: &[Vec<Times>; Arm::ALL.len()], recorded_rounds: usize) -> Self {
        let cost = |arm: Arm, get: fn(&Times) -> Duration| {
            let all = |arm: Arm| -> Vec<u64> {
                times[arm as usize].iter().map(|times| nanoseconds(get(times))).collect()
            };
            let (alone, rounds_ns) = (all(Arm::Without), all(arm));
            Cost {
                median_ns: Statistic::Median.compute(rounds_ns.clone()),
                change: Change::new(&alone, &rounds_ns).filter(|_| arm != Arm::Without),
                rounds_ns,
            }
        };
        let arms = Arm::ALL.map(|arm| ArmCosts {
            arm,
            wall: cost(arm, |times| times.wall),
            cpu: cost(arm, |times| times.cpu),
        });
        Self { rounds: times[0].len(), recorded_rounds, arms }
    }
}

impl Change {
    fn new(alone: &[u64], own: &[u64]) -> Option<Self> {
        let pairs = alone.iter().zip(own);
        let ratios = pairs.map(|(&alone, &own)| own.max(1) as f64 / alone.max(1) as f64);
        let factor = Factor::of_ratios(ratios.collect(), CONFIDENCE)?;
        let speed = match () {
            () if factor.is_slower(0.0) => Speed::Slower,
            () if factor.is_faster(0.0) => Speed::Faster,
            () => Speed::Undecided,
        };
        let Factor { ratio, low, high } = factor;
        Some(Self { ratio, low, high, speed })
    }

    /// The ratio, the interval, and the result in words.
    fn cells(&self) -> [String; 3] {
        let Self { ratio, low, high, speed } = self;
        let (interval, result) = match speed {
            _ if high.is_infinite() => ("not known".to_owned(), "too few rounds"),
            Speed::Slower => (format!("{low:.3} to {high:.3}"), "takes more"),
            Speed::Faster => (format!("{low:.3} to {high:.3}"), "takes less"),
            _ => (format!("{low:.3} to {high:.3}"), "no difference seen"),
        };
        [format!("{ratio:.3}"), interval, result.to_owned()]
    }
}

/// A table of one kind of times.
fn table(costs: &Costs, head: &str, get: fn(&ArmCosts) -> &Cost) -> Table {
    let heads = ["run", head, "ratio", "95 % interval", "result"];
    let mut table = Table::new(heads, 1).with_text(4);
    for arm in &costs.arms {
        let cost = get(arm);
        let [ratio, interval, result] = cost.change.as_ref().map(Change::cells).unwrap_or_default();
        let median = time(Duration::from_nanos(cost.median_ns));
        table.add_row([arm.arm.to_string(), median, ratio, interval, result]);
    }
    table
}

impl DisplayOptions for Costs {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, recorded_rounds, arms } = self;
        writeln!(
            f,
            "{rounds} rounds; medians of whole processes, with start and end; ratios to the run without the profiler in the same round\n"
        )?;
        writeln!(f, "{}\n", table(self, "wall time", |arm| &arm.wall).render(layout))?;
        f.write_str(&table(self, "CPU time", |arm| &arm.cpu).render(layout))?;
        if recorded_rounds < rounds {
            write!(
                f,
                "\n\n`recording` left a recording in {recorded_rounds} of {rounds} rounds: if the program did not use CUDA, these numbers mean nothing about CUPTI; `gpuprof run` prints the reason"
            )?;
        }
        if *rounds < FEWEST_ROUNDS {
            f.write_str("\n\nso few rounds have wide intervals, and fewer than 6 have none: give more --rounds")?;
        }
        if arms[0].wall.median_ns < nanoseconds(SHORT) {
            f.write_str("\n\nthe program alone takes less than 5 s: start and end of the profiler are a large share of such a run")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use profiler_base::display::Styled;

    use super::*;

    /// Costs of rounds in which the program alone takes 6 s and more, and CPU time half of it. Each
    /// arm takes so many ms more.
    fn costs(rounds: u64, more: [u64; 5], recorded_rounds: usize) -> Costs {
        // Drift, and noise that differs between the arms.
        let wall = |round: u64, more: u64| 6000 + 100 * round + more + (more + round) * 7 % 3;
        let times = more.map(|more| {
            let times = |round| {
                let wall = Duration::from_millis(wall(round, more));
                Times { wall, cpu: wall / 2 }
            };
            (0..rounds).map(times).collect()
        });
        Costs::new(&times, recorded_rounds)
    }

    fn text(costs: &Costs) -> String {
        Styled::new(costs, Layout::default()).to_string()
    }

    #[test]
    fn table_has_ratios_of_pairs_and_plain_results() {
        let text = text(&costs(9, [0, 0, 120, 300, 600], 9));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[2..8],
            [
                "run         wall time  ratio   95 % interval  result",
                "without       6.401 s",
                "dormant       6.401 s  1.000  1.000 to 1.000  no difference seen",
                "calls only    6.521 s  1.019  1.018 to 1.020  takes more",
                "always on     6.701 s  1.047  1.045 to 1.049  takes more",
                "recording     7.001 s  1.094  1.090 to 1.098  takes more",
            ]
        );
        assert!(lines[9].starts_with("run         CPU time "), "{text}");
        assert!(lines[10].starts_with("without      3.2"), "{text}");
        assert_eq!(lines.len(), 15, "no notes: {text}");
    }

    #[test]
    fn drift_of_the_machine_is_no_cost() {
        // Later rounds take 13 % longer, and always on saves 30 ms in each.
        let costs = costs(9, [30, 30, 31, 0, 30], 9);
        assert!(text(&costs).contains("takes less"), "{}", text(&costs));
        let speeds = costs.arms.map(|arm| arm.wall.change.map(|change| change.speed));
        assert_eq!(speeds[..2], [None, Some(Speed::Undecided)]);
        assert_eq!(speeds[3], Some(Speed::Faster));
    }

    #[test]
    fn notes_name_what_limits_the_numbers() {
        let few = text(&costs(5, [0, 0, 120, 300, 600], 5));
        assert!(few.ends_with("\n\nso few rounds have wide intervals, and fewer than 6 have none: give more --rounds"), "{few}");
        assert!(few.contains("not known  too few rounds"), "{few}");
        let wide = text(&costs(6, [0; 5], 6));
        assert!(wide.contains("so few rounds") && wide.contains("no difference seen"), "{wide}");
        let unrecorded = text(&costs(9, [0; 5], 2));
        assert!(unrecorded.contains("left a recording in 2 of 9 rounds"), "{unrecorded}");
        assert!(unrecorded.contains("mean nothing about CUPTI"), "{unrecorded}");
        let short = Times { wall: Duration::from_millis(20), cpu: Duration::ZERO };
        let short = text(&Costs::new(&[(); 5].map(|()| vec![short; 9]), 9));
        assert!(short.contains("takes less than 5 s"), "{short}");
        assert!(short.contains("1.000  1.000 to 1.000  no difference seen"), "{short}");
    }

    #[test]
    fn json_has_each_round_and_null_without_a_bound() {
        let json = serde_json::to_value(costs(2, [0, 0, 120, 300, 600], 1)).unwrap();
        assert_eq!((&json["rounds"], &json["recorded_rounds"]), (&2.into(), &1.into()));
        let names: Vec<_> =
            json["arms"].as_array().unwrap().iter().map(|arm| &arm["arm"]).collect();
        assert_eq!(names, ["without", "dormant", "calls_only", "always_on", "recording"]);
        assert_eq!(
            json["arms"][0]["wall"],
            serde_json::json!({"median_ns": 6_050_500_000_u64, "rounds_ns": [6_000_000_000_u64, 6_101_000_000_u64]})
        );
        let wall = &json["arms"][4]["wall"];
        assert!(
            wall["ratio"].as_f64().is_some_and(|ratio| (1.09..1.11).contains(&ratio)),
            "{wall}"
        );
        assert_eq!((&wall["low"], &wall["high"]), (&0.0.into(), &serde_json::Value::Null));
        assert_eq!(wall["speed"], "undecided");
    }
}
