//! The range of one thread, as a guard.
//!
//! Whether anyone looks is decided once, at the start, and the guard keeps what was begun. So an end
//! never goes to someone who did not see the start, whatever is switched on or off in between, and a
//! range that nobody saw ends on a branch over its own field.

use std::marker::PhantomData;

#[cfg(feature = "enable")]
use crate::{observer, observer::Token, state, tool};

/// Starts a range named `name` on this thread; it ends when the returned guard is dropped.
///
/// Ranges of a thread nest: end them in the reverse order of their starts, which scopes do by
/// themselves. The guard stays on its thread. A guard that is leaked with [`std::mem::forget`] never
/// ends, and for tools every range around it then ends one level too deep.
///
/// With no tool and no observer this costs under 1 ns, its end included. The first call of the
/// process looks for a tool, which may load a library.
///
/// ```
/// let _step = nvtx::range("step");
/// {
///     let _forward = nvtx::range("forward");
/// } // "forward" ends here, "step" goes on
/// ```
#[inline]
pub fn range(name: &str) -> Range {
    Range::start(name)
}

/// A range that is going on; dropping it ends it. Made by [`range`](crate::range()).
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// let range = nvtx::range("load");
/// std::thread::spawn(move || drop(range));
/// ```
#[must_use = "the range ends when this guard is dropped: keep it in a variable, `let _range = ...`"]
#[derive(Debug)]
pub struct Range {
    #[cfg(feature = "enable")]
    begun: Begun,
    /// NVTX keeps a stack for each thread, so the end belongs to the thread of the start.
    not_send: PhantomData<*mut ()>,
}

impl Range {
    #[inline]
    fn start(name: &str) -> Range {
        #[cfg(not(feature = "enable"))]
        let _ = name;
        Range {
            #[cfg(feature = "enable")]
            begun: if state::is_idle() { Begun::NOTHING } else { Begun::start(name) },
            not_send: PhantomData,
        }
    }
}

impl Drop for Range {
    #[inline]
    fn drop(&mut self) {
        #[cfg(feature = "enable")]
        if self.begun.parts != 0 {
            self.begun.end();
        }
    }
}

/// The parts of a range that were begun, and so are to be ended.
#[cfg(feature = "enable")]
#[derive(Clone, Copy, Debug)]
struct Begun {
    /// [`state::TOOL`] and [`state::OBSERVER`], as far as each was told of the start.
    parts: u8,
    token: Token,
}

#[cfg(feature = "enable")]
impl Begun {
    const NOTHING: Begun = Begun { parts: 0, token: Token::new(0) };

    /// The observer is told last, and of the end first, so that the times it takes leave the tool out.
    #[cold]
    #[inline(never)]
    fn start(name: &str) -> Begun {
        let state = state::current();
        let mut begun = Begun::NOTHING;
        if state & state::TOOL != 0 && tool::push(name) {
            begun.parts |= state::TOOL;
        }
        if state & state::OBSERVER != 0
            && let Some(token) = observer::start(name)
        {
            begun.parts |= state::OBSERVER;
            begun.token = token;
        }
        begun
    }

    #[cold]
    #[inline(never)]
    fn end(self) {
        if self.parts & state::OBSERVER != 0 {
            observer::end(self.token);
        }
        if self.parts & state::TOOL != 0 {
            tool::pop();
        }
    }
}

#[cfg(all(test, feature = "enable"))]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_two_words() {
        assert_eq!(size_of::<Range>(), 16);
    }
}
