//! Users: their accounts, rights and quotas.

pub(in crate::head) mod changes;
pub(in crate::head) mod quotas;
pub(in crate::head) mod user;
