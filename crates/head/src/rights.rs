//! Rights: who may do what. There is one table, that of the API's description ([`crate::openapi`]): it names for each operation who may
//! call it, every request is held against it before a handler sees it, and the documentation is made from it. An operation that is not
//! in the table does not exist.
//!
//! | may call it | who that is |
//! | --- | --- |
//! | anyone | also strangers: to join, to log in, to read the description |
//! | users | everybody who is known: by the kernel of the head's machine or of a node, or by a token |
//! | owners | the same; and what it is about must be theirs, unless they are operators (for a user's own particulars: admins) |
//! | operators | operators and admins |
//! | admins | admins: root and the user that runs the head, on the head's own socket, and whom they have made one |
//! | agents | whoever shows a node's certificate, speaking for itself |
//!
//! What belongs to whom only the state knows, so the owners' part of the rule is in `hostler_core::head::decide` for what changes a job
//! and in [`crate::api`]'s `readable` for what shows its content.

use std::collections::HashMap;
use std::sync::LazyLock;

use hostler_model::Role;

use crate::openapi::ROUTES;

/// Who may call an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Also strangers.
    Anyone,
    /// Everybody who is known.
    Users,
    /// Everybody who is known, about what is theirs.
    Owners,
    /// Operators and admins.
    Operators,
    /// Admins.
    Admins,
    /// Agents.
    Agents,
    /// Everybody who is known, and agents.
    UsersAndAgents,
}

impl Who {
    /// The least role with which a user may call it; `None` when it is not for users.
    pub(crate) const fn least_role(self) -> Option<Role> {
        match self {
            Self::Anyone | Self::Users | Self::Owners | Self::UsersAndAgents => Some(Role::User),
            Self::Operators => Some(Role::Operator),
            Self::Admins => Some(Role::Admin),
            Self::Agents => None,
        }
    }

    /// Whether an agent may call it for itself.
    pub(crate) const fn is_for_agents(self) -> bool {
        matches!(self, Self::Anyone | Self::Agents | Self::UsersAndAgents)
    }
}

/// The rule for an operation: method in lower case, path below the API's base with its parameters in braces.
pub(crate) fn rule_of(method: &str, path: &str) -> Option<Who> {
    static RULES: LazyLock<HashMap<(&'static str, &'static str), Who>> =
        LazyLock::new(|| ROUTES.iter().map(|route| ((route.method, route.path), route.who)).collect());
    RULES.get(&(method, path)).copied()
}

/// Whether an operation is written into the audit log when it succeeds: all that change something, but for chunks, which mean nothing
/// before a job names them, and for what agents say in the course of their work.
pub(crate) fn is_audited(method: &str, path: &str) -> bool {
    const NOT: [&str; 3] = ["/blobs", "/snapshots", "/agent/"];
    method != "get"
        && path != "/login/challenge"
        && (path == "/agent/join" || !NOT.iter().any(|it| path.starts_with(it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_rule_and_the_dangerous_ones_are_for_few() {
        for route in ROUTES {
            assert_eq!(rule_of(route.method, route.path), Some(route.who), "{} {}", route.method, route.path);
        }
        assert_eq!(rule_of("post", "/nothing"), None);
        // Whoever adds an operation for strangers thinks of adding it here.
        let open: Vec<&str> = ROUTES.iter().filter(|route| route.who == Who::Anyone).map(|route| route.path).collect();
        assert_eq!(open, ["/openapi.json", "/login/challenge", "/login/key", "/login/code", "/agent/join"]);
        for (method, path) in [
            ("post", "/shutdown"),
            ("post", "/users"),
            ("post", "/users/{name}/block"),
            ("post", "/users/{name}/role"),
            ("post", "/users/{name}/invite"),
            ("post", "/nodes/invite"),
            ("get", "/audit"),
        ] {
            assert_eq!(rule_of(method, path), Some(Who::Admins), "{method} {path}");
        }
    }

    #[test]
    fn what_changes_something_is_audited() {
        for (method, path) in
            [("post", "/jobs"), ("post", "/jobs/{id}/cancel"), ("post", "/login/key"), ("post", "/agent/join")]
        {
            assert!(is_audited(method, path), "{path}");
        }
        for (method, path) in
            [("get", "/jobs"), ("post", "/blobs"), ("put", "/agent/streams/{id}"), ("post", "/login/challenge")]
        {
            assert!(!is_audited(method, path), "{path}");
        }
    }
}
