//! Nodes: lists, details, operations, joining, and the agent link.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::StatusCode;
use axum::response::{NoContent, Response};
use axum::{Extension, Json};
use hostler_core::head::{self as head_core, Command, Node, PartitionsCommand, PowerCommand, Refusal};
use hostler_model::{Feature, NodeName, NodeState, Offer, ParseError, PartitionName, format_duration};
use hostler_proto::api::{DrainRequest, Invitation, Invite, JoinRequest, Joined, NodeDetail, NodeView, RenewRequest};
use hostler_proto::join::{Address, JoinCode};
use hostler_proto::link::MAX_FRAME_BYTES;
use hostler_proto::partitions::{InvitePartition, TraitsChange};
use hostler_proto::power::{EnergyView, PowerAction, PowerRequest};
use hostler_snapshot::chunk::digest_of;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa::openapi::{ObjectBuilder, Schema, Type};

use super::error::ApiError;
use super::extract::{Json as Body, Path, Query, list as parse_list};
use super::reply::List;
use super::who::{Certified, User};
use crate::answers::Answer;
use crate::audit::About;
use crate::head::Head;
use crate::invitations::{Candidate, NotInvited, Ticket, by_partition_code, partition_code};
use crate::listen::Visitor;
use crate::trust::{BadRequest, Bearer, Issued};
use crate::{link, views};

/// Delay of the response to a wrong join code.
const WRONG_CODE_PAUSE: Duration = Duration::from_secs(1);

/// Longest text to search for, in characters.
const LONGEST_TEXT: usize = 100;

/// Memory to reserve for each node of a list.
const NODE_BYTES: usize = 2 << 10;

/// Memory to reserve for each task of a list.
const TASK_BYTES: usize = 512;

/// The query of `GET /nodes`.
#[derive(Default, Deserialize, ToSchema)]
pub(crate) struct Filter {
    /// States, separated by commas; all if absent.
    #[schema(schema_with = states_schema)]
    state: Option<String>,
    /// Only nodes of this partition.
    partition: Option<PartitionName>,
    /// Only nodes with this feature.
    feature: Option<Feature>,
    /// Only nodes whose name, partitions, features, drain reason, or users and names of jobs contain this text. Case
    /// does not matter.
    #[schema(max_length = 100)]
    text: Option<String>,
    /// Name of the last node of the previous page; only nodes with later names are listed.
    after: Option<NodeName>,
    /// Maximum number of nodes; all if absent.
    #[schema(value_type = Option<u32>, minimum = 1)]
    limit: Option<NonZeroU32>,
    /// Include the tasks that hold resources on each node.
    #[serde(default)]
    holders: bool,
    /// Include what agents measured last.
    #[serde(default)]
    measured: bool,
}

fn states_schema() -> Schema {
    let states = NodeState::ALL.map(NodeState::as_str).join("|");
    let pattern = format!("^({states})(,({states}))*$");
    ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(pattern))
        .description(Some("States, separated by commas; all if absent."))
        .into()
}

/// `GET /nodes`, by name.
pub(crate) async fn list(
    _: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Query(filter): Query<Filter>,
) -> Result<List<NodeView>, ApiError> {
    let wanted = Wanted::new(&filter)?;
    let page = |state: &head_core::State, most: usize| -> Vec<NodeName> {
        let after = |node: &&Node| filter.after.as_ref().is_none_or(|after| node.name > *after);
        let nodes = state.nodes().filter(after).filter(|node| wanted.includes(state, node));
        nodes.take(most).map(|node| node.name.clone()).collect()
    };
    let most = filter.limit.map_or(usize::MAX, |limit| limit.get() as usize);
    let bytes = {
        let state = head.engine.state();
        let names = page(&state, most);
        let runs: usize = names.iter().filter_map(|name| state.node(name)).map(|node| node.runs.len()).sum();
        names.len() * NODE_BYTES + if filter.holders { runs * TASK_BYTES } else { 0 }
    };
    answer.reserve(&head.client_limits, bytes).await;
    let (now, state) = (head.engine.now(), head.engine.state());
    let shared = views::SharedCpus::of(state.nodes());
    let views = page(&state, most).into_iter().filter_map(|name| {
        let node = state.node(&name)?;
        let holders = filter.holders.then(|| views::holders(&state, node));
        let measured = head.usage.last_of(&name, now.wall).filter(|_| filter.measured);
        Some(NodeView { holders, measured, ..views::node(&state, node, &shared, now) })
    });
    Ok(List(views.collect()))
}

/// Which nodes a list includes.
struct Wanted<'a> {
    states: Vec<NodeState>,
    filter: &'a Filter,
    /// In lower case; absent if empty.
    text: Option<String>,
}

