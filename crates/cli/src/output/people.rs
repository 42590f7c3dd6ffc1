//! Text views of users, groups and the audit log.

use hostler_model::{Quota, QuotaKind};
use hostler_proto::users::{AuditEntry, BlockView, FROM_CLUSTER, GroupView, UserView};

use super::table::{Align, Table, one_line};
use super::text::Moment;

pub(crate) fn users(users: &[UserView], width: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("UID", Align::Right),
        ("ROLE", Align::Left),
        ("KEYS", Align::Right),
        ("GROUPS", Align::Left),
        ("QUOTA", Align::Left),
        ("STATUS", Align::Left),
    ]);
    for user in users {
        table.row([
            user.name.to_string(),
            user.uid.to_string(),
            user.role.to_string(),
            user.keys.len().to_string(),
            groups_of(user),
            if user.limits().is_unlimited() { String::new() } else { quota(&user.limits()) },
            status(user),
        ]);
    }
    table.render(width)
}

/// Whether the user is removed or blocked; empty for an ordinary user.
fn status(user: &UserView) -> String {
    match (user.added, &user.blocked) {
        (true, None) => String::new(),
        (false, None) => "removed".to_owned(),
        (_, Some(BlockView { by, reason: None, .. })) => format!("blocked by {by}"),
        (_, Some(BlockView { by, reason: Some(reason), .. })) => format!("blocked by {by}: {reason}"),
    }
}

pub(crate) fn user(user: &UserView) -> String {
    let mut text = format!("name    {}\nuid     {}\nrole    {}\n", user.name, user.uid, user.role);
    if !user.groups.is_empty() {
        text.push_str(&format!("groups  {}\n", groups_of(user)));
    }
    text.push_str(&format!("quota   {}\n", quota(&user.limits())));
    if user.limits() != user.quota {
        text.push_str(&format!("own     {}\n", quota(&user.quota)));
    }
    let status = status(user);
    if !status.is_empty() {
        text.push_str(&format!("status  {}\n", one_line(&status)));
    }
    for key in &user.keys {
        text.push_str(&format!("key     {}\n", one_line(key)));
    }
    text
}

fn groups_of(user: &UserView) -> String {
    user.groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A quota, e.g. `at most 4 CPUs, 100 tasks waiting`.
pub(crate) fn quota(quota: &Quota) -> String {
    let parts = [
        quota.cpus.map(|cpus| QuotaKind::Cpus.amount(cpus)),
        quota.memory_bytes.map(|bytes| QuotaKind::Memory.amount(bytes)),
        quota.jobs.map(|jobs| format!("{} running", QuotaKind::Jobs.amount(jobs))),
        quota.queued.map(|queued| format!("{} waiting", QuotaKind::Jobs.amount(queued))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "no limits".to_owned() } else { format!("at most {}", parts.join(", ")) }
}

pub(crate) fn groups(groups: &[GroupView], width: Option<usize>) -> String {
    let mut table = Table::new(&[("GROUP", Align::Left), ("QUOTA", Align::Left), ("EACH USER", Align::Left)]);
    for GroupView { name, quota: shared, member_quota } in groups {
        table.row([name.to_string(), quota(shared), quota(member_quota)]);
    }
    table.render(width)
}

pub(crate) fn audit(entries: &[AuditEntry], moment: &Moment, width: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("TIME", Align::Left),
        ("USER", Align::Left),
        ("FROM", Align::Left),
        ("RESULT", Align::Left),
        ("ACTION", Align::Left),
        ("ABOUT", Align::Left),
    ]);
    for entry in entries {
        table.row([
            moment.date(entry.at),
            entry.user.clone().unwrap_or_else(|| "-".to_owned()),
            origin(entry),
            match &entry.error {
                Some(error) => error.clone(),
                None if entry.from == FROM_CLUSTER => "-".to_owned(),
                None => "done".to_owned(),
            },
            entry.action.clone(),
            entry.about.clone().unwrap_or_default(),
        ]);
    }
    table.render(width)
}

/// E.g. `socket uid 1000`, `node n1 uid 1000`, `token 192.0.2.7`.
fn origin(entry: &AuditEntry) -> String {
    let mut text = entry.from.clone();
    if let Some(node) = &entry.node {
        text.push_str(&format!(" {node}"));
    } else if let Some(address) = &entry.address {
        text.push_str(&format!(" {address}"));
    }
    if let Some(uid) = entry.uid {
        text.push_str(&format!(" uid {uid}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use hostler_model::WallTime;
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn quota_lists_its_limits() {
        assert_eq!(quota(&Quota::default()), "no limits");
        let some = Quota { cpus: Some(4), queued: Some(100), ..Quota::default() };
        assert_eq!(quota(&some), "at most 4 CPUs, 100 tasks waiting");
        let one = Quota { cpus: Some(1), memory_bytes: Some(1 << 30), jobs: Some(1), ..Quota::default() };
        assert_eq!(quota(&one), "at most 1 CPU, 1G of memory, 1 task running");
    }

    #[test]
    fn audit_log_shows_user_origin_and_result() {
        let entry = |user: Option<&str>, from: &str, error: Option<&str>| AuditEntry {
            at: WallTime(0),
            clock_ms: 0,
            user: user.map(str::to_owned),
            from: from.to_owned(),
            uid: (from == "node").then_some(1000),
            node: (from == "node").then(|| "n1".parse().expect("a valid name")),
            address: Some("192.0.2.7".to_owned()),
            action: "POST /jobs".to_owned(),
            about: error.is_none().then(|| "job 3".to_owned()),
            status: 200,
            error: error.map(str::to_owned),
        };
        let moment = Moment { now: WallTime(0), zone: TimeZone::UTC };
        let text = audit(&[entry(Some("ada"), "node", None), entry(None, "stranger", Some("bad_key"))], &moment, None);
        let expected = "\
TIME                 USER  FROM                RESULT   ACTION      ABOUT
1970-01-01 00:00:00  ada   node n1 uid 1000    done     POST /jobs  job 3
1970-01-01 00:00:00  -     stranger 192.0.2.7  bad_key  POST /jobs
";
        assert_eq!(text, expected);
    }
}
