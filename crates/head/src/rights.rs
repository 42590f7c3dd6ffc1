//! Permissions. The API's routes ([`crate::api`]) are the only table: it states which callers each operation accepts.
//! Every request is checked against the table before its handler runs, and the documentation is generated from it.
//!
//! | value | accepted callers |
//! | --- | --- |
//! | anyone | all, also without identification: to join, to log in, to read the description |
//! | viewers | users; if the setting `dashboard-public` is on, also unidentified callers |
//! | users | identified users: by the kernel of the head's machine or of a node, or by a token |
//! | owners | users, for their own objects; operators for all objects (for personal data of users: admins) |
//! | operators | operators and admins |
//! | admins | root and the user that runs the head, on the head's own socket, and users with the role admin |
//! | agents | clients with a node's certificate, for their own node |
//!
//! Only the state knows the owner of an object. The owner check is therefore in `hostler_core::head::decide` for
//! changes of a job, and in [`crate::api`]'s `readable` for its content.

use std::collections::HashMap;

use hostler_model::Role;

/// Callers that an operation accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// All, also unidentified callers.
    Anyone,
    /// All identified users, and unidentified callers if the setting `dashboard-public` is on.
    Viewers,
    /// All identified users.
    Users,
    /// Identified users, for their own objects.
    Owners,
    Operators,
    Admins,
    Agents,
    /// All identified users, and agents.
    UsersAndAgents,
}

impl Who {
    /// The lowest role that may call the operation; `None` when users may not call it.
    pub(crate) const fn least_role(self) -> Option<Role> {
        match self {
            Self::Anyone | Self::Viewers | Self::Users | Self::Owners | Self::UsersAndAgents => Some(Role::User),
            Self::Operators => Some(Role::Operator),
            Self::Admins => Some(Role::Admin),
            Self::Agents => None,
        }
    }

    pub(crate) const fn is_for_agents(self) -> bool {
        matches!(self, Self::Anyone | Self::Agents | Self::UsersAndAgents)
    }
}

/// The rule for each operation.
#[derive(Debug)]
pub(crate) struct Rights(HashMap<(&'static str, &'static str), Who>);

impl Rights {
    /// The rules of operations with these methods, in lower case, and paths, relative to the API's base, with
    /// parameters in braces.
    pub(crate) fn new(rules: impl Iterator<Item = (&'static str, &'static str, Who)>) -> Self {
        Self(rules.map(|(method, path, who)| ((method, path), who)).collect())
    }

    /// The rule for an operation.
    pub(crate) fn rule_of(&self, method: &str, path: &str) -> Option<Who> {
        self.0.get(&(method, path)).copied()
    }

    /// The methods that a path supports, for the header `allow`.
    pub(crate) fn methods_of(&self, path: &str) -> String {
        let mut methods: Vec<String> =
            self.0.keys().filter(|key| key.1 == path).map(|key| key.0.to_ascii_uppercase()).collect();
        methods.sort_unstable();
        methods.join(", ")
    }
}

/// Whether the audit log records a successful call: all changes, except chunk uploads (a chunk has no effect until a
/// job refers to it) and routine calls of agents.
pub(crate) fn is_audited(method: &str, path: &str) -> bool {
    const NOT: [&str; 3] = ["/blobs", "/snapshots", "/agent/"];
    method != "get"
        && !matches!(path, "/dry-run" | "/login/challenge" | "/login/openid/begin")
        && (path == "/agent/join" || !NOT.iter().any(|it| path.starts_with(it)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{OPERATIONS, rights};
    use crate::openapi::Operation;

    #[test]
    fn every_operation_has_a_rule_and_dangerous_ones_need_an_admin() {
        let rights = rights();
        for operation in OPERATIONS.iter() {
            let Operation { method, path, who, .. } = operation;
            assert_eq!(rights.rule_of(method, path), Some(*who), "{method} {path}");
        }
        assert_eq!(rights.rule_of("post", "/nothing"), None);
        // A new operation for anyone must be added here on purpose.
        let open = OPERATIONS.iter().filter(|operation| operation.who == Who::Anyone);
        let open: Vec<&str> = open.map(|operation| operation.path).collect();
        // So must one for viewers, which must neither change anything nor show what a job does.
        let public = OPERATIONS.iter().filter(|operation| operation.who == Who::Viewers);
        let public: Vec<_> = public.map(|operation| (operation.method, operation.path)).collect();
        let paths = ["/info", "/me", "/nodes", "/energy", "/partitions", "/jobs"];
        assert_eq!(public, paths.map(|path| ("get", path)));
        assert_eq!(
            open,
            [
                "/openapi.json",
                "/login/challenge",
                "/login/key",
                "/login/code",
                "/codes/revoke",
                "/login/openid/begin",
                "/login/openid",
                "/agent/join"
            ]
        );
        for (method, path) in [
            ("post", "/shutdown"),
            ("post", "/users"),
            ("post", "/users/{name}/block"),
            ("post", "/users/{name}/role"),
            ("post", "/users/{name}/invite"),
            ("post", "/nodes/invite"),
            ("post", "/partitions/{name}/invite"),
            ("get", "/audit"),
        ] {
            assert_eq!(rights.rule_of(method, path), Some(Who::Admins), "{method} {path}");
        }
    }

    #[test]
    fn security_page_lists_each_route_with_its_callers() {
        let page = include_str!("../../../docs/internals/security.md");
        let section = page.split("\n## ").find(|section| section.starts_with("Rights of each route and command"));
        let mut listed = Vec::new();
        for row in section.expect("the page has the table").lines().filter(|line| line.starts_with("| ")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let routes = cells[3].split('`').skip(1).step_by(2);
            listed.extend(routes.map(|route| format!("{route}: {}", cells[2])));
        }
        let words = |who| match who {
            Who::Anyone => "anyone",
            Who::Viewers => "viewers",
            Who::Users => "users",
            Who::Owners => "owners",
            Who::Operators => "operators",
            Who::Admins => "admins",
            Who::Agents => "agents",
            Who::UsersAndAgents => "users and agents",
        };
        let mut routes: Vec<String> = OPERATIONS
            .iter()
            .map(|it| format!("{} {}: {}", it.method.to_ascii_uppercase(), it.path, words(it.who)))
            .collect();
        listed.sort();
        routes.sort();
        assert_eq!(listed, routes, "the table in security.md (left) and the routes (right) differ");
    }

    #[test]
    fn changes_are_audited() {
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