impl<'a> Wanted<'a> {
    fn new(filter: &'a Filter) -> Result<Self, ApiError> {
        let text = filter.text.as_deref().map(str::trim).filter(|text| !text.is_empty());
        if text.is_some_and(|text| text.chars().count() > LONGEST_TEXT) {
            return Err(ApiError::bad_request("`text` has at most 100 characters"));
        }
        Ok(Self { states: parse_list(filter.state.as_deref())?, filter, text: text.map(str::to_lowercase) })
    }

    fn includes(&self, state: &head_core::State, node: &Node) -> bool {
        let Filter { partition, feature, .. } = self.filter;
        (self.states.is_empty() || self.states.contains(&state.node_state(node)))
            && partition.as_ref().is_none_or(|name| state.partitions_of(&node.name).any(|it| it.name == *name))
            && feature.as_ref().is_none_or(|feature| state.features_of(node).contains(feature))
            && self.text.as_ref().is_none_or(|text| is_found(state, node, text))
    }
}

/// Whether a node, or a job on it, contains a text in lower case.
fn is_found(state: &head_core::State, node: &Node, text: &str) -> bool {
    let has = |field: &str| field.to_lowercase().contains(text);
    has(node.name.as_str())
        || node.drain.as_ref().is_some_and(|drain| drain.reason.as_deref().is_some_and(has))
        || state.partitions_of(&node.name).any(|partition| has(partition.name.as_str()))
        || state.features_of(node).iter().any(|feature| has(feature.as_str()))
        || node.runs.keys().filter_map(|run| state.job(run.task.job)).any(|job| has(&job.user) || has(&job.spec.name))
}

/// `GET /nodes/{name}`.
pub(crate) async fn show(
    _: User,
    State(head): State<Arc<Head>>,
    Path(name): Path<NodeName>,
) -> Result<Json<NodeDetail>, ApiError> {
    let (now, state) = (head.engine.now(), head.engine.state());
    let node = state.node(&name).ok_or_else(|| Refusal::NoSuchNode(name.clone()))?;
    let mut detail = views::node_detail(&state, node, now);
    detail.node.measured = head.usage.last_of(&name, now.wall);
    Ok(Json(detail))
}

/// `POST /nodes/invite`.
pub(crate) async fn invite(
    user: User,
    State(head): State<Arc<Head>>,
    Body(Invite { node, address }): Body<Invite>,
) -> Result<(Extension<About>, Json<Invitation>), ApiError> {
    user.require_operator("invite nodes")?;
    let address = address_for_nodes(&head, address)?;
    let name = node.as_ref().map_or("any", NodeName::as_str);
    tracing::info!(node = name, by = user.0.user, "node invited");
    let about = About(format!("node {name}"));
    let secret = head.trust.invitations.invite(node);
    Ok((Extension(about), Json(join_code(&head, address, secret))))
}

/// `POST /partitions/{name}/invite`.
pub(crate) async fn invite_partition(
    user: User,
    State(head): State<Arc<Head>>,
    Path(partition): Path<PartitionName>,
    Body(InvitePartition { valid_ms, address }): Body<InvitePartition>,
) -> Result<Json<Invitation>, ApiError> {
    user.require_operator("invite nodes")?;
    let address = address_for_nodes(&head, address)?;
    let (secret, code) = partition_code(valid_ms, head.engine.now().wall).map_err(ApiError::bad_request)?;
    head.engine.command(Command::Partitions(PartitionsCommand::Invite(partition.clone(), code))).await?;
    tracing::info!(%partition, by = user.0.user, "nodes of a partition invited");
    Ok(Json(join_code(&head, address, secret)))
}

/// The address of the head in a join code.
fn address_for_nodes(head: &Head, given: Option<String>) -> Result<String, ApiError> {
    let Some(text) = given else { return Ok(head.address()) };
    let address: Address = text.parse().map_err(|error: ParseError| ApiError::bad_request(error.to_string()))?;
    Ok(Address { port: address.port.or(Some(head.bound.port())), ..address }.to_string())
}

fn join_code(head: &Head, address: String, secret: String) -> Invitation {
    Invitation { code: JoinCode { address, authority: head.trust.fingerprint(), secret }.to_string() }
}

/// `POST /nodes/{name}/drain`.
pub(crate) async fn drain(
    user: User,
    State(head): State<Arc<Head>>,
    Path(node): Path<NodeName>,
    Body(DrainRequest { reason }): Body<DrainRequest>,
) -> Result<Json<NodeDetail>, ApiError> {
    user.require_operator("drain nodes")?;
    let by = user.0.user.clone();
    tracing::info!(%node, by, reason, "draining node");
    head.engine.command(Command::DrainNode { node: node.clone(), by, reason }).await?;
    show(user, State(head), Path(node)).await
}

