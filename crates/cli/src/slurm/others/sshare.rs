//! `sshare`: the fair share of the calling user. Hostler gives all users equal shares and does not count past use.

use std::ffi::OsString;

use hostler_slurm::getopt::{Opt, Takes};
use hostler_slurm::table::{Column, Style, choose, header};

use super::super::rows::ACCOUNT;
use super::super::table::line;
use super::super::{CLUSTER, Ended, Outcome, VERSION, check_clusters, items, opt, own_name, parse, print, text};
use crate::context::Context;

pub(crate) const NAME: &str = "sshare";

const USAGE: &str = "Usage: sshare [-aAelmMnopPuUvV]\n";

const USUAL: &str = "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare";
const LONG: &str =
    "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,GrpTRESMins,TRESRunMins";

const COLUMNS: &[Column] = &[
    Column::new("Account", -20),
    Column::new("Cluster", 10),
    Column::new("EffectvUsage", 13),
    Column::new("FairShare", 10),
    Column::new("GrpTRESMins", 30),
    Column::new("GrpTRESRaw", 30),
    Column::new("ID", 6),
    Column::new("LevelFS", 10),
    Column::new("NormShares", 11),
    Column::new("NormUsage", 11),
    Column::new("Partition", 12),
    Column::new("RawShares", 10),
    Column::new("RawUsage", 11),
    Column::new("TRESRunMins", 30),
    Column::new("User", 10),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Accounts,
    Clusters,
    Format,
    Help,
    HelpFormat,
    Long,
    NoHeader,
    Nothing(&'static str),
    Parsable,
    Parsable2,
    User,
    Users,
    Version,
}

const OPTIONS: &[Opt<Key>] = &[
    opt(Key::Accounts, "accounts", b'A', Takes::Value),
    opt(Key::Nothing("all"), "all", b'a', Takes::Nothing),
    opt(Key::Clusters, "clusters", b'M', Takes::Value),
    opt(Key::Format, "format", b'o', Takes::Value),
    opt(Key::Help, "help", 0, Takes::Nothing),
    opt(Key::HelpFormat, "helpformat", b'e', Takes::Nothing),
    opt(Key::Nothing("json"), "json", 0, Takes::Attached),
    opt(Key::Long, "long", b'l', Takes::Nothing),
    opt(Key::NoHeader, "noheader", b'n', Takes::Nothing),
    opt(Key::NoHeader, "noheader", b'h', Takes::Nothing),
    opt(Key::Parsable, "parsable", b'p', Takes::Nothing),
    opt(Key::Parsable2, "parsable2", b'P', Takes::Nothing),
    opt(Key::Nothing("partition"), "partition", b'm', Takes::Nothing),
    opt(Key::Help, "usage", 0, Takes::Nothing),
    opt(Key::Users, "Users", b'U', Takes::Nothing),
    opt(Key::User, "users", b'u', Takes::Value),
    opt(Key::Nothing("verbose"), "verbose", b'v', Takes::Nothing),
    opt(Key::Version, "version", b'V', Takes::Nothing),
];

/// What to list.
#[derive(Debug, Default)]
struct Query {
    format: Option<String>,
    style: Style,
    no_header: bool,
    /// Whether to list users without their accounts.
    only_users: bool,
    accounts: Vec<String>,
    users: Vec<String>,
}

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let given = parse(NAME, OPTIONS, args)?;
    let mut query = Query::default();
    for (key, value) in &given.options {
        let value = text(value.as_ref());
        match key {
            Key::Help => return Ok(print(context, USAGE)),
            Key::HelpFormat => return Ok(print(context, &help_format(COLUMNS))),
            Key::Version => return Ok(print(context, &format!("{VERSION}\n"))),
            Key::Accounts => query.accounts.extend(items(&value)),
            Key::Clusters => check_clusters(&value)?,
            Key::Format => query.format = Some(value),
            Key::Long => query.format = Some(LONG.to_owned()),
            Key::NoHeader => query.no_header = true,
            Key::Parsable => query.style = Style::Parsable,
            Key::Parsable2 => query.style = Style::Parsable2,
            Key::User => query.users.extend(items(&value)),
            Key::Users => query.only_users = true,
            Key::Nothing(_) => {}
        }
    }
    Ok(print(context, &table(&query, &own_name()?)?))
}

/// The names of all columns, four per line.
pub(super) fn help_format(columns: &[Column]) -> String {
    let line = |some: &[Column]| some.iter().map(|column| format!("{:<19}", column.name)).collect::<Vec<_>>().join(" ");
    columns.chunks(4).map(|some| line(some) + "\n").collect()
}

fn table(query: &Query, user: &str) -> Result<String, Ended> {
    let Query { style, .. } = *query;
    let unknown = |name: String| Ended::error(format!("Invalid field requested: \"{name}\""));
    let columns = choose(query.format.as_deref().unwrap_or(USUAL), COLUMNS).map_err(unknown)?;
    let mut text = if query.no_header { String::new() } else { header(&columns, style) };
    // Programs take a list of nothing but accounts for all accounts that a user may name. Here every account is valid.
    if matches!(columns.as_slice(), [only] if only.name == "Account") {
        return Ok(text);
    }
    let has = |list: &[String], name: &str| list.is_empty() || list.iter().any(|item| item == name);
    if !has(&query.accounts, ACCOUNT) {
        return Ok(text);
    }
    let mut row = |account: &str, user: &str| {
        let values: Vec<String> = columns.iter().map(|column| value(column.name, account, user)).collect();
        text.push_str(&line(&columns, &values, style));
    };
    if !query.only_users {
        row(ACCOUNT, "");
    }
    if has(&query.users, user) {
        row(&format!("{}{ACCOUNT}", if query.only_users { "" } else { " " }), user);
    }
    Ok(text)
}

fn value(column: &str, account: &str, user: &str) -> String {
    match column {
        "Account" => account,
        "Cluster" => CLUSTER,
        "User" => user,
        "RawShares" => "1",
        "RawUsage" => "0",
        "NormShares" | "FairShare" => "1.000000",
        "NormUsage" | "EffectvUsage" => "0.000000",
        "LevelFS" => "inf",
        "TRESRunMins" => "cpu=0,mem=0,energy=0,node=0,b+",
        _ => "",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_listed() {
        let usual = table(&Query::default(), "ada").expect("a table");
        assert_eq!(
            usual,
            "Account                    User  RawShares  NormShares    RawUsage  EffectvUsage  FairShare \n\
             -------------------- ---------- ---------- ----------- ----------- ------------- ---------- \n\
             default                                  1    1.000000           0      0.000000   1.000000 \n \
             default                    ada          1    1.000000           0      0.000000   1.000000 \n"
        );
        let list = |format: &str| {
            let query = Query {
                format: Some(format.to_owned()),
                style: Style::Parsable2,
                no_header: true,
                only_users: true,
                ..Query::default()
            };
            table(&query, "ada").map_err(|ended| ended.texts().collect::<String>())
        };
        assert_eq!(list("account,fairshare").as_deref(), Ok("default|1.000000\n"));
        assert_eq!(list("Account%256").as_deref(), Ok(""));
        assert!(list("bogus").expect_err("no field").contains("bogus"));
        assert!(
            help_format(COLUMNS)
                .starts_with("Account             Cluster             EffectvUsage        FairShare          \n")
        );
    }
}
