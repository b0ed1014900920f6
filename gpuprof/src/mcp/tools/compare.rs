//! `compare`: what changed from one profile to another.

use std::path::PathBuf;

use profiler_analysis::compare::Compare as Comparing;
use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde_json::json;

use super::{Answer, PageArgs, Recordings, Tool, source};
use crate::diff::Document;
use crate::failure::Failure;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Compare {
    /// The profile before the change
    before: PathBuf,
    /// The profile after the change
    after: PathBuf,
    /// Kernels by range instead of by name
    #[serde(default)]
    by_range: bool,
    /// Compare wall times although an outermost range was entered more often on one side
    #[serde(default)]
    any_work: bool,
}

impl Tool for Compare {
    const NAME: &'static str = "compare";
    const ABOUT: &'static str = "What a change brought: `wall` has the speed, its ratio with bounds, and the causes in ranges \
                                 that explain it; `rows` counts and times of each range and kernel. The JSON of `gpuprof diff`.";

    fn answer(self, recordings: &mut Recordings, _: &mut PageArgs) -> Result<Answer, Failure> {
        let (before, after) = (recordings.profile(&self.before)?, recordings.profile(&self.after)?);
        let compare = Comparing::new().by_range(self.by_range).any_work(self.any_work);
        let comparison = compare.between(&*before, &*after);
        let files = [&self.before, &self.after].map(|file| vec![file.display().to_string()]);
        let document = Document { files, comparison: &comparison };
        let answer = Answer::new(&self.before, &before, &document)?;
        let source = json!([answer.source, source(&self.after, &after)]);
        let next = json!({ "file": self.after });
        let answer = Answer { source, ..answer };
        Ok(answer.see("diagnose", "what to fix next", next))
    }
}
