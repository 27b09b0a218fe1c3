//! One binary with everything that is tested from outside: the repository itself, and the built program.
//!
//! Owns nothing but the list. The first group reads the sources, the manifests and the docs; whatever drives the program
//! comes after it. Add a module here: `#[cfg(test)]` tells the lints that it is test code.

#[cfg(test)]
mod program;
#[cfg(test)]
mod workspace;

#[cfg(test)]
mod docs;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod modules;
#[cfg(test)]
mod tidy;

#[cfg(test)]
mod harness;

#[cfg(test)]
mod a2a;
#[cfg(test)]
mod approvals;
#[cfg(test)]
mod attempts;
#[cfg(test)]
mod attested;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod canary;
#[cfg(test)]
mod classes;
#[cfg(test)]
mod confined;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod console;
#[cfg(test)]
mod costs;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod credit;
#[cfg(test)]
mod decisions;
#[cfg(test)]
mod delegated;
#[cfg(test)]
mod envelopes;
#[cfg(test)]
mod evidence;
#[cfg(test)]
mod exchange;
#[cfg(test)]
mod files;
#[cfg(test)]
mod first_hour;
#[cfg(test)]
mod gates;
#[cfg(test)]
mod ingress;
#[cfg(test)]
mod late;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod lockdown;
#[cfg(test)]
mod loopback;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod mcp_changes;
#[cfg(test)]
mod mcp_clients;
#[cfg(test)]
mod mcp_features;
#[cfg(test)]
mod mcp_hostile;
#[cfg(test)]
mod mcp_pages;
#[cfg(test)]
mod mcp_stdio;
#[cfg(test)]
mod moving;
#[cfg(test)]
mod mutual;
#[cfg(test)]
mod notifications;
#[cfg(test)]
mod offline;
#[cfg(test)]
mod openapi;
#[cfg(test)]
mod outcomes;
#[cfg(test)]
mod planner;
#[cfg(test)]
mod python_client;
#[cfg(test)]
mod real_clients;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod report;
#[cfg(test)]
mod reviews;
#[cfg(test)]
mod rotation;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod signed_in;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod spiffe;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod taint;
#[cfg(test)]
mod ten_servers;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod traces;
