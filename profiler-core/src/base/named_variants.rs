//! Declarations: enums whose variants have a fixed text each, and methods that return or set a field.

/// Declares an enum with the text of each variant behind it. `Display` pads and writes the text; the method behind
/// `with` returns it, and the constant behind `in` holds all variants.
macro_rules! named_variants {
    ($(#[$attribute:meta])* pub enum $type:ident $(with $method:ident)? $(in $all:ident)? {
        $($(#[$of_variant:meta])* $variant:ident = $text:literal,)+
    }) => {
        $(#[$attribute])*
        pub enum $type {
            $($(#[$of_variant])* $variant,)+
        }

        impl $type {
            $(
                /// All of them.
                pub const $all: [Self; Self::VARIANTS.len()] = Self::VARIANTS;
            )?

            #[allow(dead_code, reason = "only some enums have a constant of all variants")]
            const VARIANTS: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];

            $(
                /// The text that messages, tables and files have for it.
                #[must_use]
                pub const fn $method(self) -> &'static str {
                    self.variant_text()
                }
            )?

            const fn variant_text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.variant_text())
            }
        }
    };
}
pub(crate) use named_variants;

/// Declares methods that return a field: `name: Type = path.of.the.field;`. A reference borrows it.
macro_rules! getters {
    () => {};
    ($(#[$attribute:meta])* $name:ident: &$life:lifetime $type:ty = $($field:tt).+; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(&self) -> &$life $type {
            self.$($field).+
        }

        $crate::base::named_variants::getters! { $($rest)* }
    };
    ($(#[$attribute:meta])* $name:ident: &$type:ty = $($field:tt).+; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(&self) -> &$type {
            &self.$($field).+
        }

        $crate::base::named_variants::getters! { $($rest)* }
    };
    ($(#[$attribute:meta])* $name:ident: $type:ty = $($field:tt).+; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(&self) -> $type {
            self.$($field).+
        }

        $crate::base::named_variants::getters! { $($rest)* }
    };
}
pub(crate) use getters;

/// Declares methods of a builder that set a field: `name(argument: Type) path.of.the.field = value;`.
macro_rules! setters {
    ($($(#[$attribute:meta])* $name:ident($($argument:ident: $type:ty),+) $($field:ident).+ = $value:expr;)+) => {$(
        $(#[$attribute])*
        pub fn $name(mut self, $($argument: $type),+) -> Self {
            self.$($field).+ = $value;
            self
        }
    )+};
}
pub(crate) use setters;
