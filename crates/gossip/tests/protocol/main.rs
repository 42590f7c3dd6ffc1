//! Tests of the protocol's rules with a few nodes.

mod pair;
mod properties;
mod rules;
