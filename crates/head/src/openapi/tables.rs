//! The two tables: every operation of the API, and every shape that travels.

use Payload::{Bytes, Events, Json, Nothing, WebSocket};

use crate::rights::Who::{self, Admins, Agents, Anyone, Operators, Owners, Users, UsersAndAgents};

/// One operation.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// Below [`BASE`](hostler_proto::api::BASE).
    pub(crate) path: &'static str,
    pub(crate) who: Who,
    pub(super) summary: &'static str,
    /// Name, type and meaning.
    pub(super) query: &'static [Field],
    pub(super) body: Payload,
    pub(super) answer: Payload,
}

/// A body.
#[derive(Clone, Copy)]
pub(super) enum Payload {
    Nothing,
    Json(&'static str),
    Bytes(&'static str),
    Events,
    WebSocket(&'static str),
}

/// Name, type and meaning. Types: `string`, `integer`, `boolean`, the name of a shape, `[T]` a list, `T?` may be null, and `T*`
/// may be left out.
pub(super) type Field = (&'static str, &'static str, &'static str);

const INDEX: Field = ("index", "integer", "one task of an array; all when absent");

const fn route(
    method: &'static str,
    path: &'static str,
    who: Who,
    query: &'static [Field],
    body: Payload,
    answer: Payload,
    summary: &'static str,
) -> Route {
    Route { method, path, who, summary, query, body, answer }
}

/// Every operation, as [`crate::api::routes`] has them.
#[rustfmt::skip]
pub(crate) const ROUTES: &[Route] = &[
    route("get", "/info", Users, &[], Nothing, Json("Info"), "The cluster at a glance."),
    route("get", "/openapi.json", Anyone, &[], Nothing, Json("object"), "This document."),
    route("post", "/shutdown", Admins, &[], Json("Shutdown"), Nothing, "Stops the head, and the agents of an embedded cluster. 409 `jobs_live` when jobs have not ended and are to be neither kept nor cancelled."),
    route("get", "/nodes", Users, &[], Nothing, Json("[Node]"), "Every node."),
    route("post", "/nodes/invite", Admins, &[], Json("Invite"), Json("Invitation"), "A join code for one node, good for an hour and one use."),
    route("get", "/nodes/{name}", Users, &[], Nothing, Json("NodeDetail"), "One node with its tasks and its certificate."),
    route("post", "/nodes/{name}/drain", Operators, &[], Json("Drain"), Json("NodeDetail"), "Lets a node finish what it has and gives it nothing new."),
    route("post", "/nodes/{name}/resume", Operators, &[], Nothing, Json("NodeDetail"), "Lets a drained node take work again."),
    route("post", "/nodes/{name}/remove", Admins, &[], Nothing, Nothing, "Removes a node: its certificate is revoked, its connection closed and its tasks are given up, all at once."),
    route("post", "/nodes/{name}/forget", Operators, &[], Nothing, Nothing, "Takes a node off the list until its agent connects again. 409 `node_in_use` while it is connected or a task is placed there."),
    route("get", "/settings", Users, &[], Nothing, Json("[Setting]"), "Every setting with its value."),
    route("put", "/settings/{name}", Operators, &[], Json("NewValue"), Json("Setting"), "Changes a setting, at once and for good. 422 `bad_setting`."),
    route("delete", "/settings/{name}", Operators, &[], Nothing, Json("Setting"), "Makes a setting what it is by default."),
    route("post", "/jobs", Users, &[], Json("SubmitRequest"), Json("Submitted"), "Submits a job. When this is answered the job is on disk; the same key gives the same job. 409 `snapshot_missing`, 422 `never_fits`, 507 `disk_full`."),
    route("get", "/jobs", Users, &[
        ("state", "string", "states, separated by commas; all when absent"),
        ("user", "string", "of this user; of all when absent"),
        ("limit", "integer", "at most this many, 100 when absent, never more than 1000"),
        ("before", "integer", "the `next` of the page before"),
        ("commands", "boolean", "with what each job runs"),
    ], Nothing, Json("JobPage"), "Jobs, newest first."),
    route("get", "/jobs/{id}", Users, &[
        ("tasks", "integer", "how many ended tasks to show, 100 when absent"),
        ("wait_ms", "integer", "answer when the job has ended, or after this time"),
    ], Nothing, Json("JobDetail"), "One job with its tasks."),
    route("get", "/jobs/{id}/why", Users, &[], Nothing, Json("Why"), "Why a job waits, in sentences."),
    route("post", "/jobs/{id}/cancel", Owners, &[INDEX], Nothing, Json("JobSummary"), "Ends a job."),
    route("post", "/jobs/{id}/hold", Owners, &[INDEX], Nothing, Json("JobSummary"), "Does not start what has not started."),
    route("post", "/jobs/{id}/release", Owners, &[INDEX], Nothing, Json("JobSummary"), "Undoes a hold."),
    route("post", "/jobs/{id}/requeue", Owners, &[INDEX], Nothing, Json("JobSummary"), "Runs a job again from the start."),
    route("post", "/jobs/{id}/fetched", Owners, &[], Json("Fetched"), Nothing, "Says that results are safely at the client."),
    route("get", "/jobs/{id}/tasks/{index}/output/{output}", Owners, &[
        ("from", "integer", "offset of the first byte"),
        ("follow", "boolean", "go on until the run has ended; a task that has not started is waited for"),
        ("node_rank", "integer", "of the node of this rank, for a task on several; 0 when absent"),
    ], Nothing, Bytes("application/octet-stream"), "`stdout`, `stderr` or `setup` of a task. The header `hostler-attempt` says which attempt wrote it."),
    route("get", "/jobs/{id}/tasks/{index}/attach", Owners, &[
        ("rows", "integer", "lines of the window"),
        ("columns", "integer", "characters a line"),
    ], Nothing, WebSocket("binary messages are bytes, text messages a new size as JSON `{\"rows\":24,\"columns\":80}`"), "A task's terminal."),
    route("get", "/users", Admins, &[], Nothing, Json("[User]"), "Every user that was added."),
    route("post", "/users", Admins, &[], Json("AddUser"), Json("User"), "Adds a user. 409 `user_exists`, `uid_taken`; 422 `bad_uid`, `bad_key_line`."),
    route("post", "/users/import", Admins, &[], Json("ImportUsers"), Nothing, "Adds users or replaces their uids, roles and groups, all or none; keys are added."),
    route("get", "/users/{name}", Owners, &[], Nothing, Json("User"), "One user, for themselves and admins."),
    route("post", "/users/{name}/remove", Admins, &[], Nothing, Nothing, "Removes a user and all their tokens. Their jobs stay as they are, and no account is touched."),
    route("post", "/users/{name}/role", Admins, &[], Json("SetRole"), Json("User"), "Gives a user another role, from their next request on."),
    route("post", "/users/{name}/keys", Admins, &[], Json("ChangeKeys"), Json("User"), "Adds and removes SSH public keys."),
    route("post", "/users/{name}/quota", Admins, &[], Json("Quota"), Json("User"), "Says how much a user may have."),
    route("post", "/users/{name}/invite", Admins, &[], Nothing, Json("Invitation"), "A login code for a user, good for a day and one use."),
    route("get", "/groups", Users, &[], Nothing, Json("[Group]"), "Groups that have a quota."),
    route("post", "/groups/{name}/quota", Admins, &[], Json("Quota"), Nothing, "Says how much the users of a group may have together."),
    route("get", "/audit", Admins, &[
        ("since", "integer", "only what is not older, ms since the epoch"),
        ("limit", "integer", "at most this many, the newest; 200 when absent"),
    ], Nothing, Json("AuditPage"), "Who did what."),
    route("post", "/login/challenge", Anyone, &[], Nothing, Json("Challenge"), "What to sign for a login, within a minute and once. 429 `too_many_logins`."),
    route("post", "/login/key", Anyone, &[], Json("KeyLogin"), Json("LoggedIn"), "A token for whoever has signed a challenge. 401 `bad_challenge`, `bad_key`; 429 `too_many_logins`."),
    route("post", "/login/code", Anyone, &[], Json("CodeLogin"), Json("LoggedIn"), "A token for a login code. 401 `bad_code`, 429 `too_many_logins`."),
    route("post", "/logout", Users, &[], Nothing, Nothing, "Makes the token void that the request came with. 409 `not_logged_in`."),
    route("get", "/results", Owners, &[
        ("unfetched", "boolean", "only those that were never fetched"),
        ("jobs", "string", "job ids, separated by commas; all of the user when absent"),
    ], Nothing, Json("ResultPage"), "Results that can be fetched."),
    route("get", "/events", Users, &[], Nothing, Events, "What changes, as server-sent events; each has a `Notice` as data."),
    route("post", "/blobs/missing", UsersAndAgents, &[], Json("DigestList"), Json("DigestList"), "Which of these blobs the head lacks."),
    route("post", "/blobs", UsersAndAgents, &[], Bytes("application/octet-stream"), Nothing, "Uploads a pack of chunks. 507 `disk_full`."),
    route("post", "/blobs/fetch", UsersAndAgents, &[], Json("BlobRequest"), Bytes("application/octet-stream"), "A pack with these chunks. 403 `not_in_results`."),
    route("get", "/blobs/{digest}", UsersAndAgents, &[
        ("result", "string", "the task in whose result it is, such as `12_0`; operators need not say"),
    ], Nothing, Bytes("application/octet-stream"), "One blob. 403 `not_in_results`."),
    route("post", "/snapshots/{digest}/commit", UsersAndAgents, &[], Nothing, Nothing, "Makes a manifest and its chunks durable. 409 `chunks_missing`."),
    route("post", "/agent/join", Anyone, &[], Json("JoinRequest"), Json("Joined"), "A certificate for a machine that was invited. 403 `not_invited` whatever is wrong with the code, 409 `name_taken`, 429 `too_many_codes`."),
    route("post", "/agent/renew", Agents, &[], Json("RenewRequest"), Json("Joined"), "A certificate for a new key. The one before is good until the new one is used. 403 `unwelcome`."),
    route("get", "/agent/link", Agents, &[], Nothing, WebSocket("frames of the agent link, MessagePack"), "The agent's link."),
    route("put", "/agent/streams/{id}", Agents, &[], Bytes("application/octet-stream"), Nothing, "The output that the head asked for."),
    route("get", "/agent/streams/{id}/terminal", Agents, &[], Nothing, WebSocket("as for `attach`"), "The terminal that the head asked for."),
];

/// An object: its name, meaning and fields.
pub(super) type Shape = (&'static str, &'static str, &'static [Field]);

/// Every plain object.
#[rustfmt::skip]
pub(super) const SHAPES: &[Shape] = &[
    ("Error", "An error as people read it.", &[
        ("code", "string", "a stable word for programs"),
        ("message", "string", "what happened and why"),
        ("hints", "[string]", "what to do"),
    ]),
    ("Info", "The cluster at a glance.", &[
        ("head", "HeadInfo", "the head"),
        ("nodes", "NodeCounts", "nodes by state"),
        ("tasks", "LiveCounts", "live tasks by state"),
        ("cpus", "Amount", "CPUs of the nodes that are up"),
        ("memory_bytes", "Amount", "memory of the nodes that are up"),
    ]),
    ("HeadInfo", "The head process.", &[
        ("pid", "integer", "its process id"),
        ("version", "string", "its release"),
        ("api", "integer", "the version of this API"),
        ("epoch", "integer", "how often a head has started on this store"),
        ("embedded", "boolean", "whether it is part of an embedded cluster"),
        ("address", "string", "where agents connect"),
        ("authority", "string?", "the fingerprint of the cluster's authority"),
        ("directory", "string", "its state directory"),
        ("refusing", "string?", "why submissions are refused at the moment"),
        ("results_bytes", "integer?", "what results took when that was last measured"),
        ("results_cap_bytes", "integer", "what they may take before fetched ones are dropped"),
        ("warning", "string?", "what the head's user should know"),
        ("machine", "HeadMachine?", "the machine it runs on, where it runs no jobs"),
    ]),
    ("HeadMachine", "The machine of the head.", &[
        ("name", "string", "its host name"),
        ("cpus", "integer", "CPUs that the head may use"),
        ("memory_bytes", "integer", "memory that it may use"),
    ]),
    ("NodeCounts", "Nodes by state.", &[
        ("up", "integer", "connected"),
        ("suspect", "integer", "silent for a short while"),
        ("down", "integer", "given up"),
        ("draining", "integer", "drained by an operator, with tasks that still run"),
        ("drained", "integer", "drained by an operator"),
    ]),
    ("LiveCounts", "Live tasks by state.", &[
        ("pending", "integer", "waiting"),
        ("starting", "integer", "placed, not yet running"),
        ("running", "integer", "running"),
        ("completing", "integer", "sending results"),
    ]),
    ("Amount", "A total and what is free of it.", &[
        ("total", "integer", "all"),
        ("free", "integer", "what no job holds"),
    ]),
    ("Node", "One node.", &[
        ("name", "string", "its name"),
        ("state", "NodeState", "whether it can be given work"),
        ("power", "string", "`on` or `unknown`"),
        ("cpus", "integer", "CPUs"),
        ("cpus_free", "integer", "CPUs that no job holds"),
        ("memory_bytes", "integer", "memory"),
        ("memory_free_bytes", "integer", "memory that no job holds"),
        ("tasks", "integer", "tasks it holds"),
        ("agent_pid", "integer", "the agent's process id, 0 while it is not connected"),
        ("version", "string", "the agent's release"),
        ("reason", "string?", "why it is drained and by whom"),
        ("advisory", "Advisory", "what its kernel does not hold jobs to"),
    ]),
    ("Advisory", "What a node's kernel does not hold jobs to, and why; null for what it does.", &[
        ("cpus", "string?", "a job may use other CPUs than its own"),
        ("memory", "string?", "a job may use more memory than it asked for"),
        ("users", "string?", "jobs of different users run as one"),
    ]),
    ("NodeDetail", "All about one node, besides what a `Node` has.", &[
        ("drain", "DrainView?", "who drained it, when and why"),
        ("silent_ms", "integer", "how long ago its agent was last heard, 0 while it is connected"),
        ("cpu_ids", "string", "the CPUs it gives, such as `0-3,8`"),
        ("runs", "[NodeRun]", "the tasks it holds"),
        ("certificate", "Certificate?", "its certificate"),
    ]),
    ("DrainView", "An operator's wish that nothing new be placed on a node.", &[
        ("by", "string", "who wanted it"),
        ("reason", "string?", "why, in their words"),
        ("at", "integer", "when"),
    ]),
    ("NodeRun", "A task on a node.", &[
        ("job", "integer", "the job"),
        ("index", "integer", "the task's index, 0 for a job that is no array"),
        ("cpu_ids", "string", "the CPUs it holds"),
        ("memory_bytes", "integer", "the memory it holds"),
    ]),
    ("Certificate", "A node's certificate, by the cluster's clock.", &[
        ("age_ms", "integer", "how long ago it was issued"),
        ("life_ms", "integer", "how long it is good for in all"),
        ("is_being_renewed", "boolean", "whether a newer one was issued and has not been used yet"),
    ]),
    ("Drain", "Why a node is drained.", &[("reason", "string?*", "one line of at most 500 bytes")]),
    ("Shutdown", "What a shutdown does about jobs that have not ended.", &[
        ("jobs", "LiveJobs*", "`refuse` when absent"),
    ]),
    ("BlobRequest", "Blobs that are asked for.", &[
        ("digests", "[string]", "content hashes"),
        ("results", "[TaskId]*", "tasks whose results name them; agents and operators need not say"),
    ]),
    ("TaskId", "One task of a job.", &[
        ("job", "integer", "the job"),
        ("index", "integer", "its index, 0 when the job is no array"),
    ]),
    ("User", "A user.", &[
        ("name", "string", "the name, on every machine"),
        ("uid", "integer", "the uid, on every machine"),
        ("role", "Role", "what they may do"),
        ("groups", "[string]", "groups, for quotas"),
        ("keys", "[string]", "SSH public keys, as lines of an authorized_keys file"),
        ("quota", "Quota", "how much they may have"),
    ]),
    ("AddUser", "A user to be added. Unknown fields are errors.", &[
        ("name", "string", "up to 32 lower-case letters, digits, `-` and `_`"),
        ("uid", "integer?*", "when absent that of the account of this name on the head's machine, or one that is free"),
        ("role", "Role*", "`user` when absent"),
        ("groups", "[string]*", "groups, for quotas"),
        ("keys", "[string]*", "SSH public keys, as lines of an authorized_keys file"),
    ]),
    ("ImportUsers", "Users to be added or changed.", &[("users", "[AddUser]", "all or none")]),
    ("SetRole", "Another role.", &[("role", "Role", "the new role")]),
    ("ChangeKeys", "SSH public keys that come and go.", &[
        ("add", "[string]*", "these come"),
        ("remove", "[string]*", "these go; they need not carry their comment"),
    ]),
    ("Quota", "How much somebody may have. What is absent is not limited.", &[
        ("cpus", "integer?*", "CPUs of what runs"),
        ("memory_bytes", "integer?*", "memory of what runs"),
        ("jobs", "integer?*", "tasks that run"),
        ("queued", "integer?*", "tasks that wait"),
    ]),
    ("Group", "A group that has a quota.", &[
        ("name", "string", "the group"),
        ("quota", "Quota", "what its users may have together"),
    ]),
    ("Challenge", "What to sign.", &[
        ("nonce", "string", "random, used up by the first login that names it"),
        ("cluster", "string", "the fingerprint of the cluster's authority"),
    ]),
    ("KeyLogin", "A signed challenge.", &[
        ("user", "string", "the user's name"),
        ("nonce", "string", "the challenge's"),
        ("signature", "string", "as `ssh-keygen -Y sign -n hostler-login@v1` writes it, of the lines `hostler-login@v1`, `cluster CLUSTER`, `nonce NONCE`, `user USER`"),
    ]),
    ("CodeLogin", "A login code's secret.", &[("secret", "string", "good once")]),
    ("LoggedIn", "A token.", &[
        ("user", "string", "whom it stands for"),
        ("role", "Role", "their role now"),
        ("token", "string", "for the header `Authorization: Bearer`"),
        ("ends_in_ms", "integer", "how long it is good for, in the head's running time"),
    ]),
    ("AuditEntry", "Something that somebody did or tried to do.", &[
        ("at", "integer", "ms since the epoch, on the head's wall clock"),
        ("clock_ms", "integer", "on the cluster's clock"),
        ("user", "string?", "who; null for somebody who is not known"),
        ("from", "string", "`socket`, `node`, `token` or `stranger`"),
        ("uid", "integer?", "the uid that the kernel named, here or on the node"),
        ("node", "string?", "the node through which it came, or which it was itself"),
        ("address", "string?", "the address it came from"),
        ("action", "string", "a method and a path of this API"),
        ("about", "string?", "what came into being by it"),
        ("status", "integer", "the HTTP status of the answer"),
        ("error", "string?", "the code of the error, when it was refused"),
    ]),
    ("AuditPage", "A part of the audit log.", &[
        ("entries", "[AuditEntry]", "oldest first"),
        ("cut", "boolean", "whether older ones were left out"),
    ]),
    ("Invite", "Whom to invite.", &[
        ("node", "string?*", "the node's name; any new one when absent"),
        ("address", "string?*", "where the node finds the head, `HOST:PORT`; what the head advertises when absent"),
    ]),
    ("Invitation", "An invitation.", &[("code", "string", "a join code, or a login code")]),
    ("SubmitRequest", "A submission.", &[
        ("key", "string", "made by the client, unique for each intended submission"),
        ("spec", "JobSpec", "what to run"),
        ("unsaid", "[Unsaid]*", "of what the user has not said: there, what operators have set replaces what `spec` says"),
    ]),
    ("Submitted", "An accepted submission.", &[
        ("id", "integer", "the job"),
        ("duplicate", "boolean", "whether this key had been accepted before"),
    ]),
    ("JobSpec", "What to run and what it may use. Unknown fields are errors.", &[
        ("name", "string", "1 to 255 characters"),
        ("work", "Work", "what to run"),
        ("request", "Request", "what each task needs on each of its nodes"),
        ("nodes", "integer*", "on how many nodes each task runs, all at once; 1 when absent"),
        ("tasks_per_node", "integer*", "how many processes each task has on each node; 1 when absent"),
        (
            "first_node",
            "boolean*",
            "start the program on the first node only; the others take the steps that it launches there",
        ),
        ("label", "boolean*", "begin every line of output with the rank of the process that wrote it"),
        ("time_limit_ms", "integer*", "how long a task may run"),
        ("array", "string*", "indices such as `0-99%10`"),
        ("after", "[string]*", "dependencies such as `afterok:12`"),
        ("priority", "integer*", "higher goes first"),
        ("hold", "boolean*", "wait until released"),
        ("requeue", "boolean*", "run again when its node is lost"),
        ("environment", "Environment*", "variables of its processes"),
        ("pty", "WindowSize*", "run it in a terminal of this size"),
        ("grace_ms", "integer*", "between TERM and KILL"),
        ("umask", "integer*", "the umask of its processes"),
    ]),
    ("Request", "What each task needs.", &[
        ("cpus", "integer", "CPUs, at least 1"),
        ("memory_bytes", "integer", "memory"),
        ("gpus", "integer*", "GPUs; none when absent"),
    ]),
    ("WindowSize", "The size of a terminal.", &[
        ("rows", "integer", "lines"),
        ("columns", "integer", "characters a line"),
    ]),
    ("JobPage", "A page of jobs.", &[
        ("jobs", "[JobSummary]", "newest first"),
        ("total", "integer", "how many match in all"),
        ("next", "integer?", "pass as `before` for the next page"),
    ]),
    ("JobSummary", "A job in a list.", JOB),
    ("TaskCounts", "Tasks of a job by state.", &[
        ("total", "integer", "all"),
        ("pending", "integer", "waiting"),
        ("live", "integer", "placed, running or sending results"),
        ("completed", "integer", "ended with exit code 0"),
        ("failed", "integer", "ended in any other way"),
    ]),
    ("JobDetail", "A job with its tasks: what the list shows, and more.", &[
        ("priority", "integer", "higher goes first"),
        ("requeue", "boolean", "run again when its node is lost"),
        ("after", "[string]", "dependencies"),
        ("command", "string", "what it runs"),
        ("snapshot", "string?", "the captured folder; its owner and operators see it"),
        ("limits", "[Limit]", "each limit and whether the kernel enforces it"),
        ("unfetched", "integer", "tasks whose results have not been fetched"),
        ("tasks_shown", "[Task]", "its tasks: all that are placed, and the first that ended"),
    ]),
    ("Limit", "A limit on a job.", &[
        ("name", "string", "`cpus`, `memory` or `time`"),
        ("value", "integer", "a count, bytes or milliseconds"),
        ("enforcement", "string", "`enforced` or `advisory`"),
        ("why", "string?", "why it is advisory"),
    ]),
    ("Task", "One task of a job.", &[
        ("index", "integer", "its index"),
        ("state", "JobState", "where it stands"),
        ("attempt", "integer", "which placement"),
        ("node", "string?", "where"),
        ("exit_code", "integer?", "what the shell would show"),
        ("message", "string?", "what a person should know beyond the state"),
        ("started_at", "integer?", "ms since the epoch"),
        ("ended_at", "integer?", "ms since the epoch"),
        ("result", "string?", "the hash of its result manifest"),
        ("fetched", "boolean", "whether its result has been fetched"),
        ("usage", "Usage?", "what it used, on all of its nodes together"),
        ("parts", "[Part]*", "what it has on each of its nodes, by rank; absent for a task on one node"),
    ]),
    ("Part", "What a task on several nodes has on one of them.", &[
        ("node", "string", "where"),
        ("state", "JobState", "where it stands there"),
        ("exit_code", "integer?", "what the shell would show"),
        ("message", "string?", "what a person should know beyond that"),
        ("result", "string?", "the hash of its result manifest"),
        ("usage", "Usage?", "what it used"),
    ]),
    ("Setting", "A setting of the head.", &[
        ("name", "string", "its name"),
        ("unit", "string", "`time`, `size`, `number` or `word`"),
        ("meaning", "string", "what it means"),
        ("allowed", "string", "what it may be"),
        ("default", "string", "what it is when nobody has set it"),
        ("value", "string", "what it is, as people write it"),
        ("source", "string", "`default`, `file` (what the head was started with) or `set`"),
        ("by", "string?", "who has set it"),
        ("set_at", "integer?", "when, ms since the epoch"),
    ]),
    ("NewValue", "What a setting is to be.", &[("value", "string", "as people write it, such as `90s`, `14d` or `2G`")]),
    ("Usage", "What a run used.", &[
        ("wall_ms", "integer", "from start to end"),
        ("user_ms", "integer", "CPU time in user mode"),
        ("system_ms", "integer", "CPU time in the kernel"),
        ("max_rss_bytes", "integer", "largest resident memory of one process"),
        ("memory_peak_bytes", "integer?", "the most memory in use at once, files in memory included"),
        ("io", "IoUsage?", "what it read and wrote"),
    ]),
    ("IoUsage", "What a run read from and wrote to disks, as opposed to memory.", &[
        ("read_bytes", "integer", "read"),
        ("write_bytes", "integer", "written"),
        ("source", "string", "`cgroup`, or `processes`: only those that their parents waited for"),
    ]),
    ("Why", "Why a job waits.", &[
        ("id", "integer", "the job"),
        ("state", "JobState", "where it stands"),
        ("reason", "Reason?", "why it waits; null when it does not"),
        ("lines", "[string]", "the same as sentences, the first being the answer"),
        ("expected_start_at", "integer?", "when it should start at the latest, ms since the epoch"),
    ]),
    ("Fetched", "Results that are safely at the client.", &[("indices", "string", "task indices such as `0-5,7`")]),
    ("ResultPage", "Results.", &[("results", "[Result]", "in order of job and index")]),
    ("Result", "One result.", &[
        ("job", "integer", "the job"),
        ("name", "string", "the job's name"),
        ("index", "integer?", "the task's index; null when the job is no array"),
        ("node_rank", "integer*", "the rank of the node that it is from, for a task on several; 0 comes last"),
        ("state", "JobState", "how it ended"),
        ("manifest", "string", "the hash of its result manifest"),
        ("fetched", "boolean", "whether it has been fetched before"),
    ]),
    ("DigestList", "Hashes.", &[("digests", "[string]", "BLAKE3, 64 hexadecimal digits each")]),
    ("JoinRequest", "A node that was invited.", &[
        ("secret", "string", "the one-time secret of the join code"),
        ("node", "string?*", "its name; that of the code when absent"),
        ("machine", "string?*", "the machine's name, for a node that neither this nor the code names"),
        ("csr", "string", "a certificate signing request, PEM"),
    ]),
    ("RenewRequest", "A node whose certificate is to be renewed.", &[
        ("csr", "string", "a certificate signing request, PEM, for a new key"),
    ]),
    ("Joined", "A node's certificate.", &[
        ("certificate", "string", "PEM"),
        ("authority", "string", "the cluster's authority, PEM"),
        ("node", "string", "the node's name"),
        ("renew_in_ms", "integer", "in how long the agent should ask for the next one"),
    ]),
];

/// The fields of a job in a list, which its details have as well.
pub(super) const JOB: &[Field] = &[
    ("id", "integer", "its id"),
    ("name", "string", "its name"),
    ("user", "string", "who submitted it"),
    ("state", "JobState", "where it stands"),
    ("reason", "string?", "why it waits, as a sentence"),
    ("attempt", "integer", "how many times it has been placed"),
    ("nodes", "[string]", "where it runs or ran"),
    ("exit_code", "integer?", "what the shell would show"),
    ("command", "string*", "what it runs; in lists only when that is asked for"),
    ("node_count", "integer", "on how many nodes a task runs"),
    ("cpus", "integer", "CPUs a task, on each of its nodes"),
    ("memory_bytes", "integer", "memory a task"),
    ("array", "string?", "the array, as it was asked for"),
    ("tasks", "TaskCounts", "tasks by state"),
    ("submitted_at", "integer", "ms since the epoch"),
    ("started_at", "integer?", "ms since the epoch"),
    ("ended_at", "integer?", "ms since the epoch"),
];
