//! Identifies callers by what they show.
//!
//! A caller is identified in one of four ways:
//!
//! - On the head's own socket, the kernel reports the user.
//! - A node's agent relays requests of users on its machine, with the user that the node's kernel reports. The head
//!   trusts the node only up to the role of a user. Root on a node becomes `root@node`, and an account with a higher
//!   role becomes `name@node`.
//! - From other machines, a token identifies a user.
//! - An agent on its own behalf is identified by its certificate.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;
use hostler_core::head::{State as Cluster, Users};
use hostler_model::{NodeName, Role, Timestamp, UserName};
use hostler_proto::users::RELAY_HEADER;

use crate::blobs::name_of;
use crate::engine::Engine;
use crate::identity::{Identity, Origin, Person, Unidentified};
use crate::listen::Peer;

/// What a caller shows to be identified.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) peer: Option<Peer>,
    pub(crate) authorization: Option<HeaderValue>,
    /// The header [`RELAY_HEADER`].
    pub(crate) relayed_user: Option<HeaderValue>,
}

impl Credentials {
    pub(crate) fn of(request: &Request) -> Self {
        Self {
            peer: request.extensions().get().cloned(),
            authorization: request.headers().get(AUTHORIZATION).cloned(),
            relayed_user: request.headers().get(RELAY_HEADER).cloned(),
        }
    }
}

/// Identifies the caller of a request.
pub(crate) fn identify(engine: &Engine, shown: &Credentials) -> Identity {
    match &shown.peer {
        Some(Peer::Local { uid, user }) => {
            let owns_head = *uid == 0 || *uid == nix::unistd::geteuid().as_raw();
            let origin = Origin::Socket { uid: *uid };
            if owns_head {
                return Identity::User(Person { name: user.clone(), uid: *uid, role: Role::Admin, origin });
            }
            let state = engine.state();
            match check_name(&state, *uid, user) {
                Ok(()) => check_not_blocked(&state.users, by_kernel(&state.users, *uid, user, origin)),
                Err(why) => Identity::Unidentified(why),
            }
        }
        Some(Peer::Node(bearer)) => match &shown.relayed_user {
            // Handlers check later whether the certificate is still valid.
            None => Identity::Agent(bearer.clone()),
            Some(said) => {
                let state = engine.state();
                match state.check_key(&bearer.node, bearer.key, engine.now().at) {
                    Ok(()) => check_not_blocked(&state.users, relayed(&state, &bearer.node, said.as_bytes())),
                    Err(why) => Identity::Unidentified(Unidentified::BadNode(why)),
                }
            }
        },
        Some(Peer::Unknown) | None => match &shown.authorization {
            None => Identity::Unidentified(Unidentified::Stranger),
            Some(shown) => {
                let now = engine.now().at;
                let state = engine.state();
                check_not_blocked(&state.users, by_token(&state.users, shown.as_bytes(), now))
            }
        },
    }
}

/// Rejects users that an admin has blocked.
fn check_not_blocked(users: &Users, identity: Identity) -> Identity {
    let Identity::User(person) = &identity else { return identity };
    match users.check_not_blocked(&person.name, Some(person.uid)) {
        Ok(()) => identity,
        Err(refusal) => Identity::Unidentified(Unidentified::Blocked { uid: person.uid, refusal }),
    }
}

/// Rejects names of accounts that could be mistaken for another user. An account without a name is called by its uid.
fn check_name(state: &Cluster, uid: u32, name: &str) -> Result<(), Unidentified> {
    if name == uid.to_string() {
        return Ok(());
    }
    name.parse::<UserName>().map_err(Unidentified::UnusableName)?;
    match state.is_name_through_node(name) {
        true => Err(Unidentified::NameOfNode(name.to_owned())),
        false => Ok(()),
    }
}

