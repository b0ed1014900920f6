//! The macro that declares methods which only set a field.

/// Declares methods of a builder that set a field:
/// `name(argument: Type) path.of.the.field = value;`.
macro_rules! setters {
    ($($(#[$attribute:meta])* $name:ident($argument:ident: $type:ty) $($field:ident).+ = $value:expr;)+) => {$(
        $(#[$attribute])*
        #[inline]
        pub const fn $name(mut self, $argument: $type) -> Self {
            self.$($field).+ = $value;
            self
        }
    )+};
}
pub(crate) use setters;
