//! Enums whose values are words: one list gives each value its name on the wire, in policies and in records.
//!
//! Owns the macro. Invariant: the name that is read, the name that is written and `as_str` are the same word.

/// Defines an enum with a name for each value, and everything that follows from the names.
#[macro_export]
macro_rules! named_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)* }) => {
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize,
        )]
        $(#[$meta])*
        pub enum $name { $($(#[$about])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            /// All values, in order.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// The name on the wire, in policies and in records.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = ::serde::de::value::Error;
            fn from_str(text: &str) -> ::std::result::Result<Self, Self::Err> {
                use ::serde::de::IntoDeserializer;
                ::serde::Deserialize::deserialize(text.into_deserializer())
            }
        }
    };
}