/// Identifies a user by the uid and name that a kernel reported. Both must match the cluster's record, because on
/// another machine either may belong to a different person.
fn by_kernel(users: &Users, uid: u32, name: &str, origin: Origin) -> Identity {
    match users.get(name) {
        Some(user) if user.uid == uid => Identity::User(Person { name: name.to_owned(), uid, role: user.role, origin }),
        Some(user) => {
            Identity::Unidentified(Unidentified::NameMismatch { name: name.to_owned(), uid, owner_uid: user.uid })
        }
        None => match users.by_uid(uid) {
            Some(user) => Identity::Unidentified(Unidentified::UidMismatch {
                name: name.to_owned(),
                uid,
                owner: user.name.clone(),
            }),
            None => Identity::User(Person { name: name.to_owned(), uid, role: Role::User, origin }),
        },
    }
}

/// Identifies a user on a node's machine from the relay header that the node sent.
fn relayed(state: &Cluster, node: &NodeName, said: &[u8]) -> Identity {
    let parts = || -> Option<(u32, &str)> {
        let (uid, name) = std::str::from_utf8(said).ok()?.split_once(':')?;
        Some((uid.parse().ok()?, name))
    };
    let Some((uid, name)) = parts() else { return Identity::Unidentified(Unidentified::BadRelay) };
    let origin = Origin::Node { node: node.clone(), uid };
    let of_node =
        |name: &str, origin| Identity::User(Person { name: format!("{name}@{node}"), uid, role: Role::User, origin });
    if uid == 0 || name == "root" {
        return of_node("root", origin);
    }
    if let Err(why) = check_name(state, uid, name) {
        return Identity::Unidentified(why);
    }
    if name.rsplit_once('@').is_some_and(|(_, of)| of == node.as_str()) {
        return Identity::Unidentified(Unidentified::NameOfNode(name.to_owned()));
    }
    let identity = by_kernel(&state.users, uid, name, origin.clone());
    match &identity {
        // If the head trusted the node with this account, root on the node could act as the account's user.
        Identity::User(person) if state.is_privileged(uid, person.role) && !state.settings.roles_through_nodes => {
            of_node(name, origin)
        }
        Identity::User(_) | Identity::Agent(_) | Identity::Unidentified(_) => identity,
    }
}

/// Returns the user and role of a relayed request, according to the relay header that the node sent.
#[cfg(feature = "fuzzing")]
pub(crate) fn relayed_identity(state: &Cluster, node: &NodeName, said: &[u8]) -> Option<(String, Role)> {
    match relayed(state, node, said) {
        Identity::User(person) => Some((person.name, person.role)),
        Identity::Agent(_) | Identity::Unidentified(_) => None,
    }
}

/// Identifies the user of a token.
fn by_token(users: &Users, shown: &[u8], now: Timestamp) -> Identity {
    let Some(token) = shown.strip_prefix(b"Bearer ") else { return Identity::Unidentified(Unidentified::BadToken) };
    let token = name_of(token);
    match users.by_token(&token, now) {
        Some((user, _)) => {
            let (name, origin) = (user.name.to_string(), Origin::Token(token));
            Identity::User(Person { name, uid: user.uid, role: user.role, origin })
        }
        None if users.has_ended(&token, now) => Identity::Unidentified(Unidentified::ExpiredToken),
        None => Identity::Unidentified(Unidentified::BadToken),
    }
}

#[cfg(test)]
mod tests {
    use hostler_core::head::{Changes, Event, Now, Stamped, update};

    use super::*;

    #[test]
    fn account_of_the_head_has_no_privileges_through_a_node() {
        let mut state = Cluster::default();
        let event = Event::EpochStarted { epoch: state.next_epoch(), owner: Some(1000) };
        update(&mut state, &Stamped { now: Now::default(), event }, &mut Changes::default());
        let node = "n1".parse().expect("a name");
        let who = |state: &Cluster, said: &str| match relayed(state, &node, said.as_bytes()) {
            Identity::User(person) => (person.name, person.role),
            other => panic!("{other:?}"),
        };
        // The uid decides, not the name on the node.
        for (said, name) in [("1000:hostler", "hostler@n1"), ("1000:eve", "eve@n1"), ("1001:ada", "ada")] {
            assert_eq!(who(&state, said), (name.to_owned(), Role::User), "{said}");
        }
        state.settings.roles_through_nodes = true;
        assert_eq!(who(&state, "1000:hostler"), ("hostler".to_owned(), Role::User), "an admin trusts the nodes");
        assert_eq!(who(&state, "0:root").0, "root@n1");
    }
}
