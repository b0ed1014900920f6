//! `sql`: queries of nsys's tables.

use std::path::PathBuf;

use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;

use super::{Answer, PageArgs, Recordings, Tool};
use crate::failure::Failure;

/// The maximum number of rows of a query in memory, of which a page shows those that fit.
const ROWS: usize = 1000;

/// The names and columns of all tables but those of enumerations.
const TABLES: &str = "SELECT m.name AS \"table\", group_concat(c.name, ', ') AS columns FROM sqlite_schema m, \
                      pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'ENUM_%' GROUP BY m.name";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Sql {
    /// The profile
    file: PathBuf,
    /// One SELECT, WITH or EXPLAIN [default: the tables with their columns]
    query: Option<String>,
}

impl Tool for Sql {
    const NAME: &'static str = "sql";
    const ABOUT: &'static str = "Queries the profile by SQL (SQLite), in the tables of `nsys export --type sqlite`: \
                                 CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET, _RUNTIME (API calls), _SYNCHRONIZATION, \
                                 NVTX_EVENTS (ranges: text, start, end, globalTid) and others. Times are nanoseconds; names are \
                                 ids of StringIds(id, value); correlationId joins calls and their GPU work. Without a query: the \
                                 tables. offset and limit are of the rows.";

    fn answer(self, recordings: &mut Recordings, page: &mut PageArgs) -> Result<Answer, Failure> {
        let profile = recordings.profile(&self.file)?;
        let tables = recordings.tables(&self.file)?;
        let offset = page.offset.take().unwrap_or(0);
        let limit = page.limit.take().unwrap_or(ROWS).min(ROWS);
        let query = self.query.as_deref().unwrap_or(TABLES);
        let rows = tables.query(query, offset as u64, limit)?;
        let answer = Answer::new(&self.file, &profile, &rows)?;
        Ok(Answer { list: "/rows", offset, ..answer })
    }
}
