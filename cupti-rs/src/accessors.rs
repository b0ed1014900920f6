//! Macros that declare methods which only return or set a field.

/// Declares methods that return a field: `name: Type = field;`. A reference borrows it.
macro_rules! getters {
    () => {};
    ($(#[$attribute:meta])* $name:ident: &$life:lifetime $type:ty = $field:ident; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(&self) -> &$life $type {
            self.$field
        }

        $crate::accessors::getters! { $($rest)* }
    };
    ($(#[$attribute:meta])* $name:ident: &$type:ty = $field:ident; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(&self) -> &$type {
            &self.$field
        }

        $crate::accessors::getters! { $($rest)* }
    };
    ($(#[$attribute:meta])* $name:ident: $type:ty = $field:ident; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(&self) -> $type {
            self.$field
        }

        $crate::accessors::getters! { $($rest)* }
    };
}
pub(crate) use getters;

/// Declares methods of a builder that set a field: `name(argument: Type) field = value;`.
macro_rules! setters {
    ($($(#[$attribute:meta])* $name:ident($argument:ident: $type:ty) $field:ident = $value:expr;)+) => {$(
        $(#[$attribute])*
        pub fn $name(mut self, $argument: $type) -> Self {
            self.$field = $value;
            self
        }
    )+};
}
pub(crate) use setters;