/// `POST /nodes/{name}/resume`.
pub(crate) async fn resume(
    user: User,
    State(head): State<Arc<Head>>,
    Path(node): Path<NodeName>,
) -> Result<Json<NodeDetail>, ApiError> {
    user.require_operator("resume nodes")?;
    tracing::info!(%node, by = user.0.user, "resuming node");
    head.engine.command(Command::ResumeNode { node: node.clone() }).await?;
    show(user, State(head), Path(node)).await
}

/// `POST /nodes/{name}/power`.
pub(crate) async fn power(
    user: User,
    State(head): State<Arc<Head>>,
    Path(node): Path<NodeName>,
    Body(PowerRequest { action, force }): Body<PowerRequest>,
) -> Result<(Extension<About>, Json<NodeDetail>), ApiError> {
    user.require_operator("switch nodes")?;
    let by = user.0.user.clone();
    // A fault of the controller may have been repaired.
    head.switches.forget_faults(&node);
    let command = match action {
        PowerAction::On => PowerCommand::On { node: node.clone(), by: by.clone() },
        PowerAction::Off => PowerCommand::Off { node: node.clone(), by: by.clone(), force },
        PowerAction::Look => PowerCommand::Look { node: node.clone() },
    };
    head.engine.command(Command::Power(command)).await?;
    if action != PowerAction::Look {
        tracing::info!(%node, by, ?action, force, "switching node");
    }
    let about = format!("{action:?}{}", if force { " by force" } else { "" }).to_lowercase();
    Ok((Extension(About(about)), show(user, State(head), Path(node)).await?))
}

/// `GET /energy`.
pub(crate) async fn energy(
    _: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
) -> Json<EnergyView> {
    let count = head.engine.state().nodes().count();
    answer.reserve(&head.client_limits, count * NODE_BYTES).await;
    let warning = head.switches.warning();
    let (now, state) = (head.engine.now(), head.engine.state());
    Json(views::energy(&state, now, warning, head.switches.price().as_ref()))
}

/// `POST /nodes/{name}/traits`.
pub(crate) async fn set_traits(
    user: User,
    State(head): State<Arc<Head>>,
    Path(node): Path<NodeName>,
    Body(TraitsChange { weight, features }): Body<TraitsChange>,
) -> Result<Json<NodeDetail>, ApiError> {
    user.require_operator("change features and weights of nodes")?;
    let command = PartitionsCommand::SetTraits { node: node.clone(), weight, features };
    head.engine.command(Command::Partitions(command)).await?;
    tracing::info!(%node, by = user.0.user, "node features or weight changed");
    show(user, State(head), Path(node)).await
}

/// `POST /nodes/{name}/offer`.
pub(crate) async fn set_offer(
    user: User,
    State(head): State<Arc<Head>>,
    Path(node): Path<NodeName>,
    Body(offer): Body<Offer>,
) -> Result<Json<NodeDetail>, ApiError> {
    user.require_operator("change what nodes offer")?;
    head.engine.command(Command::Partitions(PartitionsCommand::SetOffer(node.clone(), offer))).await?;
    tracing::info!(%node, by = user.0.user, "node offer changed");
    show(user, State(head), Path(node)).await
}

/// `POST /nodes/{name}/remove`.
pub(crate) async fn remove(
    user: User,
    State(head): State<Arc<Head>>,
    Path(node): Path<NodeName>,
) -> Result<NoContent, ApiError> {
    user.require_operator("remove nodes")?;
    let by = user.0.user.clone();
    head.engine.command(Command::RemoveNode { node: node.clone(), by: by.clone() }).await?;
    tracing::info!(%node, by, "node removed");
    Ok(NoContent)
}

/// `POST /nodes/{name}/forget`.
pub(crate) async fn forget(
    user: User,
    State(head): State<Arc<Head>>,
    Path(node): Path<NodeName>,
) -> Result<NoContent, ApiError> {
    user.require_operator("forget nodes")?;
    head.engine.command(Command::ForgetNode { node: node.clone() }).await?;
    tracing::info!(%node, by = user.0.user, "node forgotten");
    Ok(NoContent)
}

