//! An observer that uses `tracing` itself, in a process with the `tracing` layer.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "what helps the test is to fail as it does")]

use std::sync::Mutex;

use nvtx::NvtxLayer;
use nvtx::observer::{self, Observer, RangeStart, Token};
use tracing::{Level, span};
use tracing_subscriber::prelude::*;

struct Chatty {
    seen: Mutex<Vec<String>>,
}

impl Chatty {
    fn see(&self, what: &str) {
        self.seen.lock().unwrap().push(what.to_owned());
        span!(Level::INFO, "the observer's own").in_scope(|| ());
    }
}

impl Observer for Chatty {
    fn range_start(&self, range: &RangeStart<'_>) -> Token {
        self.see(range.name);
        Token::new(0)
    }
    fn range_end(&self, _: Token) {
        self.see("end");
    }
}

static CHATTY: Chatty = Chatty { seen: Mutex::new(Vec::new()) };

#[test]
fn observer_does_not_receive_its_own_spans() {
    observer::install(&CHATTY).unwrap().on();
    tracing::subscriber::with_default(
        tracing_subscriber::registry().with(NvtxLayer::new()),
        || {
            let outer = span!(Level::INFO, "outer").entered();
            let inner = span!(Level::INFO, "inner").entered();
            drop(outer);
            drop(inner);
        },
    );
    let seen = std::mem::take(&mut *CHATTY.seen.lock().unwrap());
    assert_eq!(seen, ["outer", "inner", "end", "end", "inner", "end"]);
}
