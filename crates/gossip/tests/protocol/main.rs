//! The rules of the protocol, between a few nodes that a test moves by hand.

mod pair;
mod properties;
mod rules;
