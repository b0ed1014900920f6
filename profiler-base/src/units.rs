//! Times and sizes for people.

use std::time::Duration;

pub use super::text::shortened;

/// The maximum width of a name of a kernel or range in a table without a width.
pub const NAME_WIDTH: usize = 60;
/// The maximum width of a path of a range in a message.
pub const PATH_WIDTH: usize = 160;
/// The maximum width of a message: names from files may have any length.
pub const MESSAGE_WIDTH: usize = 2000;

/// A time in nanoseconds; saturates at `u64::MAX`.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A time in nanoseconds, rounded to whole ones; 0 for a negative one.
pub fn duration(ns: f64) -> Duration {
    // CAST: saturates.
    Duration::from_nanos(ns.round() as u64)
}

/// A time with at least three significant digits: 950 ns, 1.23 us, 45.6 ms.
pub fn time(duration: Duration) -> String {
    let ns = duration.as_nanos() as f64;
    scaled(ns, &[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")])
}

/// A size with four significant digits in a fitting unit.
pub fn bytes(count: u64) -> String {
    scaled(
        count as f64,
        &[(1.0, "B"), (1024.0, "KiB"), (1024.0 * 1024.0, "MiB"), (1024.0 * 1024.0 * 1024.0, "GiB")],
    )
}

/// A value with at least three significant digits and SI prefix: 466.3 GFLOP, 4.81 TB.
pub fn si(value: f64, unit: &str) -> String {
    const PREFIXES: [(f64, &str); 7] =
        [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"), (1e18, "E")];
    let (size, prefix) =
        PREFIXES.iter().rev().find(|(size, _)| value >= *size).unwrap_or(&PREFIXES[0]);
    format!("{} {prefix}{unit}", number(value / size))
}

/// [`si`] per second.
pub fn per_second(value: f64, unit: &str) -> String {
    format!("{}/s", si(value, unit))
}

/// A number with at least three significant digits, without decimals if whole.
pub fn number(value: f64) -> String {
    let digits = match value {
        _ if value.fract() == 0.0 => 0,
        1000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        0.1.. => 3,
        0.0.. => return format!("{value:.2e}"),
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// A share of 0 to 1 as a percentage: 28.9 %.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A time as a percentage of another; 0.0 % if that is 0.
pub fn percent_of_time(part: Duration, whole: Duration) -> String {
    let whole = whole.as_secs_f64();
    percent(if whole == 0.0 { 0.0 } else { part.as_secs_f64() / whole })
}

/// The change from a factor, as a percentage with this number of decimals: +2.50 %.
pub fn change(factor: f64, decimals: usize) -> String {
    format!("{:+.decimals$} %", 100.0 * (factor - 1.0))
}

/// A shape of blocks or threads without trailing dimensions of 1.
pub fn shape(size: [u32; 3]) -> String {
    match size {
        [x, 1, 1] => x.to_string(),
        [x, y, 1] => format!("{x}x{y}"),
        [x, y, z] => format!("{x}x{y}x{z}"),
    }
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let (size, unit) = units.iter().rev().find(|(size, _)| value >= *size).unwrap_or(&units[0]);
    let scaled = value / size;
    let digits = match scaled {
        _ if *size == 1.0 => 0,
        100.0.. => 1,
        10.0.. => 2,
        _ => 3,
    };
    format!("{scaled:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_read_in_the_unit_that_suits() {
        let times = [0, 950, 1_234, 45_678, 123_456, 1_500_000, 12_345_678_901]
            .map(|ns| time(Duration::from_nanos(ns)));
        assert_eq!(
            times,
            ["0 ns", "950 ns", "1.234 us", "45.68 us", "123.5 us", "1.500 ms", "12.35 s"]
        );
        assert_eq!(
            [0, 1023, 1024, 5 << 20].map(bytes),
            ["0 B", "1023 B", "1.000 KiB", "5.000 MiB"]
        );
    }

    #[test]
    fn amounts_have_a_prefix() {
        let amounts = [0.0, 2.0, 0.25, 0.0021, 33_554_432.0, 466.3e9, 989.4e12, 2e22];
        assert_eq!(
            amounts.map(|amount| si(amount, "B")),
            ["0 B", "2 B", "0.250 B", "2.10e-3 B", "33.55 MB", "466.3 GB", "989.4 TB", "20000 EB"]
        );
        assert_eq!(per_second(1e12, "FLOP"), "1 TFLOP/s");
    }
}
