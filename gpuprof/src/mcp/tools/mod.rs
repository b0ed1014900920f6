//! The tools: their names, descriptions, arguments and answers.

mod compare;
mod diagnose;
mod kernels;
mod lines;
mod open;
mod sql;
mod summary;

use std::path::Path;
use std::sync::Arc;

use profiler_core::Profile;
use regex::Regex;
use rmcp::handler::server::tool::schema_for_type;
use rmcp::model::{JsonObject, Tool as Declared, ToolAnnotations};
use rmcp::schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::pages::{Page, PageArgs};
use super::recordings::Recordings;
use crate::failure::Failure;

/// All tools, in the order of their use.
pub(super) static ALL: [Entry; 7] = [
    entry::<open::Open>(),
    entry::<summary::Summary>(),
    entry::<diagnose::Diagnose>(),
    entry::<kernels::Kernels>(),
    entry::<lines::Lines>(),
    entry::<compare::Compare>(),
    entry::<sql::Sql>(),
];

/// The tool with this name.
pub(super) fn find(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|tool| tool.name == name)
}

/// A tool: the arguments of a call, and its answer.
trait Tool: DeserializeOwned + JsonSchema + 'static {
    const NAME: &'static str;
    const ABOUT: &'static str;

    /// The answer to a call. `page` is applied to it later.
    fn answer(self, recordings: &mut Recordings, page: &mut PageArgs) -> Result<Answer, Failure>;
}

/// A tool without its type.
pub(super) struct Entry {
    pub(super) name: &'static str,
    about: &'static str,
    schema: fn() -> Arc<JsonObject>,
    pub(super) call: fn(JsonObject, &mut Recordings) -> Result<Value, Failure>,
}

const fn entry<T: Tool>() -> Entry {
    Entry { name: T::NAME, about: T::ABOUT, schema: schema_for_type::<T>, call: call::<T> }
}

impl Entry {
    /// The declaration of the tool in the protocol. Its schema has the arguments of a page, too.
    pub(super) fn tool(&self) -> Declared {
        let mut schema = JsonObject::clone(&(self.schema)());
        for title in ["title", "description", "$schema"] {
            schema.remove(title);
        }
        let page = schema_for_type::<PageArgs>();
        let page = page.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.extend(page);
        }
        let hints = ToolAnnotations::new().read_only(true).idempotent(true).open_world(false);
        Declared::new(self.name, self.about, schema).with_annotations(hints)
    }
}

/// Calls a tool, and shortens its answer to a page.
fn call<T: Tool>(arguments: JsonObject, recordings: &mut Recordings) -> Result<Value, Failure> {
    let (page, own): (JsonObject, JsonObject) = arguments
        .into_iter()
        .partition(|(name, _)| ["at", "offset", "limit"].contains(&name.as_str()));
    let mut page: PageArgs = arguments_of::<T, _>(page)?;
    let tool: T = arguments_of::<T, _>(own)?;
    let answer = tool.answer(recordings, &mut page)?;
    let shown = Page::new(&answer.result, &page)?.with_offset(answer.list, answer.offset);
    let whole = Whole { source: answer.source, page: shown, see: answer.see };
    Ok(serde_json::to_value(&whole)?)
}

fn arguments_of<T: Tool, A: DeserializeOwned>(arguments: JsonObject) -> Result<A, Failure> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| Failure::Usage(format!("arguments of {}: {error}", T::NAME)))
}

/// An answer before it is shortened.
struct Answer {
    source: Value,
    result: Value,
    /// A list that begins with this element of a longer one.
    list: &'static str,
    offset: usize,
    see: Vec<See>,
}

impl Answer {
    /// An answer about one file.
    fn new(file: &Path, profile: &Profile, result: &impl Serialize) -> Result<Self, Failure> {
        let result = serde_json::to_value(result)?;
        Ok(Self { source: source(file, profile), result, list: "", offset: 0, see: Vec::new() })
    }

    fn see(mut self, tool: &'static str, why: &'static str, arguments: Value) -> Self {
        self.see.push(See { tool, why, arguments });
        self
    }
}

/// The file, and whether its recording is complete.
fn source(file: &Path, profile: &Profile) -> Value {
    let (file, health) = (file.to_string_lossy(), profile.health());
    match health.is_complete() {
        true => json!({ "file": file, "complete": true }),
        false => json!({ "file": file, "complete": false, "missing": health.to_string() }),
    }
}

/// An answer as the agent reads it.
#[derive(Serialize)]
struct Whole {
    source: Value,
    #[serde(flatten)]
    page: Page,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    see: Vec<See>,
}

/// A call that shows the evidence of an answer.
#[derive(Serialize)]
struct See {
    tool: &'static str,
    why: &'static str,
    arguments: Value,
}

/// A regular expression in arguments.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Pattern(Regex);

impl TryFrom<String> for Pattern {
    type Error = regex::Error;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Regex::new(&text).map(Self)
    }
}
