//! The conformance check, tested: `#[cfg(test)]` tells the lints that the cases are test code.

#[cfg(test)]
mod cases;
