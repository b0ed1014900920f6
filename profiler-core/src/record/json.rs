//! JSON in recordings: macros that implement serde's traits for the heads of frames.
//!
//! They replace serde's derive, which programs that only record do not build (docs/decisions/018).

/// Implements `Serialize` and `Deserialize` for a struct of recordings as a JSON object.
///
/// Each field is `required`, `later` (absent in older files, then the default), or `optional` (like
/// `later`, and not written if it has the default). A struct can be declared along with it.
macro_rules! json_object {
    ($type:ident { $($field:ident: $mode:ident,)+ }) => {
        impl $type {
            pub(crate) fn write_fields<M: serde_core::ser::SerializeMap>(
                &self,
                out: &mut M,
            ) -> Result<(), M::Error> {
                $($crate::record::json::json_object!(@write $mode self.$field, $field, out);)+
                Ok(())
            }
        }

        impl serde_core::Serialize for $type {
            fn serialize<S: serde_core::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let mut out = to.serialize_map(None)?;
                self.write_fields(&mut out)?;
                serde_core::ser::SerializeMap::end(out)
            }
        }

        impl<'de> serde_core::Deserialize<'de> for $type {
            fn deserialize<D: serde_core::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Fields;

                impl<'de> serde_core::de::Visitor<'de> for Fields {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<M: serde_core::de::MapAccess<'de>>(
                        self,
                        mut map: M,
                    ) -> Result<$type, M::Error> {
                        use serde_core::de::Error as _;
                        $(let mut $field = None;)+
                        while let Some(name) = map.next_key::<String>()? {
                            let is_repeated = match &*name {
                                $(stringify!($field) => $field.replace(map.next_value()?).is_some(),)+
                                _ => {
                                    map.next_value::<serde_core::de::IgnoredAny>()?;
                                    false
                                }
                            };
                            if is_repeated {
                                return Err(M::Error::custom(format_args!("duplicate field `{name}`")));
                            }
                        }
                        Ok($type { $($field: $crate::record::json::json_object!(@read $mode $field),)+ })
                    }
                }

                from.deserialize_map(Fields)
            }
        }
    };
    (
        $(#[$meta:meta])*
        $visible:vis struct $type:ident {
            $($(#[$of_field:meta])* $field_visible:vis $field:ident: $of:ty = $mode:ident,)+
        }
    ) => {
        $(#[$meta])*
        $visible struct $type { $($(#[$of_field])* $field_visible $field: $of,)+ }
        $crate::record::json::json_object! { $type { $($field: $mode,)+ } }
    };
    (@write optional $value:expr, $field:ident, $out:ident) => {
        if !$crate::record::json::is_default(&$value) {
            $out.serialize_entry(stringify!($field), &$value)?;
        }
    };
    (@write $mode:ident $value:expr, $field:ident, $out:ident) => {
        $out.serialize_entry(stringify!($field), &$value)?;
    };
    (@read required $field:ident) => {
        $field.ok_or_else(|| M::Error::missing_field(stringify!($field)))?
    };
    (@read $mode:ident $field:ident) => { $field.unwrap_or_default() };
}
pub(crate) use json_object;

/// True for values that `json_object` does not write if they are optional.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Implements `Serialize` and `Deserialize` for an enum of recordings as a JSON string. Unknown
/// names are read as the variant behind `else`, if there is one.
macro_rules! json_names {
    ($type:ident { $($variant:ident = $name:literal,)+ } $(else $other:ident)?) => {
        impl $type {
            #[allow(dead_code, reason = "only some enums are looked up by name alone")]
            pub(crate) fn of_json(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None$(.or(Some(Self::$other)))?,
                }
            }
        }

        impl serde_core::Serialize for $type {
            fn serialize<S: serde_core::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(match self {
                    $(Self::$variant => $name,)+
                })
            }
        }

        impl<'de> serde_core::Deserialize<'de> for $type {
            fn deserialize<D: serde_core::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let name = String::deserialize(from)?;
                Self::of_json(&name)
                    .ok_or_else(|| serde_core::de::Error::unknown_variant(&name, &[$($name),+]))
            }
        }
    };
}
pub(crate) use json_names;
