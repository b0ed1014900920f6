//! The tables of a capture in memory, for SQL that only reads.

use std::borrow::Cow;

use profiler_base::setters;
use profiler_core::profile::Profile;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, Row};
use serde::Serialize;
use serde_json::Value;

use super::sqlite::write_tables;
use crate::error::{Error, Kind};

/// The limits of a [`Database`] and its queries.
#[derive(Debug, Clone)]
#[must_use]
pub struct DatabaseLimits {
    memory_bytes: u64,
    steps: u64,
    row_bytes: usize,
}

impl Default for DatabaseLimits {
    fn default() -> Self {
        Self::new()
    }
}

impl DatabaseLimits {
    /// 2 GiB of memory, 200 million steps of a query, and 1 MiB of rows.
    pub fn new() -> Self {
        Self { memory_bytes: 2 << 30, steps: 200_000_000, row_bytes: 1 << 20 }
    }

    setters! {
        /// The maximum memory of SQLite, in bytes, for tables and queries together. It applies to
        /// the whole process and cannot be raised later.
        memory_bytes(bytes: u64) memory_bytes = bytes;
        /// The maximum number of steps of a query. SQLite executes some 50 million a second.
        steps(steps: u64) steps = steps;
        /// The approximate maximum size of the rows of a [`QueryPage`], in bytes.
        row_bytes(bytes: usize) row_bytes = bytes;
    }
}

/// nsys's tables of a profile in memory, with the names and columns of
/// [`write_nsys`](crate::prelude::ProfileExt::write_nsys).
///
/// Queries read these tables and nothing else: no file, no other database. No query changes them.
#[derive(Debug)]
pub struct Database {
    connection: Connection,
    limits: DatabaseLimits,
}

/// Rows of a query.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueryPage {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The values of each row: numbers, texts and `null`. A blob is text with hexadecimal digits,
    /// and a number without a representation in JSON is `null`.
    pub rows: Vec<Vec<Value>>,
    /// True if more rows follow.
    pub has_more: bool,
}

/// The steps between two checks.
const STEPS_A_CHECK: u64 = 1000;
/// The maximum length of the text of a query, in bytes.
const MAX_QUERY_BYTES: i32 = 64 << 10;
/// The only pragmas of queries: names and columns of tables.
const PRAGMAS: [&str; 2] = ["table_info", "table_list"];

impl Database {
    /// Copies the tables of a profile into memory. Takes about 2 us for an operation with its call.
    ///
    /// # Errors
    /// The tables need more memory than [`DatabaseLimits::memory_bytes`].
    pub fn new(profile: &Profile, limits: DatabaseLimits) -> Result<Self, Error> {
        Self::filled(profile, limits.clone()).map_err(|error| {
            let what = match error.sqlite_error_code() {
                Some(ErrorCode::OutOfMemory | ErrorCode::DiskFull) => format!(
                    "the tables of the profile need more than {} bytes of memory: write them to a file, and query that",
                    limits.memory_bytes
                ),
                _ => format!("could not make the tables of the profile: {error}"),
            };
            Error::new(Kind::Query { what })
        })
    }

    fn filled(profile: &Profile, limits: DatabaseLimits) -> rusqlite::Result<Self> {
        let mut connection = Connection::open_in_memory()?;
        // SQLite ignores a limit above that of an earlier database.
        let limit = format!("PRAGMA hard_heap_limit = {}", limits.memory_bytes);
        connection.query_row(&limit, (), |_| Ok(()))?;
        write_tables(profile, &connection, |_, _| {})?;
        let row_bytes = i32::try_from(limits.row_bytes).unwrap_or(i32::MAX);
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, row_bytes)?;
        connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_QUERY_BYTES)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        connection.authorizer(Some(only_read))?;
        Ok(Self { connection, limits })
    }

    /// Runs a query and returns at most `limit` rows from number `offset` on.
    ///
    /// # Errors
    /// The text is no single query, names unknown tables or columns, would do anything but read the
    /// tables, or needs more steps or memory than the [limits](DatabaseLimits).
    pub fn query(&mut self, query: &str, offset: u64, limit: usize) -> Result<QueryPage, Error> {
        let mut left = self.limits.steps / STEPS_A_CHECK;
        let is_over = move || {
            left = left.saturating_sub(1);
            left == 0
        };
        let checks = i32::try_from(STEPS_A_CHECK).unwrap_or(i32::MAX);
        let page = self
            .connection
            .progress_handler(checks, Some(is_over))
            .and_then(|()| self.page(query, offset, limit));
        page.map_err(|error| Error::new(Kind::Query { what: self.explained(&error).into_owned() }))
    }

    fn page(&self, query: &str, offset: u64, limit: usize) -> rusqlite::Result<QueryPage> {
        let mut statement = self.connection.prepare(query)?;
        if statement.column_count() == 0 {
            return Err(rusqlite::Error::QueryReturnedNoRows);
        }
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut page = QueryPage { columns, rows: Vec::new(), has_more: false };
        let mut rows = statement.query(())?;
        let (mut number, mut bytes) = (0_u64, 0_usize);
        while let Some(row) = rows.next()? {
            number += 1;
            if number <= offset {
                continue;
            }
            if page.rows.len() >= limit || bytes >= self.limits.row_bytes {
                page.has_more = true;
                break;
            }
            let cells = cells(row, page.columns.len())?;
            bytes += cells.iter().map(size).sum::<usize>();
            page.rows.push(cells);
        }
        Ok(page)
    }

    fn explained(&self, error: &rusqlite::Error) -> Cow<'static, str> {
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => format!(
                "the query takes more than {} steps: select fewer rows, or join by rowid, id or correlationId",
                self.limits.steps
            )
            .into(),
            Some(ErrorCode::OutOfMemory) => format!(
                "the query needs more than the {} bytes of memory for tables and queries: select fewer rows or columns",
                self.limits.memory_bytes
            )
            .into(),
            Some(ErrorCode::AuthorizationForStatementDenied) => {
                "only queries that read the tables are allowed: SELECT, WITH or EXPLAIN".into()
            }
            Some(ErrorCode::TooBig) => {
                format!("a value or the query is too long: the limit is {} bytes", self.limits.row_bytes)
                    .into()
            }
            _ => match error {
                rusqlite::Error::MultipleStatement => "give one query at a time".into(),
                rusqlite::Error::QueryReturnedNoRows => "there is no query in the text".into(),
                error => format!("SQLite refuses the query: {error}").into(),
            },
        }
    }
}

/// Permits queries of these tables alone.
fn only_read(context: AuthContext<'_>) -> Authorization {
    let is_allowed = match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => {
            !function_name.eq_ignore_ascii_case("load_extension")
        }
        AuthAction::Pragma { pragma_name, .. } => {
            PRAGMAS.iter().any(|name| name.eq_ignore_ascii_case(pragma_name))
        }
        _ => false,
    };
    if is_allowed { Authorization::Allow } else { Authorization::Deny }
}

fn cells(row: &Row<'_>, columns: usize) -> rusqlite::Result<Vec<Value>> {
    (0..columns)
        .map(|column| {
            Ok(match row.get_ref(column)? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(number) => number.into(),
                ValueRef::Real(number) => number.into(),
                ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
                ValueRef::Blob(bytes) => {
                    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
                }
            })
        })
        .collect()
}

/// The approximate size of a value, in bytes.
fn size(value: &Value) -> usize {
    size_of::<Value>() + value.as_str().map_or(0, str::len)
}
