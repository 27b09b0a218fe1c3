//! Enums whose members each have a name and a line about them.
//!
//! Owns their form. Not here: the lists.

/// Makes such an enum of `Member = "name", "title";`.
macro_rules! listed {
    ($(#[$about:meta])* $list:ident { $($member:ident = $name:literal, $title:literal;)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum $list { $(#[doc = $title] $member,)* }

        impl $list {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$member,)*];

            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$member => $name,)* }
            }

            /// What it is, in a line.
            pub(crate) const fn title(self) -> &'static str {
                match self { $(Self::$member => $title,)* }
            }
        }

        impl std::fmt::Display for $list {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use listed;
