//! Enums with a fixed text for each variant.

/// Declares an enum with the text of each variant behind it. `Display` pads and writes the text.
/// The method behind `with` returns it, and the constant behind `in` has all variants.
/// `second_text` returns the text behind `and`.
#[macro_export]
macro_rules! named_variants {
    ($(#[$attribute:meta])* $vis:vis enum $type:ident $(with $method:ident)? $(in $all:ident)? {
        $($(#[$of_variant:meta])* $variant:ident = $text:literal $(and $second:literal)?,)+
    }) => {
        $(#[$attribute])*
        $vis enum $type {
            $($(#[$of_variant])* $variant,)+
        }

        impl $type {
            $(
                /// All variants.
                $vis const $all: [Self; Self::VARIANTS.len()] = Self::VARIANTS;
            )?

            #[allow(dead_code, reason = "only some enums have a constant of all variants")]
            const VARIANTS: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];

            $(
                /// The text in messages, tables and files.
                #[must_use]
                $vis const fn $method(self) -> &'static str {
                    self.variant_text()
                }
            )?

            const fn variant_text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            #[allow(dead_code, reason = "only some enums have a second text")]
            const fn second_text(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!("" $(, $second)?),)+
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

/// Reads an enum of [`named_variants`](crate::named_variants) of this module from the text of a
/// variant. The error is the second argument.
#[macro_export]
macro_rules! from_variant_text {
    ($type:ty, $give:literal) => {
        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let known = Self::VARIANTS.into_iter().find(|known| known.variant_text() == text);
                known.ok_or_else(|| $give.to_owned())
            }
        }
    };
}
