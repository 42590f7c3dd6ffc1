//! Settings of the head, and partitions.

use askama::Template;
use axum::response::{Html, Response};
use hostler_model::{
    ExclusiveRule, PartitionName, PartitionState, SandboxNetwork, SandboxRule, format_ms, parse_duration,
};
use hostler_proto::partitions::{NewPartition, PartitionChange, PartitionView};
use hostler_proto::settings::{NewValue, SettingSource, SettingView};
use serde_json::Value;

use super::people::names;
use crate::api::Refused;
use crate::form::Fields;
use crate::notice::Notice;
use crate::page::{Frame, render};
use crate::parts::Action;
use crate::url::Url;

const STATES: [PartitionState; 3] = [PartitionState::Open, PartitionState::Paused, PartitionState::Closed];
const RULES: [SandboxRule; 2] = [SandboxRule::Optional, SandboxRule::Always];
const EXCLUSIVE: [ExclusiveRule; 3] = ExclusiveRule::ALL;
const NETWORKS: [SandboxNetwork; 3] = [SandboxNetwork::None, SandboxNetwork::Job, SandboxNetwork::Host];

#[derive(Template)]
#[template(path = "settings.html")]
struct Settings {
    frame: Frame,
    settings: Vec<SettingView>,
    partitions: Vec<PartitionView>,
}

impl Settings {
    fn is_set(&self, setting: &SettingView) -> bool {
        setting.source == SettingSource::Set
    }

    fn reset(&self, setting: &SettingView) -> Action {
        let question = format!("Reset {} to {}?", setting.name, setting.default);
        self.action("Reset", "reset").field("setting", &setting.name).confirm(question)
    }

    fn remove(&self, partition: &PartitionView) -> Action {
        let question = format!("Remove the partition {}? Its nodes stay.", partition.name);
        self.action("Remove", "remove").field("name", partition.name.as_str()).confirm(question)
    }

    fn action(&self, label: &str, action: &str) -> Action {
        Action::new(Url::of(["settings"]), label, self.frame.token()).field("action", action)
    }

    fn time(&self, ms: &Option<u64>) -> String {
        ms.map(format_ms).unwrap_or_default()
    }

    fn list<T: ToString>(&self, all: &std::collections::BTreeSet<T>) -> String {
        all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    fn number(&self, number: &Option<u32>) -> String {
        number.map(|number| number.to_string()).unwrap_or_default()
    }
}

/// `GET /settings`.
pub(crate) async fn show(frame: Frame) -> Result<Html<String>, Refused> {
    let settings = frame.api.get("/settings").await?;
    let partitions = frame.api.get("/partitions").await?;
    Ok(render(&Settings { frame, settings, partitions }))
}

/// `POST /settings`.
pub(crate) async fn act(frame: Frame, fields: Fields) -> Result<Response, Refused> {
    let notice = match change(&frame, &fields).await {
        Ok(said) => Notice::good(said),
        Err(refused) => refused.notice(),
    };
    Ok(frame.redirect(&Url::of(["settings"]), notice))
}

async fn change(frame: &Frame, fields: &Fields) -> Result<String, Refused> {
    let setting = || {
        let name = fields.text("setting").ok_or_else(|| Refused::bad_request("the form names no setting"))?;
        Ok::<_, Refused>((name, Url::of(["settings", name])))
    };
    match fields.get("action").unwrap_or_default() {
        "set" => {
            let (name, url) = setting()?;
            let value = fields.text("value").unwrap_or_default().to_owned();
            let set: SettingView = frame.api.put(&url, &NewValue { value }).await?;
            Ok(format!("{name} is {}.", set.value))
        }
        "reset" => {
            let (name, url) = setting()?;
            let reset: SettingView = frame.api.delete(&url).await?;
            Ok(format!("{name} is {} again.", reset.value))
        }
        "add" => {
            let name = partition(fields)?;
            let body = NewPartition { name: name.clone(), about: partition_change(fields)? };
            let _: Value = frame.api.post("/partitions", &body).await?;
            Ok(format!("Partition {name} is added."))
        }
        "change" => {
            let name = partition(fields)?;
            let _: Value = frame.api.post(&Url::of(["partitions", name.as_str()]), &partition_change(fields)?).await?;
            Ok(format!("Changed partition {name}."))
        }
        "remove" => {
            let name = partition(fields)?;
            let _: Value = frame.api.delete(&Url::of(["partitions", name.as_str()])).await?;
            Ok(format!("Partition {name} is removed."))
        }
        other => Err(Refused::bad_request(format!("`{other}` is not an action on settings"))),
    }
}

fn partition(fields: &Fields) -> Result<PartitionName, Refused> {
    fields.read("name")?.ok_or_else(|| Refused::bad_request("a partition needs a name"))
}

/// What the form says about a partition. Fields of numbers and times that are empty keep their values.
fn partition_change(fields: &Fields) -> Result<PartitionChange, Refused> {
    let time = |name: &str| {
        let parsed = fields.text(name).map(parse_duration).transpose();
        let parsed = parsed.map_err(|error| Refused::bad_request(error.to_string()))?;
        Ok::<_, Refused>(parsed.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    };
    Ok(PartitionChange {
        nodes: fields.read("nodes")?,
        is_default: Some(fields.get("default").is_some()),
        state: fields.read("state")?,
        priority: fields.read("priority")?,
        default_time_ms: time("default_time")?,
        max_time_ms: time("max_time")?,
        max_nodes: fields.read("max_nodes")?,
        users: fields.get("users").map(names).transpose()?,
        groups: fields.get("groups").map(names).transpose()?,
        sandbox: fields.read("sandbox")?,
        sandbox_network: fields.read("sandbox_network")?,
        exclusive: fields.read("exclusive")?,
        ends_join_code: false,
    })
}
