//! The command line of `gpuprof critical-path`.

use profiler_analysis::critical_path::WhatIf;

use super::{FileArgs, FormatArgs, NumbersArgs, TextFormat};

#[derive(Debug, clap::Args)]
pub(crate) struct CriticalPathArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TextFormat>,
    /// The ranges that are steps [default: of those with four instances or more, the one with the most host
    /// time]
    #[arg(long, value_name = "PATH")]
    pub(crate) steps: Option<String>,
    /// Only the path of these ranges: a name or a path, `*` for any text
    #[arg(long, value_name = "PATH")]
    pub(crate) range: Option<String>,
    /// Only what a change would bring, such as kernel:NAME=2 (twice as fast), gpu:RANGE=2, host:RANGE=2,
    /// ahead:RANGE=4 (on four threads), no-wait:RANGE, one-wait:RANGE, no-allocations:RANGE, no-events:RANGE,
    /// one-graph:RANGE, one-copy:RANGE, pinned, copies-ahead
    #[arg(long, value_name = "CHANGE", value_parser = change)]
    pub(crate) what_if: Vec<WhatIf>,
    #[command(flatten)]
    pub(crate) numbers: NumbersArgs,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

/// What a change is called, the last without a name.
const CHANGES: &str = "kernel:NAME=2, gpu:RANGE=2, host:RANGE=2, ahead:RANGE=4, no-wait:RANGE, one-wait:RANGE, \
                       no-allocations:RANGE, no-events:RANGE, one-graph:RANGE, one-copy:RANGE, pinned, copies-ahead";

/// A change from an argument.
fn change(text: &str) -> Result<WhatIf, String> {
    let unknown = || format!("there is no change {text}; there are {CHANGES}");
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    // A name or path may contain `=`.
    let with_number = || {
        let (name, number) =
            rest.rsplit_once('=').ok_or_else(|| format!("{kind}:{rest} lacks =NUMBER"))?;
        let number: f64 = match number {
            "inf" => f64::INFINITY,
            number => number.parse().map_err(|_| format!("{number} is no number"))?,
        };
        match number > 0.0 && !name.is_empty() {
            true => Ok((name.to_owned(), number)),
            false => Err(format!("{rest}: a name and a number above 0 are needed")),
        }
    };
    let path = || match rest {
        "" => Err(unknown()),
        path => Ok(path.to_owned()),
    };
    Ok(match kind {
        "kernel" => with_number().map(|(name, times)| WhatIf::Kernel { name, times })?,
        "gpu" => with_number().map(|(path, times)| WhatIf::RangeGpu { path, times })?,
        "host" => with_number().map(|(path, times)| WhatIf::Host { path, times })?,
        "ahead" => {
            let (path, threads) = with_number()?;
            // CAST: a thread count; values above 2^32 saturate.
            WhatIf::Ahead { path, threads: threads.max(1.0) as u32 }
        }
        "no-wait" => WhatIf::NoWait { path: path()? },
        "one-wait" => WhatIf::OneWait { path: path()? },
        "no-allocations" => WhatIf::NoAllocations { path: path()? },
        "no-events" => WhatIf::NoEvents { path: path()? },
        "one-graph" => WhatIf::OneGraph { path: path()? },
        "one-copy" => WhatIf::OneCopy { path: path()? },
        "pinned" if rest.is_empty() => WhatIf::Pinned,
        "copies-ahead" if rest.is_empty() => WhatIf::CopiesAhead,
        _ => return Err(unknown()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_from_arguments() {
        let name = |name: &str| name.to_owned();
        assert_eq!(change("kernel:a=b=2"), Ok(WhatIf::Kernel { name: name("a=b"), times: 2.0 }));
        let times = f64::INFINITY;
        assert_eq!(
            change("host:step/load=inf"),
            Ok(WhatIf::Host { path: name("step/load"), times })
        );
        assert_eq!(change("ahead:load=4"), Ok(WhatIf::Ahead { path: name("load"), threads: 4 }));
        assert_eq!(change("no-wait:step"), Ok(WhatIf::NoWait { path: name("step") }));
        assert_eq!(change("one-wait:step"), Ok(WhatIf::OneWait { path: name("step") }));
        assert_eq!(change("no-allocations:step"), Ok(WhatIf::NoAllocations { path: name("step") }));
        assert_eq!(change("copies-ahead"), Ok(WhatIf::CopiesAhead));
        for wrong in [
            "",
            "x",
            "pinned:x",
            "one-wait",
            "one-wait:",
            "kernel:a",
            "kernel:=2",
            "gpu:a=0",
            "gpu:a=x",
        ] {
            assert!(change(wrong).is_err(), "{wrong}");
        }
    }
}
