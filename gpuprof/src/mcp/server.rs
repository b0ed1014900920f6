//! The server: its tools, and calls of them.

use std::sync::{Arc, Mutex, PoisonError};

use profiler_base::text;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;

use super::recordings::Recordings;
use super::tools;
use crate::failure::Failure;
use crate::message::MAX_WIDTH;
use crate::suggest;

/// The use of the tools, for the agent.
const INSTRUCTIONS: &str = "\
Reads GPU profiles. The loop: 1. Record in the shell: `gpuprof run -o before -- PROGRAM` (add --lines for source \
lines). 2. `open` the file or folder, then `diagnose`: `first` is what to fix first, with its evidence. `summary`, \
`kernels`, `lines` and `sql` have details. 3. Change the program, and record again: `gpuprof run -o after -- PROGRAM`. \
4. `compare` both. An answer is at most 8 kB: `result` has the JSON of `gpuprof COMMAND --json`, `cut` the lists that \
were shortened. Call again with `at` (and `offset`) of an entry of `cut` for the rest. Times in _ns are nanoseconds, \
shares are 0 to 1. Paths are absolute, or relative to the folder that the server was started in.";

/// Serves tools. A call runs on a thread of its own, one at a time.
#[derive(Default)]
pub(super) struct Server {
    recordings: Arc<Mutex<Recordings>>,
}

/// The calls that the server has begun.
pub(super) struct Calls(Arc<Mutex<Recordings>>);

impl Calls {
    /// True if any is not answered yet, once the server has ended: only they share the recordings.
    pub(super) fn are_running(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Server {
    pub(super) fn calls(&self) -> Calls {
        Calls(self.recordings.clone())
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let about = Implementation::new("gpuprof", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(about)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::ALL.iter().map(tools::Entry::tool).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::find(name).map(tools::Entry::tool)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = &*request.name;
        let Some(tool) = tools::find(name) else {
            let meant = suggest::similar(name, tools::ALL.iter().map(|tool| tool.name));
            return Err(ErrorData::invalid_params(format!("there is no tool {name}{meant}"), None));
        };
        let recordings = self.recordings.clone();
        let arguments = request.arguments.unwrap_or_default();
        let answer = tokio::task::spawn_blocking(move || answer(tool, arguments, &recordings));
        let result = match answer.await {
            Ok(Ok((value, text))) => {
                let mut result = CallToolResult::structured(value);
                result.content = vec![ContentBlock::text(text)];
                result
            }
            Ok(Err(failure)) => error(failure.message()),
            Err(panic) => error(&format!("{name} failed in the profiler: {panic}")),
        };
        Ok(result.into())
    }
}

/// The answer of a tool, as a value and as text.
fn answer(
    tool: &tools::Entry,
    arguments: JsonObject,
    recordings: &Mutex<Recordings>,
) -> Result<(Value, String), Failure> {
    // A call that panicked leaves complete recordings.
    let mut recordings = recordings.lock().unwrap_or_else(PoisonError::into_inner);
    let value = (tool.call)(arguments, &mut recordings)?;
    let text = text::json(&value)?;
    Ok((value, text))
}

/// An error that the agent reads.
fn error(message: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text::shortened(message, MAX_WIDTH))])
}
