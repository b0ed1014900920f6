//! Macros that declare methods which only return or change a field.

/// Declares methods that return a field, or the result of one of its methods: `name: Type =
/// path.of.the.field;` or `name: Type = field.method();`. A reference without a lifetime borrows
/// it.
#[macro_export]
macro_rules! getters {
    () => {};
    ($(#[$attribute:meta])* $name:ident: Duration = Duration::from_nanos($($field:tt $(($($argument:tt)*))?).+); $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(&self) -> Duration {
            Duration::from_nanos(self.$($field $(($($argument)*))?).+)
        }

        $crate::getters! { $($rest)* }
    };
    ($(#[$attribute:meta])* $name:ident: &$life:lifetime $type:ty = $($field:tt $(($($argument:tt)*))?).+; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(&self) -> &$life $type {
            self.$($field $(($($argument)*))?).+
        }

        $crate::getters! { $($rest)* }
    };
    ($(#[$attribute:meta])* $name:ident: &$type:ty = $($field:tt $(($($argument:tt)*))?).+; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(&self) -> &$type {
            &self.$($field $(($($argument)*))?).+
        }

        $crate::getters! { $($rest)* }
    };
    ($(#[$attribute:meta])* $name:ident: $type:ty = $($field:tt $(($($argument:tt)*))?).+; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(&self) -> $type {
            self.$($field $(($($argument)*))?).+
        }

        $crate::getters! { $($rest)* }
    };
}

/// Declares methods of a builder that set a field, `name(argument: Type) path.of.the.field =
/// value;`, or add to a list: `name(argument: Type) path.of.the.list += value;`.
#[macro_export]
macro_rules! setters {
    () => {};
    ($(#[$attribute:meta])* $name:ident($($argument:ident: $type:ty),*) $($field:ident).+ = $value:expr; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(mut self, $($argument: $type),*) -> Self {
            self.$($field).+ = $value;
            self
        }

        $crate::setters! { $($rest)* }
    };
    ($(#[$attribute:meta])* $name:ident($($argument:ident: $type:ty),*) $($field:ident).+ += $value:expr; $($rest:tt)*) => {
        $(#[$attribute])*
        pub fn $name(mut self, $($argument: $type),*) -> Self {
            self.$($field).+.push($value);
            self
        }

        $crate::setters! { $($rest)* }
    };
}

/// Implements `IntoIterator` for references to a type with the method `iter` over a slice.
#[macro_export]
macro_rules! iterate {
    ($type:ident<$($parameter:tt),+>: $item:ty) => {
        impl<'list, $($parameter),+> IntoIterator for &'list $type<$($parameter),+> {
            type Item = &'list $item;
            type IntoIter = std::slice::Iter<'list, $item>;

            fn into_iter(self) -> Self::IntoIter {
                self.iter()
            }
        }
    };
}
