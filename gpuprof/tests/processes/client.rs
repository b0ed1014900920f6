//! A client of `gpuprof mcp`: lines of JSON-RPC over its standard input and output.
#![allow(clippy::panic)] // a test helper

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// The maximum size of an answer that is promised to agents, in bytes.
pub(crate) const MOST_BYTES: usize = 8 << 10;

pub(crate) struct Client {
    server: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    requests: u64,
}

impl Client {
    /// Starts a server, which knows no client yet.
    pub(crate) fn start(server: &mut Command) -> Self {
        let mut server = server
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = server.stdin.take();
        let output = BufReader::new(server.stdout.take().unwrap()).lines();
        Self { server, input, output, requests: 0 }
    }

    /// Starts a server and introduces itself.
    pub(crate) fn introduced(server: &mut Command) -> Self {
        let mut client = Self::start(server);
        let info = json!({ "name": "test", "version": "0" });
        let hello =
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
        let answer = client.request("initialize", hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "gpuprof", "{answer}");
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        client
    }

    pub(crate) fn send(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
        input.flush().unwrap();
    }

    /// The next line of the server, which has to be of the protocol.
    #[track_caller]
    pub(crate) fn receive(&mut self) -> Value {
        let line = self.output.next().unwrap().unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        message
    }

    /// Sends a request and waits for its answer.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        self.requests += 1;
        let request =
            json!({ "jsonrpc": "2.0", "id": self.requests, "method": method, "params": params });
        self.send(&request.to_string());
        let answer = self.receive();
        assert_eq!(answer["id"], self.requests, "{answer}");
        answer
    }

    /// The answer of a tool, or its error.
    #[track_caller]
    pub(crate) fn tool(&mut self, name: &str, arguments: Value) -> Result<Value, String> {
        let answer = self.request("tools/call", json!({ "name": name, "arguments": arguments }));
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        if result["isError"] == true {
            return Err(text.to_owned());
        }
        assert!(text.len() <= MOST_BYTES, "{name}: {} bytes", text.len());
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(value, result["structuredContent"]);
        Ok(value)
    }

    /// Ends the input. Returns the status of the server, which has no more to say.
    pub(crate) fn end(mut self) -> Option<i32> {
        drop(self.input.take());
        assert!(self.output.next().is_none());
        let output = self.server.wait_with_output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!error.contains("panicked"), "{error}");
        output.status.code()
    }
}
