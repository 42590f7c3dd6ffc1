//! REST and server-sent events under `/api/v1`, with one file per resource. Metrics have a path outside of it.
//!
//! Handlers translate between requests and the engine or the state. [`access`] identifies and authorizes callers first.
//! Handlers receive the caller as [`who::User`], [`who::Agent`] or [`who::Anyone`].

pub(crate) mod access;
mod blobs;
mod change;
mod dry_run;
pub(crate) mod error;
mod events;
pub(crate) mod extract;
mod files;
mod forward;
mod history;
mod info;
mod jobs;
mod login;
mod metrics;
mod nodes;
mod notifications;
mod openid;
mod output;
mod partitions;
mod peers;
mod records;
pub(crate) mod reply;
mod results;
mod script;
mod settings;
mod settled;
mod shutdown;
mod signal;
mod steps;
mod streams;
mod submit;
mod until;
mod usage;
mod users;
mod version;
pub(crate) mod who;

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use bytes::Bytes;
use hostler_model::{MAX_ENVIRONMENT_BYTES, MAX_SCRIPT_BYTES};
use hostler_proto::api::BASE;
use utoipa::ToSchema;

use self::error::ApiError;
use self::reply::JsonText;
use crate::head::Head;
use crate::openapi::{self, Api, Operation};
use crate::rights::Rights;
use crate::rights::Who::{Admins, Agents, Anyone, Operators, Owners, Users, UsersAndAgents, Viewers};

/// Maximum size of most JSON bodies.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Maximum size of bodies with a job. JSON needs up to six bytes for each of a script and of variables.
const MAX_JOB_BYTES: usize = 6 * (MAX_SCRIPT_BYTES + MAX_ENVIRONMENT_BYTES) + (2 << 20);

/// Maximum size of bodies that contain long lists: about two hundred thousand digests.
const MAX_LIST_BYTES: usize = 16 << 20;

/// All operations of the API.
pub(crate) static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| api().operations);

