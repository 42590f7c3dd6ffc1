//! `sacctmgr`: lists the cluster, its account and its QOS, with the names that other commands show for jobs that name none.
//!
//! Programs ask for these lists before they submit. Nothing can be changed: jobs may name any account and any QOS.

use std::ffi::OsString;

use hostler_slurm::getopt::Takes::{Nothing, Value};
use hostler_slurm::table::{Column, Style, choose, write_header};

use super::options::{self, Setter, checked, flag, nothing, prints, version};
use super::rows::{ACCOUNT, QOS};
use super::table::write_row;
use super::{CLUSTER, Ended, Outcome, check_clusters, items, own_name, print};
use crate::context::Context;

pub(crate) const NAME: &str = "sacctmgr";

const USAGE: &str = "Usage: sacctmgr [OPTIONS...] list|show ENTITY [SPECIFICATIONS...]\n\
    \n\
    Entities: account, association, cluster, qos or user.\n\
    \x20 -n, --noheader    print no header\n\
    \x20 -p, --parsable    separate values by `|`, with one at the end of each line\n\
    \x20 -P, --parsable2   separate values by `|`\n\
    \x20 -s, --associations  show associations with users\n\
    \x20 -V, --version     print the version\n";

const OPTIONS: &[Setter<Given>] = &[
    flag("associations", "s", |given| given.associations = true),
    checked("clusters", "M", Value, |_, list| list.map_or(Ok(()), check_clusters)),
    prints("help", "h", || USAGE.to_owned()),
    nothing("immediate", "i", Nothing),
    flag("noheader", "n", |given| given.no_header = true),
    nothing("oneliner", "o", Nothing),
    flag("parsable", "p", |given| given.style = Style::bars(true)),
    flag("parsable2", "P", |given| given.style = Style::bars(false)),
    nothing("quiet", "Q", Nothing),
    nothing("readonly", "r", Nothing),
    prints("usage", "", || USAGE.to_owned()),
    nothing("verbose", "v", Nothing),
    prints("version", "V", version),
];

/// The options as they were given.
#[derive(Default)]
struct Given {
    style: Style,
    no_header: bool,
    associations: bool,
}

/// What `sacctmgr` can list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entity {
    Account,
    Association,
    Cluster,
    Qos,
    User,
}

/// Each entity by a name with the length of its shortest abbreviation, and its usual columns.
const ENTITIES: &[(Entity, &str, usize, &str)] = &[
    (Entity::Account, "accounts", 3, "Account"),
    (Entity::Association, "associations", 2, "Cluster,Account,User,QOS,Def QOS"),
    (Entity::Cluster, "clusters", 2, "Cluster,QOS,Def QOS"),
    (Entity::Qos, "qos", 1, "Name"),
    (Entity::User, "users", 1, "User,Def Acct"),
];

/// All columns but the limits, with their usual widths.
const COLUMNS: &[Column] = &[
    Column::new("Account", 10),
    Column::new("Cluster", 10),
    Column::new("Def Acct", 10),
    Column::new("Def QOS", 9),
    Column::new("DefaultAccount", 14),
    Column::new("DefaultQOS", 10),
    Column::new("Description", 20),
    Column::new("Name", 10),
    Column::new("Organization", 20),
    Column::new("Partition", 10),
    Column::new("Priority", 10),
    Column::new("QOS", 20),
    Column::new("User", 10),
    Column::new("AdminLevel", 9),
    Column::new("Classification", 14),
    Column::new("ClusterNodes", 20),
    Column::new("Comment", 20),
    Column::new("ControlHost", 15),
    Column::new("ControlPort", 12),
    Column::new("Coordinators", 20),
    Column::new("DefaultWCKey", 10),
    Column::new("DefQOS", 9),
    Column::new("DefWCKey", 10),
    Column::new("Descr", 20),
    Column::new("Event", 7),
    Column::new("Fairshare", 9),
    Column::new("Features", 20),
    Column::new("Federation", 10),
    Column::new("FedState", 12),
    Column::new("Flags", 20),
    Column::new("GraceTime", 10),
    Column::new("ID", 6),
    Column::new("LFT", 6),
    Column::new("LimitFactor", 11),
    Column::new("NodeCount", 9),
    Column::new("NodeNames", 20),
    Column::new("ParentID", 6),
    Column::new("ParentName", 10),
    Column::new("PluginIDSelect", 14),
    Column::new("Preempt", 10),
    Column::new("PreemptExemptTime", 19),
    Column::new("PreemptMode", 11),
    Column::new("QOSLevel", 20),
    Column::new("QOSRAWLevel", 20),
    Column::new("RawUsage", 11),
    Column::new("RGT", 6),
    Column::new("RPC", 5),
    Column::new("Shares", 9),
    Column::new("TRES", 20),
    Column::new("UsageFactor", 11),
    Column::new("UsageRaw", 11),
    Column::new("UsageThreshold", 10),
    Column::new("WCKeys", 20),
    Column::new("WithSubAccounts", 10),
    Column::new("Acct", 10),
    Column::new("AccountName", 10),
    Column::new("AllowedPartitions", 17),
    Column::new("ClusterName", 11),
    Column::new("CPUCount", 9),
    Column::new("DefAcct", 10),
    Column::new("DefaultAcct", 11),
    Column::new("FedStateRaw", 12),
    Column::new("FlagsRaw", 10),
    Column::new("Lineage", 20),
    Column::new("PartitionName", 13),
    Column::new("QOSName", 10),
    Column::new("UserName", 10),
    Column::new("WOPLimits", 9),
];

