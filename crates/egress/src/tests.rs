//! Tests with real sockets. No test leaves the machine: where a global address is needed, the dialler is replaced.

mod destinations;
mod exchange;
mod support;
mod tls;
