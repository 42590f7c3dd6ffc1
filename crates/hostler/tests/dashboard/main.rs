//! The way into the dashboard, attacked with raw requests: the relay of `hostler dashboard`, the site's certificate,
//! plain HTTP behind a proxy, sessions, OpenID Connect, the view without sign-in, jobs of other users, streams, and
//! terminals.

mod crowds;
mod http;
mod openid;
mod others;
mod provider;
mod relay;
mod site;
mod streams;
mod terminal;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");