#[rustfmt::skip]
fn api() -> Api {
    let lists = Api::new()
        .post("/blobs/missing", UsersAndAgents, blobs::missing, "Returns the digests of those blobs that the head lacks.")
        .post("/blobs/fetch", UsersAndAgents, blobs::fetch, "Returns a pack with these chunks. 403 `not_in_results`.")
        .post("/users/import", Admins, users::import, "Adds all users or none. Replaces the uids, roles and groups of existing users, and adds keys.")
        .limit_bodies(MAX_LIST_BYTES);
    let submissions = Api::new()
        .post("/jobs", Users, submit::submit, "Submits a job. The head stores the job on disk before it answers. A retry with the same key returns the same job. 403 `over_quota`, `priority_too_high`, `system_account`, 409 `snapshot_missing`, `never_fits`, `bad_notification`, 507 `disk_full`.")
        .post("/submissions", Users, submit::submit_several, "Submits up to 1000 jobs. The answers have the order of the submissions, and job ids rise in this order. A refused submission has a code as in `POST /jobs`, and no effect on the others.")
        .post("/dry-run", Users, dry_run::dry_run, "Says what would happen to a job if it was submitted now, and submits nothing. Refuses what `POST /jobs` refuses, except for a missing folder.")
        .limit_bodies(MAX_JOB_BYTES);
    Api::new()
        .get("/info", Viewers, info::info, "The cluster at a glance.")
        .get("/me", Viewers, users::me, "Shows who the caller is.")
        .get("/openapi.json", Anyone, document, "Returns this document.")
        .post("/shutdown", Admins, shutdown::shutdown, "Stops the head, and the agents of an embedded cluster. 409 `jobs_live` if jobs have not ended and the request neither keeps nor cancels them.")
        .get("/nodes", Viewers, nodes::list, "Lists nodes by name.")
        .post("/nodes/invite", Admins, nodes::invite, "Creates a join code for one node. It is valid for one hour and one use.")
        .get("/nodes/{name}", Users, nodes::show, "Shows a node with its tasks and its certificate.")
        .post("/nodes/{name}/drain", Operators, nodes::drain, "Drains a node: its tasks finish, and no new tasks start.")
        .post("/nodes/{name}/resume", Operators, nodes::resume, "Ends the drain of a node.")
        .post("/nodes/{name}/traits", Operators, nodes::set_traits, "Changes a node's weight and the features that an operator assigned to it. Absent fields keep their values.")
        .post("/nodes/{name}/offer", Operators, nodes::set_offer, "Sets the most that a node offers to jobs; absent amounts are all that it has. Running jobs keep theirs. 409 `bad_partition` if the node has less.")
        .post("/nodes/{name}/power", Operators, nodes::power, "Switches a node on or off, or queries its controller. The action is complete when the node's power state shows the result.")
        .get("/energy", Viewers, nodes::energy, "Shows the energy use of the nodes that the head can switch on and off, and the energy saved by switching them off.")
        .post("/nodes/{name}/remove", Admins, nodes::remove, "Removes a node: revokes its certificate, closes its connection and gives up its tasks, in one step.")
        .post("/nodes/{name}/forget", Operators, nodes::forget, "Removes a node from the list until its agent connects again. 409 `node_in_use` while it is connected or has tasks.")
        .get("/nodes/{name}/usage", Users, usage::of_node, "Shows what a node used over time.")
        .get("/nodes/{name}/usage/live", Users, usage::node_live, "Streams what a node uses, measured every second, as server-sent events. The data of each event is a `Reading`.")
        .get("/partitions", Viewers, partitions::list, "Lists all partitions.")
        .post("/partitions", Operators, partitions::add, "Adds a partition. 409 `partition_exists`, `bad_partition`.")
        .get("/partitions/{name}", Users, partitions::show, "Shows a partition. 404 `no_such_partition`.")
        .post("/partitions/{name}", Operators, partitions::change, "Changes a partition, also for waiting jobs. Absent fields keep their values.")
        .delete("/partitions/{name}", Operators, partitions::remove, "Removes a partition. 409 `partition_in_use` while jobs wait in it.")
        .post("/partitions/{name}/invite", Admins, nodes::invite_partition, "Creates the join code for the nodes of a partition, which replaces an earlier one. It is valid for any number of machines with the name of such a node.")
        .get("/settings", Users, settings::list, "Lists all settings with their values.")
        .put("/settings/{name}", Operators, settings::set, "Changes a setting immediately and permanently. 409 `bad_setting` if the value is invalid.")
        .delete("/settings/{name}", Operators, settings::reset, "Resets a setting to its default.")
        .get("/jobs", Viewers, jobs::list, "Lists jobs.")
        .get("/records", Users, records::list, "Lists jobs with their tasks.")
        .get("/keys/{key}", Users, submit::of_key, "Finds the job that the caller submitted with this key. 404 `no_such_key` if there is none, or if it ended so long ago that it was deleted.")
        .get("/jobs/{id}", Users, jobs::show, "Shows a job with its tasks.")
        .post("/jobs/{id}", Owners, change::change, "Changes a job. Absent fields keep their values. The checks of a submission apply. 403 `forbidden`, `over_quota`, `priority_too_high`, `partition_refuses`; 409 `wrong_state`, `never_fits`, `no_such_dependency`; 507 `disk_full`.")
        .get("/jobs/{id}/why", Users, jobs::why, "Explains why a job waits.")
        .get("/jobs/{id}/script", Owners, script::show, "Shows the script of a job. 404 `no_script` if the job was not submitted as a script, or has completed.")
        .post("/jobs/{id}/cancel", Owners, jobs::cancel, "Cancels a job.")
        .post("/jobs/{id}/cancel-tasks", Owners, change::cancel_tasks, "Cancels several tasks of an array. 404 `no_such_task` if none of them exists.")
        .post("/jobs/{id}/hold", Owners, jobs::hold, "Holds a job, or one of its tasks: its pending tasks do not start.")
        .post("/jobs/{id}/release", Owners, jobs::release, "Releases a held job, or one of its held tasks.")
        .post("/jobs/{id}/requeue", Owners, jobs::requeue, "Requeues a job: it runs again from the start, except for its completed tasks. 409 `wrong_state` if all ended tasks have completed or, with `keep_files=true`, if the head lacks their files; with `completed=true`, 409 `results_not_fetched` if their user has not fetched their results. 403 `partition_refuses`; 507 `disk_full`.")
        .post("/jobs/{id}/signal", Owners, signal::signal, "Sends a signal to running processes of a job, or of one of its steps. 409 `not_running`, `several_tasks` if `step` is given without `index`.")
        .post("/jobs/{id}/duplicate", Owners, submit::duplicate, "Submits a copy of a job with changed values. 403 `priority_too_high`, `system_account`, 409 `no_environment` if the job had environment variables and has completed or belongs to another user.")
        .post("/jobs/{id}/fetched", Owners, results::fetched, "Confirms that the client has stored results safely. Has no effect on jobs of other users.")
        .get("/jobs/{id}/tasks/{index}/output/{output}", Owners, output::output, "Returns `stdout`, `stderr` or `setup` of a task. The headers contain the attempt that wrote the output (`hostler-attempt`), the offset of the first byte (`hostler-offset`) and the size of the whole output (`hostler-size`). 429 `too_many_watchers`.")
        .get("/jobs/{id}/tasks/{index}/attach", Owners, output::attach, "Attaches to a task's terminal by WebSocket. Binary messages are bytes; text messages are a new size as JSON `{\"rows\":24,\"columns\":80}`. 429 `too_many_watchers`.")
        .get("/jobs/{id}/tasks/{index}/listen", Owners, forward::listen, "Listens on a TCP port of the loopback (`port`, 0 for any) or a Unix socket (`socket`) for a running task, by WebSocket, for the job's user only. The text message `{\"listening\":8081}` comes first, then `{\"accepted\":5}` for each connection of the task, which the client opens within 10 seconds with `GET /jobs/{id}/tasks/{index}/forward?accepted=5`. The listener ends with the WebSocket, on which pings are due as for `forward`. 409 `address_taken`, `not_running`; 429 `too_many_watchers`; 502 `port_unreachable`; 503 `node_unreachable`.")
        .get("/jobs/{id}/tasks/{index}/forward", Owners, forward::forward, "Connects to the TCP port (`port`) or the Unix socket (`socket`) on which a running task listens, or to a connection that it has made (`accepted`), by WebSocket, for the job's user only. Binary messages of at most 64 KiB are bytes; the text message `{\"end\":true}` says that no more bytes follow in its direction. A connection that ends without a close frame is broken, and so is one on which nothing, not even a ping, was heard for 20 seconds: send a ping every 10 seconds. 409 `no_listener`, `not_running`; 429 `too_many_watchers`; 502 `port_unreachable`; 503 `node_unreachable`.")
        .get("/jobs/{id}/tasks/{index}/steps", Owners, steps::list, "Lists the steps that a running task has started. Its first node answers. 503 `node_unreachable`.")
        .get("/jobs/{id}/tasks/{index}/usage", Owners, usage::of_task, "Shows what the last attempt of a task used over time, on one of its nodes.")
        .get("/jobs/{id}/tasks/{index}/usage/live", Owners, usage::task_live, "Streams what a running task uses, measured every second, as server-sent events. The data of each event is a `Reading`. 409 `not_running`.")
        .post("/users", Admins, users::add, "Adds a user. 409 `user_exists`, `uid_taken`, `bad_uid`, `bad_name`; 422 `bad_key_line`.")
        .get("/users", Admins, users::list, "Lists all added users, and other accounts that are blocked or have a quota.")
        .get("/users/{name}", Owners, users::show, "Shows a user, to that user and to admins.")
        .post("/users/{name}/remove", Admins, users::remove, "Removes a user and all their tokens. Jobs, quota and accounts of machines do not change: an account of this name on a machine may still use the cluster.")
        .post("/users/{name}/block", Admins, users::block, "Blocks an account: its requests fail with 403 `blocked` and its pending jobs do not start. Running jobs continue.")
        .post("/users/{name}/unblock", Admins, users::unblock, "Unblocks an account. 409 `not_blocked`.")
        .post("/users/{name}/role", Admins, users::set_role, "Changes a user's role, from the next request on.")
        .post("/users/{name}/keys", Admins, users::change_keys, "Adds and removes SSH public keys.")
        .post("/users/{name}/quota", Admins, users::set_quota, "Sets a user's quota.")
        .post("/users/{name}/invite", Admins, users::invite, "Creates a login code for a user. It is valid for one day and one use.")
        .get("/notifications", Users, notifications::list, "Lists the destinations of notifications, without secrets, and the messages that could not be delivered: the caller's own, or all for operators.")
        .post("/notifications/test", Operators, notifications::test, "Sends a test message and waits for the outcome. 409 `not_delivered`.")
        .post("/notifications/retry", Operators, notifications::retry, "Delivers the messages again that could not be delivered.")
        .post("/notifications/clear", Operators, notifications::clear, "Deletes the messages that could not be delivered.")
        .get("/groups", Users, users::groups, "Lists the groups with a quota.")
        .post("/groups/{name}/quota", Admins, users::set_group_quota, "Sets the quota that the users of a group share.")
        .post("/groups/{name}/member-quota", Admins, users::set_member_quota, "Sets the quota of each user of a group. It counts where the user's own quota sets no limit.")
        .get("/audit", Admins, users::audit, "Shows the audit log.")
        .post("/login/challenge", Anyone, login::challenge, "Creates a challenge to sign for a login. It is valid once, for a minute.")
        .post("/login/key", Anyone, login::by_key, "Returns a token for a signed challenge. 401 `bad_challenge`, `bad_key`; 429 `too_many_logins`.")
        .post("/login/code", Anyone, login::by_code, "Returns a token for a login code. 401 `bad_code`, 429 `too_many_logins`.")
        .post("/codes/revoke", Anyone, login::revoke_code, "Revokes a login code or a join code that others may have seen. 401 `bad_code`, 429 `too_many_logins`.")
        .post("/login/openid/begin", Anyone, openid::begin, "Begins a sign-in with OpenID Connect. 409 `no_openid`, `no_site`; 502 `provider_away`.")
        .post("/login/openid", Anyone, openid::finish, "Completes a sign-in with OpenID Connect, and returns a token. 401 `sign_in_failed`, 403 `unmapped_subject`, 409 `no_openid`, `no_site`; 429 `too_many_logins`; 502 `provider_away`.")
        .post("/login/link", Users, login::link, "Creates a link that signs the caller in to the dashboard in a browser. It is valid once, for a minute. 409 `no_site`, `no_such_user`, `not_through_nodes`.")
        .post("/logout", Users, login::logout, "Revokes the token of the request. 409 `not_logged_in`.")
        .get("/accounting", Owners, history::sums, "Sums what the jobs used that ended in a period, by user, partition, job name or day. The sums outlive the jobs. Operators see all users.")
        .get("/history", Owners, history::list, "Lists ended jobs with what they used, the latest end first. Operators see all users.")
        .get("/jobs/{id}/tasks/{index}/files", Owners, files::list, "Lists the files in a task's result. 404 `no_result`, `no_such_directory`, 410 `result_dropped`.")
        .get("/jobs/{id}/tasks/{index}/file", Owners, files::file, "Returns a file of a task's result, or a range of it. 404 `no_such_file`, 416 `bad_range`.")
        .get("/results", Owners, results::list, "Lists the results that can be fetched.")
        .get("/events", Users, events::events, "Streams changes as server-sent events. The data of each event is a `Notice`.")
        .post("/blobs", UsersAndAgents, blobs::upload, "Uploads a pack of chunks. 507 `disk_full`.")
        .get("/blobs/{digest}", UsersAndAgents, blobs::show, "Returns a blob. 403 `not_in_results`.")
        .post("/snapshots/{digest}/commit", UsersAndAgents, blobs::commit, "Commits a manifest and its chunks to disk. 409 `chunks_missing`.")
        .post("/agent/join", Anyone, nodes::join, "Issues a certificate to an invited machine. 403 `not_invited` for any problem with the code, 409 `name_taken`, 429 `too_many_codes`.")
        .post("/agent/renew", Agents, nodes::renew, "Issues a certificate for a new key. The previous one is valid until the new one is used. 403 `unwelcome`.")
        .get("/agent/peers", Agents, peers::peers, "Returns the nodes that gossip about their load, and their shared secret; null if the agent already has the newest version.")
        .get("/agent/link", Agents, nodes::link, "Opens the agent link, a WebSocket of MessagePack frames.")
        .post("/agent/samples", Agents, usage::report, "Stores what a node and its runs used in the last minutes. Figures of other nodes and their runs are ignored.")
        .put("/agent/streams/{id}", Agents, streams::upload, "Uploads the output that the head requested.")
        .get("/agent/streams/{id}/terminal", Agents, streams::terminal, "Connects the terminal that the head requested, by WebSocket with the messages of `attach`.")
        .get("/agent/streams/{id}/forward", Agents, streams::forward, "Connects the port or socket that the head requested, by WebSocket with the messages of `forward`. The first message says as text whether it is connected.")
        .limit_bodies(MAX_BODY_BYTES)
        .merge(lists)
        .merge(submissions)
}

