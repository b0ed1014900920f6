//! What a domain offers: ranges, marks, events, categories, registered strings, names and locks of its own.

use crate::category::Category;
use crate::domain::{Domain, DomainRef, OwnedDomain};
use crate::event::Event;
use crate::range::{ProcessRange, Range};
use crate::resource::Resource;
use crate::resource_id::ResourceId;
use crate::state;
use crate::string::RegisteredString;
use crate::sync::SyncObject;

/// What both kinds of domain offer. They differ in how long they are there: `$life` is that.
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

            /// Marks a moment: [`mark`](crate::mark()) in this domain.
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

            /// The category of this name, which is made if it is new; see [`Category`].
            pub fn category<'a>(&$life self, name: &str) -> Category {
                $reference(self).category(name)
            }

            /// Hands `text` to the tool once, so that events can name it at no cost.
            pub fn register<'a>(&$life self, text: &str) -> RegisteredString {
                RegisteredString::new($reference(self), text)
            }

            /// Names something that is not an event, such as a thread or a device, until the
            /// returned value is dropped.
            pub fn resource<'a>(&$life self, id: ResourceId, name: &str) -> Resource {
                Resource::new($reference(self), id, name)
            }

            /// A lock of the program's own making, whose use tools can show.
            pub fn sync_object<'a>(&$life self, name: &str) -> SyncObject {
                SyncObject::new($reference(self), name)
            }

            /// Whether an observer or a tool takes events of this domain. A tool's user may have
            /// asked for other domains only; events may be sent all the same.
            #[must_use]
            pub fn is_enabled<'a>(&$life self) -> bool {
                $reference(self).is_enabled()
            }
        }
    };
}

methods!(Domain, 'static, DomainRef::Static);
methods!(OwnedDomain, 'a, DomainRef::from);
