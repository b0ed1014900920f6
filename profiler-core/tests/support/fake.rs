//! The fake CUPTI of tests whose threads make calls while sessions begin, pause and end.

use cupti::fake::Fake;

/// A fake that ends a call whose callback is disabled before the call returns, as CUPTI 12.8 does. CUPTI 13 keeps the thread in that
/// call; whether a thread is in one then depends on the processors, so only `.ci/run thorough` plays it.
pub(crate) fn fake() -> Fake {
    let fake = Fake::new();
    fake.end_unseen_calls(std::env::var_os("THOROUGH_TESTS").is_none());
    fake
}
