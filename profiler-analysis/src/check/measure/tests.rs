//! Measurements of planted rounds.

use super::*;

/// A round: why it is throttled, and the SM clock, to which the times are proportional.
type Planted = (Option<&'static str>, u32);

/// Rounds of 40 samples in their order; the last one repeats.
struct PlantedRounds {
    rounds: Vec<Planted>,
    made: usize,
}

impl RoundSource for PlantedRounds {
    fn variants(&self) -> usize {
        1
    }

    fn run(&mut self, _: usize, _: Option<Instant>) -> Result<Round, Error> {
        let (throttled, mhz) = self.rounds[self.made.min(self.rounds.len() - 1)];
        self.made += 1;
        let gpu_ns = 99_000_000 / u64::from(mhz);
        let sample = Sample { gpu_ns, operations: 1, kernels: 1, ..Sample::default() };
        let wall = Duration::from_millis(20);
        let (samples, sm_mhz) = (vec![sample; 40], Some(mhz));
        Ok(Round { samples, throttled, sm_mhz, wall, has_waited: true, other_operations: 0 })
    }

    fn make_cold(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn clocks_unknown(&self) -> Option<String> {
        None
    }
}

fn measured(rounds: &[Planted]) -> (Measurement, usize) {
    let limit = Duration::from_secs(60);
    let measure = Measure::new().max_time(limit).max_warm_up(limit);
    let mut rounds = PlantedRounds { rounds: rounds.to_vec(), made: 0 };
    let run = measure.measured(&mut rounds).unwrap();
    (run.measurement(&measure, 0), rounds.made)
}

const USUAL: Planted = (None, 1980);
/// The first call and the warm-up.
const BEFORE: [Planted; 4] = [USUAL; 4];

#[test]
fn the_clock_is_stated() {
    let (measurement, made) = measured(&[USUAL]);
    let clocks = measurement.clocks();
    assert_eq!((clocks.sm_mhz, clocks.throttled_by.len()), (Some((1980, 1980)), 0));
    assert!(
        measurement.to_string().contains("clocks: SM 1980 MHz, not throttled"),
        "{measurement}"
    );
    assert_eq!(
        (measurement.stop(), measurement.notes().len()),
        (Stop::Precise, 0),
        "{measurement}"
    );
    assert_eq!((made, measurement.gpu_time().median()), (1 + 3 + 3, Duration::from_micros(50)));
}

#[test]
fn the_warm_up_lasts_until_the_clock_is_stable() {
    let rising = [1200, 1300, 1400, 1500, 1600, 1700, 1980].map(|mhz| (None, mhz));
    let (measurement, made) = measured(&rising);
    assert!(measurement.warm_up().is_steady, "{measurement}");
    // The first call, five rising, three that agree; three measured.
    assert_eq!((made, measurement.warm_up().samples), (1 + 5 + 3 + 3, 40 * 9));
    assert_eq!(measurement.clocks().sm_mhz, Some((1980, 1980)));
}

#[test]
fn throttled_rounds_are_discarded_by_name() {
    let throttled = [(Some("heat"), 1500), (Some("the power limit"), 1400), USUAL];
    let (measurement, _) = measured(&[&BEFORE[..], &throttled].concat());
    let [discarded] = measurement.discarded() else { panic!("{measurement}") };
    assert_eq!(discarded.samples, 80);
    assert_eq!(discarded.why, "throttled by heat, the power limit");
    assert!(measurement.clocks().throttled_by.is_empty());
    let us_50 = Duration::from_micros(50);
    assert_eq!(measurement.gpu_time().bounds(), Some((us_50, us_50)));
    let text = measurement.to_string();
    assert!(text.contains("discarded: 80 samples, throttled by heat, the power"), "{text}");
}

#[test]
fn if_all_rounds_are_throttled_the_times_are_kept_and_named() {
    let (measurement, _) = measured(&[(Some("heat"), 1500)]);
    assert!(measurement.discarded().is_empty(), "{measurement}");
    assert_eq!(measurement.clocks().throttled_by, ["heat"]);
    assert_eq!(measurement.gpu_time().median(), Duration::from_micros(66));
    assert!(measurement.notes()[0].contains("throttled by heat"), "{measurement}");
    assert!(measurement.to_string().contains("SM 1500 MHz, throttled by heat"), "{measurement}");
}

#[test]
fn sessions_hold_as_many_samples_as_fit() {
    let us = Duration::from_micros;
    assert_eq!(groups(us(100), 1), 200);
    assert_eq!((groups(us(1), 1), groups(us(0), 1)), (1000, 1000), "a bound for short work");
    assert_eq!((groups(us(1_000_000), 1), groups(us(1_000_000), 4)), (4, 2), "four of a variant");
    assert_eq!(groups(us(1), 4), 500);
}