/// How the names of limits begin, such as `MaxJobsPerUser`. Accounts and QOS have no limits, so that each has an empty value.
const LIMITS: [&str; 3] = ["grp", "max", "min"];

/// A query for entities.
#[derive(Debug, Default)]
struct Query {
    format: Option<String>,
    users: Vec<String>,
    accounts: Vec<String>,
    clusters: Vec<String>,
    names: Vec<String>,
    with_associations: bool,
}

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let mut given = Given::default();
    let operands = options::read(NAME, OPTIONS, args, &mut given)?;
    let words: Vec<String> = operands.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let [verb, rest @ ..] = words.as_slice() else { return Ok(print(context, USAGE)) };
    check_verb(verb)?;
    let (entity, usual) = entity_of(rest)?;
    let mut query = Query::parse(&rest[1..]);
    query.with_associations |= given.associations;
    Ok(print(context, &table(entity, usual, &query, &own_name()?, &given.style, !given.no_header)?))
}

/// Refuses other commands than `list` and `show`.
fn check_verb(word: &str) -> Result<(), Ended> {
    let lower = word.to_ascii_lowercase();
    let is = |names: &[&str]| names.iter().any(|name| name.starts_with(&lower));
    match () {
        () if is(&["list", "show"]) => Ok(()),
        () if is(&["add", "create", "modify", "delete", "remove"]) => {
            Err(Ended::error("accounts and QOS cannot be changed: jobs may name any account and any QOS")
                .and("hint: `hostler configure user` and `hostler configure group` change users, groups and quotas"))
        }
        () => Err(Ended::plain(format!("invalid keyword: {word}"))),
    }
}

/// The entity that a command is about, and its usual columns.
fn entity_of(rest: &[String]) -> Result<(Entity, &'static str), Ended> {
    let missing = || {
        Ended::plain("No valid entity in list command")
            .and_plain("Input line must include \"Account\", \"Association\", \"Cluster\", \"QOS\" or \"User\"")
    };
    let word = rest.first().ok_or_else(missing)?.to_ascii_lowercase();
    let word = word.split('=').next().unwrap_or_default();
    let found = ENTITIES.iter().find(|(_, name, least, _)| word.len() >= *least && name.starts_with(word));
    found.map(|(entity, .., usual)| (*entity, *usual)).ok_or_else(missing)
}

impl Query {
    /// Parses conditions such as `user=ada format=account%20 withassoc`, with or without `where`.
    fn parse(words: &[String]) -> Self {
        let mut query = Self::default();
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let name = name.to_ascii_lowercase();
            let is = |known: &str, least: usize| name.len() >= least && known.starts_with(&name);
            let values = || items(value).into_iter();
            match () {
                () if !word.contains('=') && is("withassoc", 5) => query.with_associations = true,
                () if !word.contains('=') && (is("where", 5) || is("withdeleted", 5)) => {}
                () if !word.contains('=') => query.names.extend(items(word)),
                () if is("format", 1) => query.format = Some(value.to_owned()),
                () if is("users", 1) => query.users.extend(values()),
                () if is("accounts", 2) => query.accounts.extend(values()),
                () if is("clusters", 1) => query.clusters.extend(values()),
                () if is("names", 1) => query.names.extend(values()),
                () => {}
            }
        }
        query
    }

    fn takes(&self, entity: Entity, user: &str) -> bool {
        let has = |list: &[String], name: &str| list.is_empty() || list.iter().any(|item| item == name);
        let named = match entity {
            Entity::User => user,
            Entity::Cluster => CLUSTER,
            Entity::Qos => QOS,
            Entity::Account | Entity::Association => ACCOUNT,
        };
        has(&self.users, user)
            && has(&self.accounts, ACCOUNT)
            && has(&self.clusters, CLUSTER)
            && has(&self.names, named)
    }
}

