//! The methods of domains: ranges, marks, events, categories, registered strings, names and locks.

use crate::category::Category;
use crate::domain::{Domain, DomainRef, OwnedDomain};
use crate::event::Event;
use crate::range::{ProcessRange, Range};
use crate::resource::Resource;
use crate::resource_id::ResourceId;
use crate::state;
use crate::string::RegisteredString;
use crate::sync::SyncObject;

/// The methods of both kinds of domain, which differ in their lifetime `$life`.
macro_rules! methods {
    ($domain:ident, $life:lifetime, $reference:expr) => {
        /// Events of this domain.
        #[allow(clippy::extra_unused_lifetimes, reason = "one text for two lifetimes")]
        impl $domain {
            /// Starts a range of this thread: [`range`](crate::range()) in this domain.
            #[inline]
            pub fn range<'a>(&$life self, name: &str) -> Range {
                if state::is_idle() { Range::NONE } else { Range::begin_named($reference(self), name) }
            }

            /// Starts a range that may end on any thread: [`process_range`](crate::process_range())
            /// in this domain.
            #[inline]
            pub fn process_range<'a>(&$life self, name: &str) -> ProcessRange {
                ProcessRange::start(move || Event::in_domain($reference(self), name))
            }

            /// Records a mark: [`mark`](crate::mark()) in this domain.
            #[inline]
            pub fn mark<'a>(&$life self, name: &str) {
                if !state::is_idle() {
                    Event::in_domain($reference(self), name).mark();
                }
            }

            /// Describes an event of this domain.
            #[inline]
            pub fn event<'a>(&$life self, name: &'a str) -> Event<'a> {
                Event::in_domain($reference(self), name)
            }

            /// The category with this name, created if it is new; see [`Category`].
            pub fn category<'a>(&$life self, name: &str) -> Category {
                $reference(self).category(name)
            }

            /// Registers `text` with the tool, so that events refer to it without a copy.
            pub fn register<'a>(&$life self, text: &str) -> RegisteredString {
                RegisteredString::new($reference(self), text)
            }

            /// Names an object, such as a thread or a device, until the returned value is dropped.
            pub fn resource<'a>(&$life self, id: ResourceId, name: &str) -> Resource {
                Resource::new($reference(self), id, name)
            }

            /// Creates a named handle for a lock that the program implements, so that tools can
            /// show its use.
            pub fn sync_object<'a>(&$life self, name: &str) -> SyncObject {
                SyncObject::new($reference(self), name)
            }

            /// True if an observer or a tool accepts events of this domain. The tool may be
            /// configured for other domains only; it ignores further events.
            #[must_use]
            pub fn is_enabled<'a>(&$life self) -> bool {
                $reference(self).is_enabled()
            }
        }
    };
}

methods!(Domain, 'static, DomainRef::Static);
methods!(OwnedDomain, 'a, DomainRef::from);
