//! Gates and comparisons replayed on recorded runs.

mod rates;
mod replay;
