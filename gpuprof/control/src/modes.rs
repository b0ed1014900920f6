//! Recording modes that limit the volume: windows within a budget, or the last part of a run.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::start_stop::{range_name, seconds};

/// The maximum share of a program's time that recording may take. As text: `3%`, the default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget(f64);

impl Budget {
    /// The share, from 0 to 1.
    pub fn share(self) -> f64 {
        self.0 / 100.0
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self(3.0)
    }
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        percent.map(Self).ok_or_else(|| "give a share of time from 0% to 100%, as 3%".to_owned())
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// Records calls continuously, and GPU work in windows within a budget. As text, separated by
/// commas: the budget or `calls-only`, then `rate=SHARE`, `slow=SECONDS`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct AlwaysOn {
    /// The maximum share of the units' time that windows may cost; `None` records calls only.
    pub budget: Option<Budget>,
    /// The share of units that is drawn.
    pub rate: Option<f64>,
    /// Duration above which a unit triggers recording of the next unit.
    pub slow: Option<Duration>,
}

impl AlwaysOn {
    /// Creates the mode with windows within this budget, or with calls only for `None`.
    pub fn new(budget: Option<Budget>) -> Self {
        Self { budget, rate: None, slow: None }
    }

    /// True if a setting of windows beside the budget is set.
    pub fn has_settings_of_windows(&self) -> bool {
        self.rate.is_some() || self.slow.is_some()
    }
}

const ALWAYS_ON: &str = "give a share of time from 0% to 100%, as 3%, or calls-only; then with commas \
                         rate=SHARE, slow=SECONDS";

impl FromStr for AlwaysOn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',').map(str::trim);
        let budget = match words.next() {
            Some("calls-only") => None,
            first => Some(first.unwrap_or_default().parse()?),
        };
        let mut settings = Self::new(budget);
        for word in words {
            let (key, value) = word.split_once('=').ok_or(ALWAYS_ON)?;
            let number = || value.parse::<f64>().map_err(|_| format!("{value:?} is no number"));
            match key {
                "rate" => settings.rate = Some(share(number()?)?),
                "slow" => settings.slow = Some(seconds(value)?),
                _ => return Err(ALWAYS_ON.to_owned()),
            }
        }
        Ok(settings)
    }
}

fn share(share: f64) -> Result<f64, String> {
    let is_share = (0.0..=1.0).contains(&share);
    is_share.then_some(share).ok_or_else(|| format!("{share} is no share from 0 to 1"))
}

impl fmt::Display for AlwaysOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.budget {
            Some(budget) => budget.fmt(f)?,
            None => f.write_str("calls-only")?,
        }
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        for (key, value) in [("rate", self.rate), ("slow", seconds(self.slow))] {
            if let Some(value) = value {
                write!(f, ",{key}={value}")?;
            }
        }
        Ok(())
    }
}

/// The last part of a run, retained in memory. As text: `seconds=SECONDS`, `operations=COUNT`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum KeepLast {
    /// The work submitted within this time.
    Time(Duration),
    /// At least this many operations.
    Operations(u64),
}

impl FromStr for KeepLast {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("seconds", value)) => match seconds(value)? {
                Duration::ZERO => Err("the last 0 seconds are nothing: give more".to_owned()),
                time => Ok(Self::Time(time)),
            },
            Some(("operations", value)) => match value.parse() {
                Ok(count @ 1..) => Ok(Self::Operations(count)),
                _ => Err(format!("{value:?} is not a number of operations from 1 on")),
            },
            _ => Err("give seconds=SECONDS or operations=COUNT".to_owned()),
        }
    }
}

impl fmt::Display for KeepLast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => write!(f, "seconds={}", time.as_secs_f64()),
            Self::Operations(count) => write!(f, "operations={count}"),
        }
    }
}

/// Events that write the retained part to a file. As text, one per line: `error`,
/// `slow=SECONDS:NAME`.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Triggers {
    /// Names of thread ranges, and the duration above which such a range triggers.
    pub slow: Vec<(String, Duration)>,
    /// Triggers on a CUDA call that returned an error.
    pub on_error: bool,
}

impl Triggers {
    pub(crate) fn is_empty(&self) -> bool {
        !self.on_error && self.slow.is_empty()
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.slow.iter().try_for_each(|(name, _)| {
            range_name(name)?;
            match name.contains('\n') {
                true => Err("the name of the range contains a line feed".to_owned()),
                false => Ok(()),
            }
        })
    }
}

impl FromStr for Triggers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut triggers = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            match line.strip_prefix("slow=").and_then(|slow| slow.split_once(':')) {
                None if line == "error" => triggers.on_error = true,
                None => return Err("give error or slow=SECONDS:NAME, a line each".to_owned()),
                Some((time, name)) => triggers.slow.push((name.to_owned(), seconds(time)?)),
            }
        }
        triggers.check()?;
        Ok(triggers)
    }
}

impl fmt::Display for Triggers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slow = self.slow.iter();
        let slow = slow.map(|(name, time)| format!("slow={}:{name}", time.as_secs_f64()));
        let error = self.on_error.then(|| "error".to_owned());
        f.write_str(&error.into_iter().chain(slow).collect::<Vec<_>>().join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip() {
        let text = "0.5%,rate=0.1,slow=0.2";
        let settings: AlwaysOn = text.parse().unwrap();
        assert_eq!((settings.rate, settings.slow), (Some(0.1), Some(Duration::from_millis(200))));
        assert_eq!(
            (settings.to_string().as_str(), settings.has_settings_of_windows()),
            (text, true)
        );
        let plain: AlwaysOn = "calls-only".parse().unwrap();
        assert_eq!(plain.to_string(), "calls-only");
        for (text, of_windows) in [("calls-only", false), ("1%", false), ("1%,slow=1", true)] {
            let settings: AlwaysOn = text.parse().unwrap();
            assert_eq!(settings.has_settings_of_windows(), of_windows, "{text}");
        }
        assert_eq!((Budget::default().share(), Budget::default().to_string()), (0.03, "3%".into()));
        for text in ["seconds=0.5", "operations=100000"] {
            assert_eq!(text.parse::<KeepLast>().unwrap().to_string(), text);
        }
        let text = "error\nslow=0.2:request\nslow=1:a,b=c: d";
        let triggers: Triggers = text.parse().unwrap();
        let slow = [("request", 200), ("a,b=c: d", 1000)];
        let slow = slow.map(|(name, ms)| (name.to_owned(), Duration::from_millis(ms)));
        assert_eq!((triggers.slow.as_slice(), triggers.on_error), (&slow[..], true));
        assert_eq!((triggers.to_string().as_str(), triggers.is_empty()), (text, false));
        assert!(Triggers::default().is_empty());
    }

    #[test]
    fn invalid_texts_are_refused_with_the_reason() {
        let always_on = |text: &str| text.parse::<AlwaysOn>().unwrap_err();
        for (text, why) in [
            ("3", "as 3%"),
            ("3%,rate=2", "no share"),
            ("3%,rate", "rate=SHARE"),
            ("3%,often", "rate=SHARE"),
            ("3%,slow=soon", "not a number of seconds"),
            ("3%,watch=1", "rate=SHARE"),
        ] {
            assert!(always_on(text).contains(why), "{text}: {}", always_on(text));
        }
        for text in ["10", "seconds=0", "operations=0", "operations=1.5", "days=1"] {
            text.parse::<KeepLast>().unwrap_err();
        }
        for text in ["slow", "slow=1", "slow=x:a", "slow=1:", "panic"] {
            text.parse::<Triggers>().unwrap_err();
        }
    }
}
