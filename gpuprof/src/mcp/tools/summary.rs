//! `summary`: the scorecard of a run, and its longest kernels, ranges and calls.

use std::path::PathBuf;

use profiler_analysis::prelude::*;
use profiler_analysis::scorecard::{Scorecard, Targets};
use rmcp::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Answer, PageArgs, Pattern, Recordings, Tool};
use crate::args::{TopSelection, TopSort};
use crate::failure::Failure;
use crate::top::Top;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Summary {
    /// The profile
    file: PathBuf,
    /// Only kernels, ranges and calls whose name matches this regular expression
    #[schemars(with = "Option<String>")]
    filter: Option<Pattern>,
}

/// The JSON of `gpuprof scorecard` and of `gpuprof top`.
#[derive(Serialize)]
struct Both {
    scorecard: Scorecard,
    top: Top,
}

impl Tool for Summary {
    const NAME: &'static str = "summary";
    const ABOUT: &'static str = "The run on one page: `scorecard` has its verdict, what to fix `first`, and a dozen values \
                                 with targets and flags; `top` the kernels, ranges and API calls with the most time. The \
                                 JSON of `gpuprof scorecard` and `gpuprof top`.";

    fn answer(self, recordings: &mut Recordings, _: &mut PageArgs) -> Result<Answer, Failure> {
        let profile = recordings.profile(&self.file)?;
        let filter = self.filter.map(|pattern| pattern.0);
        let selection =
            TopSelection { of: Vec::new(), sort: TopSort::Time, limit: 0, filter, by: None };
        let both = Both {
            scorecard: profile.scorecard_with(&Targets::new()),
            top: Top::new(&self.file, &profile, &selection),
        };
        let more = json!({ "file": self.file });
        let answer = Answer::new(&self.file, &profile, &both)?;
        Ok(answer.see("diagnose", "the evidence of the verdict, and all findings", more))
    }
}
