//! Partitions: lists, details and changes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::NoContent;
use hostler_core::head::{Command, PartitionsCommand, Refusal};
use hostler_model::PartitionName;
use hostler_proto::partitions::{NewPartition, PartitionChange, PartitionView};

use super::error::ApiError;
use super::extract::{Json as Body, Path};
use super::reply::List;
use super::who::User;
use crate::head::Head;
use crate::views;

/// `GET /partitions`.
pub(crate) async fn list(_: User, State(head): State<Arc<Head>>) -> List<PartitionView> {
    let (state, ends, now) = (head.engine.state(), head.engine.metrics().ends(), head.engine.now().wall);
    List(state.partitions.iter().map(|partition| views::partition(&state, partition, ends, now)).collect())
}

/// `GET /partitions/{name}`.
pub(crate) async fn show(
    _: User,
    State(head): State<Arc<Head>>,
    Path(name): Path<PartitionName>,
) -> Result<Json<PartitionView>, ApiError> {
    let state = head.engine.state();
    let partition = state.partitions.get(&name).ok_or_else(|| Refusal::NoSuchPartition {
        partition: name.clone(),
        there: state.partitions.iter().map(|partition| partition.name.clone()).collect(),
    })?;
    Ok(Json(views::partition(&state, partition, head.engine.metrics().ends(), head.engine.now().wall)))
}

/// `POST /partitions`.
pub(crate) async fn add(
    user: User,
    State(head): State<Arc<Head>>,
    Body(NewPartition { name, about }): Body<NewPartition>,
) -> Result<Json<PartitionView>, ApiError> {
    user.require_operator("add partitions")?;
    head.engine.command(Command::Partitions(PartitionsCommand::Add(name.clone(), about))).await?;
    tracing::info!(%name, by = user.0.user, "partition added");
    show(user, State(head), Path(name)).await
}

/// `POST /partitions/{name}`.
pub(crate) async fn change(
    user: User,
    State(head): State<Arc<Head>>,
    Path(name): Path<PartitionName>,
    Body(change): Body<PartitionChange>,
) -> Result<Json<PartitionView>, ApiError> {
    user.require_operator("change partitions")?;
    head.engine.command(Command::Partitions(PartitionsCommand::Change(name.clone(), change))).await?;
    tracing::info!(%name, by = user.0.user, "partition changed");
    show(user, State(head), Path(name)).await
}

/// `DELETE /partitions/{name}`.
pub(crate) async fn remove(
    user: User,
    State(head): State<Arc<Head>>,
    Path(name): Path<PartitionName>,
) -> Result<NoContent, ApiError> {
    user.require_operator("remove partitions")?;
    head.engine.command(Command::Partitions(PartitionsCommand::Remove(name.clone()))).await?;
    tracing::info!(%name, by = user.0.user, "partition removed");
    Ok(NoContent)
}
