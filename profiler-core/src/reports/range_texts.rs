//! The names that reports have for ranges.

use std::sync::Arc;

use crate::join::tables::{Label, Store};

/// A range's name after its domain's: `domain:name`, and `:name` in the default one.
fn range_text(store: &Store, label: &Label) -> String {
    let domain = label.domain.map_or("", |domain| store.names.get(domain));
    format!("{domain}:{}", store.names.get(label.name))
}

/// Of every label of the store.
pub(super) fn range_texts(store: &Store) -> Vec<Arc<str>> {
    store.labels.iter().map(|label| range_text(store, label).into()).collect()
}
