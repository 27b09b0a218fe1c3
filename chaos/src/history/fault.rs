//! The faults by their numbers.
//!
//! Owns their list, with a line about each: F1 to F24, without those that only other levels can inject (F12, F13, F21). Causes none.

use serde::{Deserialize, Serialize};

macro_rules! faults {
    ($($name:ident = $title:literal;)*) => {
        /// A kind of fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum FaultKind { $(#[doc = $title] $name,)* }

        impl FaultKind {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its number, such as `F4`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// What it is, in a line.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

faults! {
    F1 = "duplicates of the same request";
    F2 = "duplicates with a changed argument, or another form of the same";
    F3 = "the same key from another principal or tenant";
    F4 = "kill during a call";
    F5 = "kill during recovery";
    F6 = "client gone in the middle of a call";
    F7 = "the upstream hangs, resets, lies or answers twice";
    F8 = "the process of the upstream ends";
    F9 = "a node paused for longer than its lease";
    F10 = "clock jumps";
    F11 = "disk errors, full disk, slow disk";
    F14 = "votes twice, late, in conflict or by the requester";
    F15 = "policy or credential changed between gate and dispatch";
    F16 = "«not found», and then the effect appears";
    F17 = "the window of a keyed token passes before recovery";
    F18 = "a retry after the result's retention";
    F19 = "a huge result, or one with secrets";
    F20 = "the database: killed backends, failover, exhausted pool";
    F22 = "overload";
    F23 = "a graceful stop in all states";
    F24 = "the upstream refuses a call after its effect";
}

impl std::fmt::Display for FaultKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for FaultKind {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        Self::ALL
            .iter()
            .copied()
            .find(|kind| kind.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| UnknownFault(text.to_owned()))
    }
}

/// There is no such fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no fault `{0}`: they are F1 to F24, without F12, F13 and F21")]
pub struct UnknownFault(String);

/// A fault that really happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultEvent {
    /// Its kind.
    pub kind: FaultKind,
    /// The node, if it happened at one.
    pub node: Option<u32>,
    /// The details, as text.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::FaultKind;

    #[test]
    fn each_is_found_by_its_number_and_nothing_else_is() {
        for kind in FaultKind::ALL {
            assert_eq!(kind.name().to_lowercase().parse(), Ok(*kind));
        }
        assert!("F25".parse::<FaultKind>().is_err());
    }
}
