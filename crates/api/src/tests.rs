//! The HTTP API as its callers see it: who is heard, what is answered, and what nobody learns.

mod calls;
mod challenge;
mod coverage;
mod desk;
mod events;
mod manners;
