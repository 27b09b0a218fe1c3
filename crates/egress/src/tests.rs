//! Tests with real sockets. No test leaves the machine: where a global address is needed, the dialler is replaced.

mod destinations;
mod dial;
mod exchange;
mod identity;
mod rows;
mod support;
mod tls;
