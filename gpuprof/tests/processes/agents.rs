//! An agent that finds what makes programs slow, from `gpuprof mcp` alone.
#![allow(clippy::panic)] // the helpers are tests too

use std::path::Path;

use serde_json::{Value, json};
use test_support::diseases::FIXES;
use test_support::relapses::PLANTED;

use crate::client::Client;
use crate::injected::{OWN, compile, gpuprof_run};
use crate::support::{Folder, ran};

const RECORDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/recordings");

/// The recordings of a program with what was planted, and without it.
fn recordings(name: &str) -> [String; 2] {
    let anti_pattern =
        ["ill", "cured"].map(|state| format!("{RECORDINGS}/diseases/{name}-{state}.gpuprof"));
    if Path::new(&anti_pattern[0]).exists() {
        return anti_pattern;
    }
    ["before", "after"].map(|state| format!("{RECORDINGS}/case-studies/{name}-{state}.gpuprof"))
}

/// Opens a slow program, asks for the first fix, and compares with the fixed twin.
fn ask(client: &mut Client, name: &str) -> Result<String, String> {
    let [before, after] = recordings(name);
    let (_, planted) = FIXES.into_iter().find(|(of, _)| *of == name).unwrap();
    let (_, causes) = PLANTED.into_iter().find(|(of, _)| *of == name).unwrap();
    let (planted, causes) = (json!(planted), json!(causes));
    let opened = client.tool("open", json!({ "file": before }))?;
    assert_eq!(
        (&opened["source"]["complete"], &opened["result"]["kind"]),
        (&json!(true), &json!("recording"))
    );
    let diagnosed = client.tool("diagnose", json!({ "file": before }))?;
    let first = &diagnosed["result"]["first"];
    for see in diagnosed["see"].as_array().into_iter().flatten() {
        let shown = client.tool(see["tool"].as_str().unwrap(), see["arguments"].clone())?;
        assert!(see["tool"] != "sql" || shown["result"]["rows"] != json!([]), "{see}");
    }
    let compared = client.tool("compare", json!({ "before": before, "after": after }))?;
    let wall = &compared["result"]["wall"];
    let cause = &wall["explanation"]["cause"];
    let line = format!(
        "| {name} | {} | {} | {:.1} | {:.1} | {} |",
        first["kind"].as_str().unwrap_or("none"),
        first["remedy"].as_str().unwrap_or("none"),
        first["estimate"].as_f64().unwrap_or(0.0),
        wall["ratio"].as_f64().map_or(0.0, |ratio| 1.0 / ratio),
        cause.as_str().unwrap_or("none"),
    );
    let summary = client.tool("summary", json!({ "file": before }))?;
    assert_eq!(summary["result"]["scorecard"]["first"]["kind"], first["kind"]);
    // Of all that makes GPU work less, one was planted.
    let is_in_remedy = name != "bf16" || line.contains("lower precision on tensor cores");
    let is_named = first["kind"] == planted && is_in_remedy;
    let is_explained = wall["speed"] == "faster" && causes.as_array().unwrap().contains(cause);
    if is_named && is_explained { Ok(line) } else { Err(line) }
}

#[test]
fn first_fix_of_the_answers_is_the_planted_one() {
    let folder = Folder::new();
    let mut client = Client::introduced(&mut folder.gpuprof(["mcp"]));
    let asked: Vec<_> = FIXES.iter().map(|(name, _)| ask(&mut client, name)).collect();
    assert_eq!(client.end(), Some(0));
    let right = asked.iter().filter(|asked| asked.is_ok()).count();
    let lines = asked.iter().map(|(Ok(line) | Err(line))| line.as_str());
    let lines = lines.collect::<Vec<_>>().join("\n");
    println!(
        "| program | first fix | remedy | estimated | faster | explained by |\n| --- | --- | --- | --- | --- | --- |\n{lines}"
    );
    assert!(asked.len() == 13 && right >= 12, "{right} of {}:\n{lines}", asked.len());
}

/// The loop of the guide: record, ask, change, compare.
#[test]
fn recorded_program_has_a_verdict_and_a_comparison() {
    let folder = Folder::new();
    compile(&folder, &format!("{OWN}/commands.c"));
    let record = |run: &str, launches: u32| {
        let input = folder.path("input");
        std::fs::write(&input, format!("launch {launches}\nexit 0\n")).unwrap();
        let mut command = gpuprof_run(&folder, &["-o", run], &["./commands"]);
        let ran = ran(command.stdin(std::fs::File::open(input).unwrap()));
        assert_eq!(ran.status, Some(0), "{}", ran.error);
    };
    record("before", 60);
    let mut client = Client::introduced(&mut folder.gpuprof(["mcp"]));
    let opened = client.tool("open", json!({ "file": "before" })).unwrap();
    assert_eq!(opened["result"]["kind"], "folder of recordings");
    assert_eq!(opened["result"]["processes"][0]["name"], "commands");
    assert_eq!(opened["result"]["kernels"], 60);
    let diagnosed = client.tool("diagnose", json!({ "file": "before" })).unwrap();
    let verdict = &diagnosed["result"]["verdict"];
    assert_eq!(verdict["operations"], 60);
    assert!(verdict["bottleneck"].is_string() || verdict["inconclusive"].is_object(), "{verdict}");
    record("after", 20);
    let arguments = json!({ "before": "before", "after": "after" });
    let compared = client.tool("compare", arguments).unwrap();
    let rows = compared["result"]["rows"].as_array().unwrap();
    let is_count = |row: &&Value| row["kernel"] == "step" && row["quantity"] == "kernels";
    let count = rows.iter().find(is_count).unwrap_or_else(|| panic!("{compared}"));
    assert_eq!((&count["before"], &count["after"]), (&json!(60), &json!(20)));
    assert_eq!(client.end(), Some(0));
}
