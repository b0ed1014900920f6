//! Queries of a profile's tables in memory: what they find, and what ends them.
//!
//! A program of its own: SQLite's limit of memory is that of the process.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::path::Path;

use profiler_analysis::nsys::{Database, DatabaseLimits};
use profiler_core::Profile;
use serde_json::{Value, json};

fn profile() -> Profile {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    Profile::load(root.join("../examples/recordings/quickstart-h200.gpuprof")).unwrap()
}

/// The limit of memory of each database here.
const MEMORY: u64 = 64 << 20;

fn limits() -> DatabaseLimits {
    DatabaseLimits::new().memory_bytes(MEMORY).steps(3_000_000).row_bytes(1 << 20)
}

fn database() -> Database {
    Database::new(&profile(), limits()).unwrap()
}

fn rows(database: &mut Database, query: &str) -> Vec<Vec<Value>> {
    database.query(query, 0, usize::MAX).unwrap().rows
}

#[test]
fn tables_have_the_operations_of_the_profile() {
    let (profile, mut database) = (profile(), database());
    let totals = profile.totals();
    for (table, count) in
        [("KERNEL", totals.kernels), ("MEMCPY", totals.copies), ("MEMSET", totals.memsets)]
    {
        let query = format!("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_{table}");
        assert_eq!(rows(&mut database, &query), [[json!(count)]], "{table}");
    }
    let query = "SELECT s.value, count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.mangledName
                 GROUP BY 1 ORDER BY 1";
    let mut kernels: Vec<String> =
        profile.kernels().map(|kernel| kernel.name().to_owned()).collect();
    kernels.sort();
    let counted = kernels.chunk_by(|a, b| a == b).map(|of| vec![json!(of[0]), json!(of.len())]);
    assert_eq!(rows(&mut database, query), counted.collect::<Vec<_>>());
}

#[test]
fn pages_follow_one_another() {
    let mut database = database();
    let query =
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) SELECT i FROM n";
    let mut found = Vec::new();
    loop {
        let page = database.query(query, found.len() as u64, 3).unwrap();
        assert_eq!(page.columns, ["i"]);
        found.extend(page.rows.into_iter().flatten());
        if !page.has_more {
            break;
        }
    }
    assert_eq!(found, (1..=10).map(|i| json!(i)).collect::<Vec<_>>());
    assert!(database.query(query, u64::MAX, 3).unwrap().rows.is_empty());
    // Long rows end a page before the limit.
    let long = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) SELECT hex(zeroblob(300000)) FROM n";
    let page = database.query(long, 0, 10).unwrap();
    assert!(page.has_more && page.rows.len() == 2, "{}", page.rows.len());
}

#[test]
fn values_have_a_form_in_json() {
    let query = "SELECT 1, -9223372036854775808, 0.5, 'ä', NULL, x'00ff', 9e999, 1 = 1";
    let row = json!([1, i64::MIN, 0.5, "ä", null, "00ff", null, 1]);
    assert_eq!(json!(rows(&mut database(), query)[0]), row);
    let names = "SELECT name FROM pragma_table_info('StringIds')";
    assert_eq!(rows(&mut database(), names), [[json!("id")], [json!("value")]]);
    assert!(!rows(&mut database(), "EXPLAIN SELECT 1").is_empty());
}

#[test]
fn nothing_but_reading_is_allowed() {
    let folder = test_support::folder::Folder::new();
    let file = folder.file("other.sqlite");
    let mut database = database();
    let before = rows(&mut database, "SELECT count(*), total(rowid) FROM StringIds");
    let (attach, vacuum) = (
        format!("ATTACH '{}' AS other", file.display()),
        format!("VACUUM INTO '{}'", file.display()),
    );
    for query in [
        "INSERT INTO StringIds VALUES (-1, 'x')",
        "DELETE FROM StringIds",
        "DROP TABLE StringIds",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t AS SELECT 1",
        "CREATE VIRTUAL TABLE t USING fts5(a)",
        "WITH a AS (SELECT 1) UPDATE StringIds SET value = ''",
        "PRAGMA journal_mode = WAL",
        "PRAGMA writable_schema = ON",
        "PRAGMA temp_store_directory = '/tmp'",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('x')",
        "BEGIN",
        "SELECT 1; DELETE FROM StringIds",
        "ANALYZE",
        "REINDEX",
        &attach,
        &vacuum,
    ] {
        let error = database.query(query, 0, 10).unwrap_err().to_string();
        assert!(error.len() > 10, "{query}: {error}");
    }
    assert_eq!(rows(&mut database, "SELECT count(*), total(rowid) FROM StringIds"), before);
    assert!(!file.exists());
}

#[test]
fn errors_name_the_reason() {
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
    for (query, reason) in [
        (format!("{endless} SELECT count(*) FROM n"), "more than 3000000 steps"),
        (format!("{endless} SELECT randomblob(500000) AS b FROM n ORDER BY b"), "bytes of memory"),
        ("SELECT zeroblob(2000000)".to_owned(), "too long"),
        (format!("SELECT '{}'", "x".repeat(100_000)), "too long"),
        ("SELECT a FROM StringIds".to_owned(), "no such column: a"),
        ("SELECT 1 FROM NoTable".to_owned(), "no such table: NoTable"),
        ("SELEC 1".to_owned(), "syntax error"),
        ("SELECT 1; SELECT 2".to_owned(), "one query at a time"),
        ("DELETE FROM StringIds".to_owned(), "only queries that read"),
        ("".to_owned(), "there is no query"),
    ] {
        let mut database = database();
        let error = database.query(&query, 0, 10).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert_eq!(rows(&mut database, "SELECT 1"), [[json!(1)]]);
    }
}