/// Who may call each operation.
pub(crate) fn rights() -> Rights {
    Rights::new(OPERATIONS.iter().map(|operation| (operation.method, operation.path, operation.who)))
}

/// The OpenAPI document, pretty-printed JSON with a final newline.
#[must_use]
pub fn openapi() -> String {
    openapi::document(&OPERATIONS)
}

/// An OpenAPI document.
#[derive(ToSchema)]
struct Document {}

/// `GET /openapi.json`. Open to anyone, because it contains nothing about this cluster.
async fn document() -> JsonText<Document> {
    // All responses share one copy.
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| openapi().into());
    JsonText::new(TEXT.clone())
}

/// The router of the API, and of the metrics.
pub(crate) fn routes(head: &Arc<Head>) -> Router {
    head.engine.metrics().add_operations(OPERATIONS.iter().map(|operation| (operation.method, operation.path)));
    let routes = api()
        .router
        .method_not_allowed_fallback(access::wrong_method)
        .fallback(no_such_route)
        .layer(from_fn_with_state((Arc::clone(head), Arc::new(rights())), access::check))
        .layer(from_fn(version::check));
    Router::new()
        .nest(BASE, routes)
        .route(hostler_metrics::PATH, get(metrics::show))
        .fallback(no_such_route)
        .with_state(Arc::clone(head))
}

