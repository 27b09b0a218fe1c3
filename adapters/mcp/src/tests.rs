//! Tests against real peers: a child process and an HTTP server, good ones and bad ones.

mod http;
mod stdio;
mod support;
