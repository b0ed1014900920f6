//! The program's own ids, which CUPTI ties to calls.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::collection_state;
use crate::error::Error;
use crate::forked;
use crate::library::Library;
use crate::record::ExternalCorrelationKind;

/// A guard: while it lives, CUPTI ties every CUDA call of this thread to an id of the program
/// ([`Library::external_correlation`]). It ends on the thread it began on and cannot move to
/// another:
///
/// ```compile_fail,E0277
/// fn to_another_thread(value: impl Send) {}
/// fn hand_over(id: cupti::ExternalId<'_>) {
///     to_another_thread(id);
/// }
/// ```
#[derive(Debug)]
#[must_use = "the id is taken off again when this is dropped"]
pub struct ExternalId<'library> {
    library: &'library Library,
    kind: ExternalCorrelationKind,
    /// CUPTI has a stack of ids for each thread.
    thread: PhantomData<*const ()>,
}

impl Library {
    /// Ties the CUDA calls of this thread to `id` until the guard is dropped. Within another guard
    /// of the same kind it replaces that one; each kind has its own ids. Libraries take
    /// [`CUSTOM0`](ExternalCorrelationKind::CUSTOM0) to
    /// [`CUSTOM2`](ExternalCorrelationKind::CUSTOM2).
    ///
    /// A collection records it as an [`ExternalCorrelation`](crate::record::ExternalCorrelation)
    /// for each call and kind, with the call's correlation id. This needs the kind
    /// [`EXTERNAL_CORRELATION`](crate::ActivityKind::EXTERNAL_CORRELATION) and one of
    /// [`DRIVER`](crate::ActivityKind::DRIVER) and [`RUNTIME`](crate::ActivityKind::RUNTIME): CUPTI
    /// writes an id only beside the record of a call. The call log does not need it: it has the
    /// thread's tag ([`calls::set_word`](crate::calls::set_word)).
    ///
    /// Beginning and ending take about 0.25 us together (H200, CUPTI 13.0.1), and each record 24
    /// bytes.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), cupti::Error> {
    /// use cupti::record::ExternalCorrelationKind;
    /// use cupti::{ActivityKind, Collector, Config, Library};
    ///
    /// let library = Library::open()?;
    /// let config = Config::new().add_kind(ActivityKind::DRIVER).add_kind(ActivityKind::EXTERNAL_CORRELATION);
    /// let collector = Collector::start(&library, &config)?;
    /// {
    ///     let _request = library.external_correlation(ExternalCorrelationKind::CUSTOM0, 77)?;
    ///     // ... calls into CUDA on this thread ...
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_unsupported`](Error::is_unsupported) if the library does not have it; CUPTI's refusal,
    /// for example of an unknown kind; or a process forked off after CUPTI was used.
    pub fn external_correlation(
        &self,
        kind: ExternalCorrelationKind,
        id: u64,
    ) -> Result<ExternalId<'_>, Error> {
        if let Some(why) = self.unusable {
            return Err(self.refuse(why));
        }
        collection_state::leave_children_out();
        forked::check_process()?;
        self.api.push_external_id(kind.0, id).unwrap_or_else(|| Err(lacks(self)))?;
        Ok(ExternalId { library: self, kind, thread: PhantomData })
    }
}

impl ExternalId<'_> {
    /// Ends it as a drop does, and returns the id that CUPTI removed: this guard's, or the id of
    /// another guard of its kind and thread that should have ended before.
    ///
    /// # Errors
    ///
    /// CUPTI's refusal, such as QUEUE_EMPTY (18) if other code removed it; or a process forked off
    /// meanwhile.
    pub fn end(self) -> Result<u64, Error> {
        ManuallyDrop::new(self).pop()
    }

    fn pop(&self) -> Result<u64, Error> {
        forked::check_process()?;
        let popped = self.library.api.pop_external_id(self.kind.0);
        popped.unwrap_or_else(|| Err(lacks(self.library)))
    }
}

impl Drop for ExternalId<'_> {
    fn drop(&mut self) {
        // An error is ignored: no caller could act on it.
        let _ = self.pop();
    }
}

#[cold]
fn lacks(library: &Library) -> Error {
    library.lacks("external ids".into(), "")
}