/// Everything that a query prints.
fn table(
    entity: Entity,
    usual: &str,
    query: &Query,
    user: &str,
    style: &Style,
    has_header: bool,
) -> Result<String, Ended> {
    let list = match &query.format {
        Some(format) => format.clone(),
        None if query.with_associations && entity == Entity::User => format!("{usual},Cluster,Account,QOS,Def QOS"),
        None => usual.to_owned(),
    };
    let columns = columns(&list).map_err(|name| Ended::plain(format!("Unknown field '{name}'")))?;
    let mut text = String::new();
    if has_header {
        write_header(&columns, style, &mut text);
    }
    // Programs take a list of nothing but accounts for all accounts that a user may name. Here every account is valid.
    let is_accounts = matches!(columns.as_slice(), [only] if only.name == "Account");
    let is_of_users = matches!(entity, Entity::User | Entity::Association);
    if query.takes(entity, user) && !(is_accounts && is_of_users) {
        write_row(&columns, style, &mut text, |column, out| out.push_str(value(&column.name, user)));
    }
    Ok(text)
}

/// Finds the columns of a list. The error is the first unknown name.
fn columns(list: &str) -> Result<Vec<Column>, String> {
    let names = list.split(',').filter_map(|item| item.split('%').next()).map(str::trim);
    let is_limit = |name: &&str| LIMITS.iter().any(|limit| name.to_ascii_lowercase().starts_with(limit));
    let limit = |name: &str| Column { name: name.to_owned().into(), ..Column::new("", 13) };
    let all: Vec<Column> = COLUMNS.iter().cloned().chain(names.filter(is_limit).map(limit)).collect();
    choose(list, &all)
}

/// The value of a column; empty for what accounts and QOS do not have.
fn value<'a>(column: &str, user: &'a str) -> &'a str {
    match column {
        "Account" | "Acct" | "AccountName" | "Def Acct" | "DefAcct" | "DefaultAcct" | "DefaultAccount" => ACCOUNT,
        "Name" | "QOS" | "QOSName" | "Def QOS" | "DefaultQOS" | "DefQOS" => QOS,
        "Cluster" | "ClusterName" => CLUSTER,
        "User" | "UserName" => user,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &str, style: &Style, has_header: bool) -> Result<String, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let (entity, usual) = entity_of(&words).expect("an entity");
        let shown = table(entity, usual, &Query::parse(&words[1..]), "ada", style, has_header);
        shown.map_err(|ended| ended.texts().collect())
    }

    #[test]
    fn entities_are_listed() {
        let padded = "      User   Def Acct \n---------- ---------- \n       ada    default \n";
        assert_eq!(shown("user", &Style::Padded, true).as_deref(), Ok(padded));
        for (words, expected) in [
            ("users withassoc", "ada|default|hostler|default|normal|normal\n"),
            ("users withassoc format=account,qos where user=ada cluster=hostler", "default|normal\n"),
            ("users format=account,qos where user=eve", ""),
            ("user ada format=account%256", ""),
            ("cluster format=cluster", "hostler\n"),
            ("qos format=name,MaxWall,maxTRESPerUser%20,priority", "normal|||\n"),
            ("qos format=name,UsageThreshold,LimitFactor,MaxTRESPerUser,GrpJobsAccrue,Flags", "normal|||||\n"),
            ("assoc format=ParentID,DefQOS,MaxSubmitJobs,GrpCPUs", "|normal||\n"),
            ("assoc format=Acct,UserName,ClusterName,Lineage", "default|ada|hostler|\n"),
            ("user format=user,AdminLevel,DefaultWCKey,Coordinators", "ada|||\n"),
            ("acc", "default\n"),
            ("assoc format=cluster,account,user,qos", "hostler|default|ada|normal\n"),
        ] {
            assert_eq!(shown(words, &Style::bars(false), false).as_deref(), Ok(expected), "{words}");
        }
        assert_eq!(
            shown("qos format=name,MaxWall", &Style::bars(true), true).as_deref(),
            Ok("Name|MaxWall|\nnormal||\n")
        );
        assert_eq!(shown("qos format=name,bogus", &Style::bars(true), true), Err("Unknown field 'bogus'".to_owned()));
    }

    #[test]
    fn other_commands_are_refused() {
        for word in ["list", "sho", "l"] {
            assert!(check_verb(word).is_ok(), "{word}");
        }
        for (word, text) in [("create", "cannot be changed"), ("del", "cannot be changed"), ("dump", "invalid keyword")]
        {
            let refused = check_verb(word).expect_err(word);
            assert!(refused.texts().next().is_some_and(|line| line.contains(text)), "{word}");
        }
        assert!(entity_of(&[]).is_err() && entity_of(&["runawayjobs".to_owned()]).is_err());
    }
}
