//! What requests of operators and admins change, for the audit log: values before and after.

use std::collections::BTreeSet;

use hostler_core::head::Setting;
use hostler_model::{Quota, UserName};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::head::Head;

/// Maximum length of a description, in characters.
const LONGEST: usize = 2_000;

/// The values that requests on `path` can change, by the name of the partition, setting, user, group or node. Null for other
/// paths.
pub(crate) fn values(head: &Head, path: &str) -> Value {
    let state = head.engine.state();
    let values: Map<String, Value> = match path.split('/').nth(1) {
        Some("partitions") => {
            let each = state.partitions.iter().map(|it| (it.name.to_string(), value(it)));
            each.chain([("default".to_owned(), value(&state.partitions.default()))]).collect()
        }
        Some("settings") => {
            let text = |setting: Setting| match state.settings.get(setting) {
                Some(value) => setting.write(value),
                None => setting.default_text(),
            };
            Setting::ALL.into_iter().map(|it| (it.to_string(), text(it).into())).collect()
        }
        Some("users") => state.users.iter().map(|it| (it.name.to_string(), value(it))).collect(),
        Some("groups") => {
            let quotas = |(name, quota, each): (&UserName, Quota, Quota)| {
                (name.to_string(), json!({ "quota": quota, "member-quota": each }))
            };
            state.users.groups().map(quotas).collect()
        }
        Some("nodes") => {
            let traits = |it| value(&state.partitions.traits(it));
            state
                .nodes()
                .map(|it| (it.name.to_string(), json!({ "drain": it.drain, "set": traits(&it.name) })))
                .collect()
        }
        _ => return Value::Null,
    };
    values.into()
}

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}

/// Describes how values differ, e.g. `batch.priority: 0 -> 5, batch.max_time_ms: none -> 60000`.
pub(crate) fn differences(before: &impl Serialize, after: &impl Serialize) -> String {
    let mut all = Vec::new();
    add_differences("", &value(before), &value(after), &mut all);
    all.join(", ").chars().take(LONGEST).collect()
}

fn add_differences(name: &str, before: &Value, after: &Value, all: &mut Vec<String>) {
    match (before, after) {
        _ if before == after => {}
        (Value::Object(before), Value::Object(after)) => {
            for key in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                let [before, after] = [before, after].map(|map| map.get(key).unwrap_or(&Value::Null));
                add_differences(&name, before, after, all);
            }
        }
        _ => all.push(format!("{name}: {} -> {}", text(before), text(after))),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_the_value_before_and_after() {
        let before =
            json!({ "batch": { "priority": 0, "users": ["ada"], "max_time_ms": null }, "gone": { "priority": 1 } });
        let after = json!({ "batch": { "priority": 5, "users": [], "max_time_ms": null }, "new": "x" });
        let expected =
            r#"batch.priority: 0 -> 5, batch.users: ["ada"] -> [], gone: {"priority":1} -> none, new: none -> x"#;
        assert_eq!(differences(&before, &after), expected);
        assert_eq!(differences(&after, &after), "");
    }
}
