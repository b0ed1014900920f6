//! Values that are each stored once.

use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Distinct values, numbered from 0 in the order in which they are added.
#[derive(Debug)]
pub struct Distinct<T> {
    values: Vec<T>,
    rows: FxHashMap<T, u32>,
}

/// Distinct texts.
pub type Texts = Distinct<Arc<str>>;

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Self { values: Vec::new(), rows: FxHashMap::default() }
    }
}

impl<T: Clone + Eq + Hash> Distinct<T> {
    /// Returns the index of a value, and stores a new value.
    pub fn row(&mut self, value: T) -> u32 {
        *self.rows.entry(value).or_insert_with_key(|value| {
            self.values.push(value.clone());
            self.values.len() as u32 - 1
        })
    }

    /// Returns the value with this index.
    pub fn get(&self, row: u32) -> &T {
        &self.values[row as usize]
    }

    /// Returns the values by their indices.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Returns the values by their indices.
    pub fn into_values(self) -> Vec<T> {
        self.values
    }
}

impl Texts {
    /// Returns the index of a text, and stores a new text.
    pub fn text(&mut self, text: &str) -> u32 {
        self.rows.get(text).copied().unwrap_or_else(|| self.row(text.into()))
    }
}
