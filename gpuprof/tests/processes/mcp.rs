//! `gpuprof mcp`: its tools, pages, limits, and what it refuses.
#![allow(clippy::panic)] // the helpers are tests too

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::Client;
use crate::support::{Folder, ran};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests");
const QUICKSTART: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
const GUIDE: &str = include_str!("../../../docs/guide/agents.md");

fn recording(name: &str) -> String {
    format!("{TESTS}/recordings/{name}.gpuprof")
}

fn client(folder: &Folder) -> Client {
    Client::introduced(&mut folder.gpuprof(["mcp"]))
}

/// The JSON of a command.
fn command(folder: &Folder, words: &[&str]) -> Value {
    let ran = ran(&mut folder.gpuprof(words));
    assert_eq!(ran.status, Some(0), "{}", ran.error);
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn tools_only_read_and_describe_their_arguments() {
    let folder = Folder::new();
    let mut client = client(&folder);
    let listed = client.request("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["open", "summary", "diagnose", "kernels", "lines", "compare", "sql"]);
    for tool in tools {
        assert_eq!(tool["annotations"]["readOnlyHint"], true);
        assert_eq!(tool["annotations"]["openWorldHint"], false);
        assert!(tool["description"].as_str().is_some_and(|about| about.len() > 80), "{tool}");
        let properties = tool["inputSchema"]["properties"].as_object().unwrap();
        let required = tool["inputSchema"]["required"].as_array().unwrap();
        assert!(required.iter().all(|name| properties.contains_key(name.as_str().unwrap())));
        for name in ["at", "offset", "limit"] {
            assert!(properties[name]["description"].is_string(), "{tool}");
        }
    }
    assert!(listed.to_string().len() < 10_000, "{}", listed.to_string().len());
    assert_eq!(client.end(), Some(0));
}

/// Each part of an answer that was not cut is that of the command's JSON.
#[test]
fn answers_have_the_json_of_the_commands() {
    let folder = Folder::new();
    let mut client = client(&folder);
    let (train, lines) = (recording("pytorch-h100/train"), recording("lines/planted-h200"));
    let optimizer =
        ["before", "after"].map(|state| recording(&format!("case-studies/optimizer-{state}")));
    let [before, after] = &optimizer;
    let cases = [
        ("diagnose", json!({ "file": train }), command(&folder, &["diagnose", "--json", &train])),
        ("kernels", json!({ "file": train }), command(&folder, &["kernels", "--json", &train])),
        ("lines", json!({ "file": lines }), command(&folder, &["lines", "--json", &lines])),
        (
            "compare",
            json!({ "before": before, "after": after }),
            command(&folder, &["diff", "--json", before, after]),
        ),
        (
            "summary",
            json!({ "file": train }),
            json!({
                "scorecard": command(&folder, &["scorecard", "--json", &train]),
                "top": command(&folder, &["top", "--limit", "0", "--json", &train])[0],
            }),
        ),
    ];
    for (tool, arguments, expected) in cases {
        let whole = client.tool(tool, arguments.clone()).unwrap();
        assert!(has_same_fields(&whole["result"], &expected), "{tool}: {whole}");
        assert!(!whole["cut"].as_array().unwrap().is_empty(), "{tool} has no page");
        for cut in whole["cut"].as_array().unwrap() {
            let at = cut["at"].as_str().unwrap().replace('*', "0");
            let list = expected.pointer(&at).unwrap_or_else(|| panic!("{tool} has no {at}"));
            let elements = list.as_array().map(Vec::len).or(list.as_object().map(|of| of.len()));
            if !cut["at"].as_str().unwrap().contains('*') {
                assert_eq!(elements, cut["total"].as_u64().map(|total| total as usize), "{cut}");
            }
            let Some(list) = list.as_array() else { continue };
            assert_eq!(all(&mut client, tool, &arguments, &at), *list, "{tool} {at}");
        }
    }
    assert_eq!(client.end(), Some(0));
}

/// True for a page of a document: it has all fields of each object.
fn has_same_fields(page: &Value, document: &Value) -> bool {
    match (page, document) {
        (Value::Object(page), Value::Object(document)) => {
            let is_table = document.keys().all(|name| name.parse::<u64>().is_ok());
            (is_table || page.len() == document.len())
                && page.iter().all(|(name, page)| has_same_fields(page, &document[name]))
        }
        (Value::Array(page), Value::Array(document)) => {
            page.len() <= document.len()
                && page.iter().zip(document).all(|(page, document)| has_same_fields(page, document))
        }
        (page, document) => page == document,
    }
}

/// All elements of a list, page by page; each is asked for alone where it is cut itself.
fn all(client: &mut Client, tool: &str, arguments: &Value, at: &str) -> Vec<Value> {
    let mut found = Vec::new();
    loop {
        let mut arguments = arguments.clone();
        arguments["at"] = at.into();
        arguments["offset"] = found.len().into();
        let page = client.tool(tool, arguments.clone()).unwrap();
        let elements = page["result"].as_array().unwrap();
        let cut = page["cut"].as_array().cloned().unwrap_or_default();
        let is_whole = !cut.iter().any(|cut| cut["at"] != at);
        let mut next = elements.clone();
        if !is_whole {
            arguments["offset"].take();
            for (number, element) in next.iter_mut().enumerate() {
                *element =
                    whole(client, tool, &arguments, &format!("{at}/{}", found.len() + number));
            }
        }
        let is_last = !cut.iter().any(|cut| cut["at"] == at);
        assert!(is_last || !next.is_empty(), "{page}");
        found.extend(next);
        if is_last {
            return found;
        }
    }
}

/// A value, with all lists in it.
fn whole(client: &mut Client, tool: &str, arguments: &Value, at: &str) -> Value {
    let mut arguments = arguments.clone();
    arguments["at"] = at.into();
    let page = client.tool(tool, arguments.clone()).unwrap();
    let mut value = page["result"].clone();
    for cut in page["cut"].as_array().cloned().unwrap_or_default() {
        let cut = cut["at"].as_str().unwrap().to_owned();
        let Some(inner) = cut.strip_prefix(at).filter(|inner| !inner.contains('*')) else {
            continue;
        };
        *value.pointer_mut(inner).unwrap() = all(client, tool, &arguments, &cut).into();
    }
    value
}

#[test]
fn queries_read_the_tables_of_the_profile_in_pages() {
    let folder = Folder::new();
    let mut client = client(&folder);
    let file = recording("pytorch-h100/train");
    let kernels =
        client.tool("open", json!({ "file": file })).unwrap()["result"]["kernels"].clone();
    let mut ask = |query: &str, offset: u64| {
        client.tool("sql", json!({ "file": file, "query": query, "offset": offset }))
    };
    let count = ask("SELECT count(*) AS n FROM CUPTI_ACTIVITY_KIND_KERNEL", 0).unwrap();
    assert_eq!(
        count["result"],
        json!({ "columns": ["n"], "rows": [[kernels]], "has_more": false })
    );
    let query = "SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY 1";
    let mut ids: Vec<i64> = Vec::new();
    loop {
        let page = ask(query, ids.len() as u64).unwrap();
        let rows = page["result"]["rows"].as_array().unwrap();
        ids.extend(rows.iter().map(|row| row[0].as_i64().unwrap()));
        let cut = &page["cut"][0];
        if page["result"]["has_more"] == false && cut.is_null() {
            break;
        }
        let offset = cut["offset"].as_u64().unwrap_or(0) + cut["shown"].as_u64().unwrap();
        assert_eq!((&cut["at"], offset), (&json!("/rows"), ids.len() as u64));
    }
    assert_eq!((ids.len() as u64, ids.is_sorted()), (kernels.as_u64().unwrap(), true));
    let tables = client.tool("sql", json!({ "file": file })).unwrap();
    assert!(tables.to_string().contains("CUPTI_ACTIVITY_KIND_MEMCPY"), "{tables}");
    for query in [
        "DELETE FROM StringIds",
        "CREATE TEMP TABLE t AS SELECT 1",
        "ATTACH '/tmp/other.sqlite' AS other",
        "PRAGMA journal_mode = WAL",
        "VACUUM INTO '/tmp/other.sqlite'",
        "SELECT 1; SELECT 2",
        "SELECT load_extension('x')",
        "SELECT nothing FROM StringIds",
        "",
    ] {
        let refused = client.tool("sql", json!({ "file": file, "query": query })).unwrap_err();
        assert!(!refused.is_empty() && refused.len() < 300, "{query}: {refused}");
    }
    let again =
        client.tool("sql", json!({ "file": file, "query": "SELECT count(*) FROM StringIds" }));
    assert_ne!(again.unwrap()["result"]["rows"][0][0], 0);
    assert_eq!(client.end(), Some(0));
}

#[test]
fn wrong_requests_have_errors_and_the_server_goes_on() {
    let folder = Folder::new();
    fs::write(folder.path("text"), "no recording").unwrap();
    nix::unistd::mkfifo(&folder.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut client = client(&folder);
    for (tool, arguments, expected) in [
        ("open", json!({ "file": "nothing.gpuprof" }), "there is no file nothing.gpuprof"),
        ("open", json!({ "file": "text" }), "not a known profile format"),
        ("open", json!({ "file": "runtime" }), "folder without recordings"),
        ("open", json!({ "file": "-" }), "there is no file -"),
        ("open", json!({ "file": "pipe" }), "neither a file nor a folder"),
        ("open", json!({ "file": "/dev/stdin" }), "neither a file nor a folder"),
        ("open", json!({}), "missing field `file`"),
        ("open", json!({ "file": QUICKSTART, "ranges": 1 }), "unknown field `ranges`"),
        ("open", json!({ "file": QUICKSTART, "at": "/kernel" }), "/kernels"),
        ("open", json!({ "file": QUICKSTART, "at": "kernels" }), "JSON pointer"),
        ("open", json!({ "file": QUICKSTART, "offset": 1 }), "offset needs a list"),
        ("diagnose", json!({ "file": QUICKSTART, "range": "bach" }), "did you mean batch"),
        ("diagnose", json!({ "file": QUICKSTART, "range": "a", "steps": "a" }), "not both"),
        ("kernels", json!({ "file": QUICKSTART, "within": "nothing" }), "has no range"),
        ("lines", json!({ "file": QUICKSTART }), "gpuprof run --lines"),
        ("lines", json!({ "file": QUICKSTART, "kernel": "(" }), "regex"),
        ("compare", json!({ "before": QUICKSTART }), "missing field `after`"),
    ] {
        let error = client.tool(tool, arguments.clone()).unwrap_err();
        assert!(error.contains(expected), "{tool} {arguments}: {error}");
    }
    let unknown = client.request("tools/call", json!({ "name": "diagnosis", "arguments": {} }));
    assert_eq!(unknown["error"]["message"], "there is no tool diagnosis; did you mean diagnose?");
    let unknown = client.request("nothing/of/this", json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    // The SDK does not answer what is no JSON.
    client.send("{ no JSON");
    client.send("");
    client.send(r#"{"jsonrpc":"2.0","id":7.5,"method":"tools/list"}"#);
    assert_eq!(client.receive()["error"]["code"], -32600);
    assert!(client.tool("open", json!({ "file": QUICKSTART })).is_ok());
    assert_eq!(client.end(), Some(0));
}

#[test]
fn server_ends_with_its_input_and_reads_changed_files_again() {
    let folder = Folder::new();
    assert_eq!(Client::start(&mut folder.gpuprof(["mcp"])).end(), Some(0));
    let file = folder.path("run.gpuprof");
    let mut client = client(&folder);
    for name in ["diseases/tiny-copies-ill", "diseases/tiny-copies-cured"] {
        fs::copy(recording(name), &file).unwrap();
        let opened = client.tool("open", json!({ "file": "run.gpuprof" })).unwrap();
        let expected = client.tool("open", json!({ "file": recording(name) })).unwrap();
        assert_eq!(opened["result"], expected["result"]);
    }
    let before: Vec<_> =
        fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    for tool in ["summary", "diagnose", "kernels", "sql"] {
        client.tool(tool, json!({ "file": "run.gpuprof" })).unwrap();
    }
    let after: Vec<_> =
        fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(before, after);
    assert_eq!(client.end(), Some(0));
}

#[test]
fn folders_and_captures_open_and_a_write_ahead_log_is_not_touched() {
    let folder = Folder::new();
    let (run, capture) = (folder.path("run"), folder.path("train.sqlite"));
    fs::create_dir(&run).unwrap();
    fs::copy(QUICKSTART, run.join("quickstart.gpuprof")).unwrap();
    fs::copy(format!("{TESTS}/captures/train-h200.sqlite"), &capture).unwrap();
    let mut client = client(&folder);
    let kernels = [("run", "folder of recordings"), ("train.sqlite", "capture of Nsight Systems")]
        .map(|(file, kind)| {
            let opened = client.tool("open", json!({ "file": file })).unwrap();
            assert_eq!(opened["result"]["kind"], kind);
            opened["result"]["kernels"].as_u64().unwrap()
        });
    assert!(kernels.iter().all(|kernels| *kernels > 100), "{kernels:?}");
    let query = "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL";
    let rows = client.tool("sql", json!({ "file": "train.sqlite", "query": query })).unwrap();
    assert_eq!(rows["result"]["rows"], json!([[kernels[1]]]));
    fs::write(folder.path("other.sqlite-wal"), "changes").unwrap();
    fs::copy(&capture, folder.path("other.sqlite")).unwrap();
    for file in ["other.sqlite", "."] {
        let refused = client.tool("open", json!({ "file": file })).unwrap_err();
        assert!(refused.contains("other.sqlite has changes in its write-ahead log"), "{refused}");
    }
    assert_eq!(fs::read(folder.path("other.sqlite-wal")).unwrap(), b"changes");
    assert_eq!(client.end(), Some(0));
}

/// The lines that the guide shows, from the folder with its recording.
#[test]
fn session_of_the_guide_has_these_answers() {
    let folder = Folder::new();
    fs::copy(QUICKSTART, folder.path("before.gpuprof")).unwrap();
    let block = GUIDE.split("```json\n").nth(2).unwrap().split("```").next().unwrap();
    let mut client = Client::start(&mut folder.gpuprof(["mcp"]));
    let mut answers = 0;
    for line in block.lines() {
        let sent: Value = serde_json::from_str(line).unwrap();
        client.send(line);
        if sent["id"].is_number() {
            let answer = client.receive();
            assert_eq!(answer["id"], sent["id"]);
            assert!(
                answer["result"].is_object() && answer["result"]["isError"] != true,
                "{answer}"
            );
            answers += 1;
        }
    }
    assert!(answers >= 2);
    assert_eq!(client.end(), Some(0));
    // The configuration names this program.
    let config: Value =
        serde_json::from_str(GUIDE.split("```json\n").nth(1).unwrap().split("```").next().unwrap())
            .unwrap();
    let server = &config["mcpServers"]["gpuprof"];
    assert_eq!(server["command"], "gpuprof");
    let arguments: Vec<_> =
        server["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(Client::start(&mut folder.gpuprof(arguments)).end(), Some(0));
    assert!(Path::new(QUICKSTART).exists());
}