/// Parses a query with every query type. Returns the number of types that accept it.
#[cfg(feature = "fuzzing")]
pub(crate) fn queries(text: &str) -> usize {
    fn reads<T: serde::de::DeserializeOwned>(uri: &axum::http::Uri) -> usize {
        usize::from(axum::extract::Query::<T>::try_from_uri(uri).is_ok())
    }
    let Ok(uri) = format!("/?{text}").parse() else { return 0 };
    let _ = extract::list::<hostler_model::JobState>(Some(text));
    let _ = extract::list::<hostler_model::TaskId>(Some(text));
    reads::<jobs::Filter>(&uri)
        + reads::<jobs::Show>(&uri)
        + reads::<jobs::TaskSelector>(&uri)
        + reads::<jobs::RequeueSelector>(&uri)
        + reads::<files::Listing>(&uri)
        + reads::<files::Wanted>(&uri)
        + reads::<forward::Wanted>(&uri)
        + reads::<history::Filter>(&uri)
        + reads::<history::Period>(&uri)
        + reads::<nodes::Filter>(&uri)
        + reads::<output::Part>(&uri)
        + reads::<output::Size>(&uri)
        + reads::<results::Filter>(&uri)
        + reads::<blobs::BlobQuery>(&uri)
        + reads::<shutdown::Shutdown>(&uri)
        + reads::<usage::Span>(&uri)
        + reads::<usage::Rank>(&uri)
        + reads::<users::Since>(&uri)
}

/// The error for a path below `/api` without an operation.
pub(crate) async fn no_such_route() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "no_such_route", "no operation exists at this path")
        .hint(format!("GET {BASE}/openapi.json describes all operations"))
}