/// `POST /agent/join`. Open to anyone; the secret proves the invitation.
pub(crate) async fn join(
    State(head): State<Arc<Head>>,
    visitor: Option<Extension<Visitor>>,
    Body(request): Body<JoinRequest>,
) -> Result<(Extension<About>, Json<Joined>), ApiError> {
    let from = visitor.map(|Extension(visitor)| visitor.from.ip());
    let candidate = Candidate {
        secret: &request.secret,
        node: request.node.as_ref(),
        machine: request.machine.as_ref(),
        request: digest_of(request.csr.as_bytes()),
    };
    let taken = head.trust.invitations.take(&candidate);
    let by_partition_code = || by_partition_code(&head.engine.state(), &candidate, head.engine.now().wall);
    let ticket = match taken.or_else(|error| by_partition_code().unwrap_or(Err(error))) {
        Ok(ticket) => ticket,
        Err(error @ NotInvited::Wrong) => {
            let wait = head.failures.count(from);
            tokio::time::sleep(WRONG_CODE_PAUSE).await;
            if let Some(wait) = wait {
                let message = format!("{error}; there were too many failures from this address");
                return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_codes", message)
                    .hint(format!("try again in {}", format_duration(wait))));
            }
            tracing::warn!(?from, "a machine sent an invalid join code");
            return Err(refusal(&error));
        }
        Err(error) => return Err(refusal(&error)),
    };
    let joined = match &request.busy_as {
        Some(present) if *present != ticket.node => Err(still_busy(present, &ticket.node)),
        _ => admit(&head, &ticket, &request.csr).await,
    };
    if joined.is_err() {
        head.trust.invitations.give_back(&candidate);
    }
    joined.map(|joined| (Extension(About(format!("node {}", joined.node))), Json(joined)))
}

/// Refuses another name for a machine with tasks. The join code stays valid.
fn still_busy(present: &NodeName, new: &NodeName) -> ApiError {
    let message = format!("this machine is node {present} and has tasks; they would end if it became node {new}");
    ApiError::new(StatusCode::CONFLICT, "busy_machine", message)
        .hint("wait until they have ended, or use `hostler agent join --end-tasks`")
}

/// Signs a certificate for the machine that redeemed an invitation, and adds the machine to the nodes.
async fn admit(head: &Head, ticket: &Ticket, csr: &str) -> Result<Joined, ApiError> {
    let Ticket { node, replaces } = ticket.clone();
    let issued = head.trust.sign(&node, csr)?;
    let life_ms = head.config.certificate_life_ms;
    let join = Command::Join { node: node.clone(), key: issued.key, life_ms, replaces };
    head.engine.command(join).await?;
    tracing::info!(%node, "node joined");
    Ok(joined(head, node, issued))
}

/// `POST /agent/renew`: a certificate for a new key, for an agent with a valid certificate.
pub(crate) async fn renew(
    Certified(Bearer { node, key }): Certified,
    State(head): State<Arc<Head>>,
    Body(RenewRequest { csr }): Body<RenewRequest>,
) -> Result<Json<Joined>, ApiError> {
    let issued = head.trust.sign(&node, &csr)?;
    let life_ms = head.config.certificate_life_ms;
    let renew = Command::Renew { node: node.clone(), with: key, key: issued.key, life_ms };
    head.engine.command(renew).await?;
    tracing::info!(%node, "certificate renewed");
    Ok(Json(joined(&head, node, issued)))
}

/// Creates the response with a new certificate.
fn joined(head: &Head, node: NodeName, issued: Issued) -> Joined {
    let now = head.engine.now().at;
    let renew_in_ms = head.engine.state().renew_in_ms(&node, issued.key, now).unwrap_or_default();
    Joined { certificate: issued.certificate, authority: head.trust.authority().to_owned(), node, renew_in_ms }
}

fn refusal(error: &NotInvited) -> ApiError {
    match error {
        NotInvited::Wrong => ApiError::new(StatusCode::FORBIDDEN, "not_invited", error.to_string())
            .hint("`hostler node invite` on the head's machine creates a new code"),
        NotInvited::Nameless => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "nameless", error.to_string())
            .hint("choose a name for the node with `--name`"),
        NotInvited::NotInPartition { .. } => ApiError::new(StatusCode::FORBIDDEN, "other_nodes", error.to_string())
            .hint("name the machine like one of them, or choose a name with `--name`"),
    }
}

impl From<BadRequest> for ApiError {
    fn from(error: BadRequest) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_csr", error.to_string())
    }
}

/// `GET /agent/link`, a WebSocket.
///
/// Accepts any certificate of the cluster. The hello exchange checks whether the certificate is still valid, so that a
/// rejected agent gets a reason.
pub(crate) async fn link(
    Certified(bearer): Certified,
    Extension(Visitor { connection, .. }): Extension<Visitor>,
    State(head): State<Arc<Head>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade
        .max_message_size(MAX_FRAME_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        // The limit applies to a single frame, because each frame is flushed before the next one.
        .max_write_buffer_size(2 * MAX_FRAME_BYTES)
        // The buffer is zeroed before every read, and most frames are small.
        .read_buffer_size(8 << 10)
        .on_upgrade(move |socket| {
            let tasks = head.tasks.clone();
            tasks.track_future(link::serve(head, bearer, connection, socket))
        })
}
