//! Names of objects: threads, devices, streams, locks.

use crate::domain::{DomainKeep, DomainRef};
use crate::observer::{self, Named};
use crate::resource_id::ResourceId;
use crate::state;
use crate::sys::functions;
use crate::sys::types::{Handle, ResourceAttributes, Text};
use crate::text::with_c_str;

/// A named object. The name ends when this value is dropped. Made by
/// [`Domain::resource`](crate::Domain::resource) and [`resource`].
#[must_use = "the name ends when this is dropped"]
#[derive(Debug)]
pub struct Resource {
    handle: Handle,
    /// Keeps the domain alive, to which the tool's object belongs.
    _domain: DomainKeep,
}

impl Resource {
    pub(crate) fn new(domain: DomainRef<'_>, id: ResourceId, name: &str) -> Resource {
        let mut handle = Handle::NULL;
        if state::has_tool() {
            let domain = domain.handle_or_null();
            let created = with_c_str(name, |name| {
                let attributes = ResourceAttributes::new(id.kind(), id.value(), Text::new(name));
                functions::resource_create(domain, &attributes)
            });
            handle = created.unwrap_or(Handle::NULL);
        }
        observer::named(&Named::Resource { id, domain: domain.name() }, name);
        Resource { handle, _domain: domain.keep() }
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            functions::resource_destroy(self.handle);
        }
    }
}

/// [`Domain::resource`](crate::Domain::resource) in the default domain.
pub fn resource(id: ResourceId, name: &str) -> Resource {
    Resource::new(DomainRef::Default, id, name)
}
