//! `gpuprof mcp`: serves recordings to agents by the Model Context Protocol, over standard input and
//! output.
//!
//! The server reads the files that a call names. It writes none, starts no program, and contacts no
//! other. An answer has the JSON of the command of the same name, shortened to a page.

mod pages;
mod recordings;
mod server;
mod tools;

use rmcp::service::{QuitReason, ServerInitializeError, ServiceExt as _};

use crate::failure::Failure;
use crate::output;
use server::Server;

/// Serves until the end of standard input.
pub(crate) fn mcp() -> Result<(), Failure> {
    // An error, if the program was started without standard output.
    drop(output::standard()?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .thread_stack_size(crate::STACK)
        .enable_time()
        .build()
        .map_err(|error| Failure::Error(format!("could not start the server: {error}")))?;
    let served = runtime.block_on(serve());
    // A call in progress at the end of the input has no reader.
    runtime.shutdown_background();
    served
}

async fn serve() -> Result<(), Failure> {
    let streams = (tokio::io::stdin(), tokio::io::stdout());
    let failed =
        |what: &dyn std::fmt::Display| Failure::Error(format!("the server failed: {what}"));
    let server = Server::default();
    let calls = server.calls();
    let running = match server.serve(streams).await {
        Ok(running) => running,
        // The input ended before a client introduced itself.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(failed(&error)),
    };
    match running.waiting().await {
        Ok(QuitReason::JoinError(error)) | Err(error) => Err(failed(&error)),
        // The SDK waits 5 s for answers.
        Ok(_) if calls.are_running() => Err(Failure::Error(
            "the input ended before a call was answered: keep it open until then".to_owned(),
        )),
        Ok(_) => Ok(()),
    }
}
