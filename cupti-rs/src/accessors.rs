//! Macros that declare methods which only return or set a field, and enums whose values have names.

/// Declares methods that return a field: `name: Type = field;` or `name: Type = outer.field;`. A reference borrows it.
macro_rules! getters {
    () => {};
    ($(#[$attribute:meta])* $name:ident: &$life:lifetime $type:ty = $($field:ident).+; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(&self) -> &$life $type {
            self.$($field).+
        }

        $crate::accessors::getters! { $($rest)* }
    };
    ($(#[$attribute:meta])* $name:ident: &$type:ty = $($field:ident).+; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(&self) -> &$type {
            &self.$($field).+
        }

        $crate::accessors::getters! { $($rest)* }
    };
    ($(#[$attribute:meta])* $name:ident: $type:ty = $($field:ident).+; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(&self) -> $type {
            self.$($field).+
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

/// Declares an enum whose values have names: `ALL`, `name` and `Display`.
macro_rules! named {
    ($($(#[$attribute:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)+ })+) => {$(
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $type {
            $($(#[$doc])* $variant,)+
        }

        impl $type {
            /// All values, in order.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The value's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    )+};
}
pub(crate) use named;
