//! `sacctmgr`: shows the only cluster, account and QOS that there are. What others would add exists already, in effect: jobs
//! may name any account and any QOS.

use std::ffi::OsString;

use hostler_slurm::getopt::{Opt, Takes};
use hostler_slurm::table::{Column, Style, choose, header};

use super::rows::{ACCOUNT, QOS};
use super::table::line;
use super::{CLUSTER, Ended, Outcome, VERSION, check_clusters, opt, own_name, parse, print, text};
use crate::context::Context;

pub(crate) const NAME: &str = "sacctmgr";

const USAGE: &str = "Usage: sacctmgr [OPTIONS...] COMMAND ENTITY [SPECIFICATIONS...]\n\
    \n\
    Commands: list, show; add, create, modify, delete and the like change nothing.\n\
    Entities: account, association, cluster, qos, tres, user and others.\n\
    \x20 -i, --immediate   commit changes at once\n\
    \x20 -n, --noheader    print no header\n\
    \x20 -p, --parsable    separate values by `|`, with one at the end of each line\n\
    \x20 -P, --parsable2   separate values by `|`\n\
    \x20 -s, --associations  show associations with users\n\
    \x20 -V, --version     print the version\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Associations,
    Clusters,
    Help,
    Nothing(&'static str),
    NoHeader,
    Parsable,
    Parsable2,
    Version,
}

const OPTIONS: &[Opt<Key>] = &[
    opt(Key::Associations, "associations", b's', Takes::Nothing),
    opt(Key::Clusters, "clusters", b'M', Takes::Value),
    opt(Key::Help, "help", b'h', Takes::Nothing),
    opt(Key::Nothing("immediate"), "immediate", b'i', Takes::Nothing),
    opt(Key::Nothing("json"), "json", 0, Takes::Attached),
    opt(Key::NoHeader, "noheader", b'n', Takes::Nothing),
    opt(Key::Nothing("oneliner"), "oneliner", b'o', Takes::Nothing),
    opt(Key::Parsable, "parsable", b'p', Takes::Nothing),
    opt(Key::Parsable2, "parsable2", b'P', Takes::Nothing),
    opt(Key::Nothing("quiet"), "quiet", b'Q', Takes::Nothing),
    opt(Key::Nothing("readonly"), "readonly", b'r', Takes::Nothing),
    opt(Key::Help, "usage", 0, Takes::Nothing),
    opt(Key::Nothing("verbose"), "verbose", b'v', Takes::Nothing),
    opt(Key::Version, "version", b'V', Takes::Nothing),
];

/// What `sacctmgr` can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entity {
    Account,
    Association,
    Cluster,
    Qos,
    Tres,
    User,
    /// Things that this cluster does not have.
    None,
}

/// Each entity by a name with the length of its shortest abbreviation.
const ENTITIES: &[(Entity, &str, usize)] = &[
    (Entity::Account, "accounts", 3),
    (Entity::Association, "associations", 2),
    (Entity::Cluster, "clusters", 2),
    (Entity::None, "configuration", 2),
    (Entity::None, "coordinators", 2),
    (Entity::None, "events", 1),
    (Entity::None, "federations", 1),
    (Entity::None, "jobs", 1),
    (Entity::None, "problems", 1),
    (Entity::Qos, "qos", 1),
    (Entity::None, "reservations", 3),
    (Entity::None, "resources", 3),
    (Entity::None, "runawayjobs", 2),
    (Entity::None, "stats", 2),
    (Entity::None, "transactions", 1),
    (Entity::Tres, "tres", 2),
    (Entity::User, "users", 1),
    (Entity::None, "wckeys", 1),
];

/// All columns, with their usual widths. A negative width stands for values at the left.
const COLUMNS: &[Column] = &[
    Column::new("Account", 10),
    Column::new("Admin", 9),
    Column::new("Classification", 14),
    Column::new("Cluster", 10),
    Column::new("ControlHost", 15),
    Column::new("ControlPort", 12),
    Column::new("Coord Accounts", 20),
    Column::new("Def Acct", 10),
    Column::new("Def QOS", 9),
    Column::new("Def WCKey", 10),
    Column::new("DefaultAccount", 14),
    Column::new("DefaultQOS", 10),
    Column::new("Descr", 20),
    Column::new("Description", 20),
    Column::new("Fairshare", 9),
    Column::new("Flags", 20),
    Column::new("GraceTime", 10),
    Column::new("GrpJobs", 7),
    Column::new("GrpSubmit", 9),
    Column::new("GrpTRES", 13),
    Column::new("GrpTRESMins", 13),
    Column::new("GrpTRESRunMins", 13),
    Column::new("GrpWall", 11),
    Column::new("ID", 6),
    Column::new("LFT", 6),
    Column::new("MaxJobs", 7),
    Column::new("MaxJobsPU", 9),
    Column::new("MaxSubmit", 9),
    Column::new("MaxSubmitPU", 11),
    Column::new("MaxTRES", 13),
    Column::new("MaxTRESMins", 13),
    Column::new("MaxTRESPerNode", 14),
    Column::new("MaxTRESPU", 13),
    Column::new("MaxWall", 11),
    Column::new("MinTRES", 13),
    Column::new("Name", 10),
    Column::new("NodeCount", 9),
    Column::new("Org", 20),
    Column::new("Organization", 20),
    Column::new("ParentName", 10),
    Column::new("Partition", 10),
    Column::new("Preempt", 10),
    Column::new("PreemptExemptTime", 19),
    Column::new("PreemptMode", 11),
    Column::new("Priority", 10),
    Column::new("QOS", 20),
    Column::new("RGT", 6),
    Column::new("RPC", 5),
    Column::new("Share", 9),
    Column::new("TRES", 20),
    Column::new("Type", 8),
    Column::new("UsageFactor", 11),
    Column::new("UsageThres", 10),
    Column::new("User", 10),
];

impl Entity {
    /// The usual columns.
    const fn columns(self) -> &'static str {
        match self {
            Self::Account => "Account,Descr,Org",
            Self::Association => {
                "Cluster,Account,User,Partition,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs,\
                 MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,Def QOS,GrpTRESRunMins"
            }
            Self::Cluster => {
                "Cluster,ControlHost,ControlPort,RPC,Share,GrpJobs,GrpTRES,GrpSubmit,MaxJobs,MaxTRES,MaxSubmit,MaxWall,\
                 QOS,Def QOS"
            }
            Self::Qos => {
                "Name,Priority,GraceTime,Preempt,PreemptExemptTime,PreemptMode,Flags%40,UsageThres,UsageFactor,GrpTRES,\
                 GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpSubmit,GrpWall,MaxTRES,MaxTRESPerNode,MaxTRESMins,MaxWall,MaxTRESPU,\
                 MaxJobsPU,MaxSubmitPU,MinTRES"
            }
            Self::Tres => "Type,Name%15,ID",
            Self::User => "User,Def Acct,Admin",
            Self::None => "",
        }
    }
}

/// Slurm's kinds of resources.
const TRES: &[(&str, &str)] = &[
    ("cpu", ""),
    ("mem", ""),
    ("energy", ""),
    ("node", ""),
    ("billing", ""),
    ("fs", "disk"),
    ("vmem", ""),
    ("pages", ""),
];

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
    let given = parse(NAME, OPTIONS, args)?;
    let (mut style, mut has_header, mut associations) = (Style::Padded, true, false);
    for (key, value) in &given.options {
        match key {
            Key::Help => return Ok(print(context, USAGE)),
            Key::Version => return Ok(print(context, &format!("{VERSION}\n"))),
            Key::Clusters => check_clusters(&text(value.as_ref()))?,
            Key::Associations => associations = true,
            Key::NoHeader => has_header = false,
            Key::Parsable => style = Style::Parsable,
            Key::Parsable2 => style = Style::Parsable2,
            Key::Nothing(_) => {}
        }
    }
    let words: Vec<String> = given.operands.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let [verb, rest @ ..] = words.as_slice() else { return Ok(print(context, USAGE)) };
    match command(verb) {
        Command::Unknown => Err(Ended::plain(format!("invalid keyword: {verb}"))),
        Command::Nothing => Ok(0),
        Command::Version => Ok(print(context, &format!("{VERSION}\n"))),
        Command::Help => Ok(print(context, USAGE)),
        Command::Change(answer) => {
            entity_of(verb, rest)?;
            Ok(print(context, answer))
        }
        Command::Show => {
            let entity = entity_of(verb, rest)?;
            let mut query = Query::parse(&rest[1..]);
            query.with_associations |= associations;
            Ok(print(context, &table(entity, &query, &own_name()?, style, has_header)?))
        }
    }
}

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Show,
    /// Changes nothing, and says so.
    Change(&'static str),
    Help,
    Version,
    Nothing,
    Unknown,
}

fn command(word: &str) -> Command {
    let word = word.to_ascii_lowercase();
    let is = |name: &str, least: usize| word.len() >= least && name.starts_with(&word);
    match () {
        () if is("show", 1) || is("list", 1) => Command::Show,
        () if is("add", 3) || is("create", 2) => Command::Change(" Nothing new added.\n"),
        () if is("modify", 1) || is("reconfigure", 5) => Command::Change(" Nothing modified\n"),
        () if is("delete", 3) || is("remove", 3) => Command::Change(" Nothing deleted\n"),
        () if is("help", 2) => Command::Help,
        () if is("version", 4) => Command::Version,
        () if [
            "exit",
            "quit",
            "load",
            "dump",
            "archive",
            "ping",
            "readonly",
            "verbose",
            "associations",
            "shutdown",
        ]
        .iter()
        .any(|name| is(name, 3)) =>
        {
            Command::Nothing
        }
        () => Command::Unknown,
    }
}

/// The entity that a command is about.
fn entity_of(verb: &str, rest: &[String]) -> Result<Entity, Ended> {
    let verb = if verb == "show" { "list" } else { verb };
    let missing = || {
        Ended::plain(format!("No valid entity in {verb} command"))
            .and_plain("Input line must include \"Account\", \"Association\", \"Cluster\", \"Configuration\",")
            .and_plain("\"Event\", \"Federation\", \"Problem\", \"QOS\", \"Resource\", \"Reservation\",")
            .and_plain("\"RunAwayJobs\", \"Stats\", \"Transaction\", \"TRES\", \"User\", or \"WCKey\"")
    };
    let word = rest.first().ok_or_else(missing)?.to_ascii_lowercase();
    let word = word.split('=').next().unwrap_or_default();
    let suits = |(_, name, least): &&(Entity, &str, usize)| word.len() >= *least && name.starts_with(word);
    ENTITIES.iter().find(suits).map(|(entity, ..)| *entity).ok_or_else(missing)
}

impl Query {
    /// Parses conditions such as `user=ada format=account%20 withassoc`, with or without `where`.
    fn parse(words: &[String]) -> Self {
        let mut query = Self::default();
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let name = name.to_ascii_lowercase();
            let is = |known: &str, least: usize| name.len() >= least && known.starts_with(&name);
            let values = || super::items(value).into_iter();
            match () {
                () if !word.contains('=') && is("withassoc", 5) => query.with_associations = true,
                () if !word.contains('=') && (is("where", 5) || is("set", 3) || is("withdeleted", 5)) => {}
                () if !word.contains('=') => query.names.extend(super::items(word)),
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
            _ => ACCOUNT,
        };
        has(&self.users, user)
            && has(&self.accounts, ACCOUNT)
            && has(&self.clusters, CLUSTER)
            && has(&self.names, named)
    }
}

/// Everything that a query prints.
fn table(entity: Entity, query: &Query, user: &str, style: Style, has_header: bool) -> Result<String, Ended> {
    let list = query.format.as_deref().unwrap_or(entity.columns());
    let with_associations = query.with_associations && entity == Entity::User && query.format.is_none();
    let list = if with_associations { format!("{list},{}", Entity::Association.columns()) } else { list.to_owned() };
    let columns = choose(&list, COLUMNS).map_err(|name| Ended::plain(format!("Unknown field '{name}'")))?;
    let mut text = if has_header && !columns.is_empty() { header(&columns, style) } else { String::new() };
    let row = |kind: &str, name: &str, id: usize| {
        let values: Vec<String> =
            columns.iter().map(|column| value(entity, column.name, user, kind, name, id)).collect();
        line(&columns, &values, style)
    };
    match entity {
        Entity::None => {}
        Entity::Tres => {
            text.extend(TRES.iter().enumerate().map(|(at, (kind, name))| row(kind, name, at + 1)));
        }
        // Programs take a list of nothing but accounts for all accounts that a user may name. Here every account is valid.
        Entity::User | Entity::Association if matches!(columns.as_slice(), [only] if only.name == "Account") => {}
        _ if query.takes(entity, user) => text.push_str(&row("", QOS, 1)),
        _ => {}
    }
    Ok(text)
}

/// The value of a column; empty if there is no limit or the like.
fn value(entity: Entity, column: &str, user: &str, kind: &str, name: &str, id: usize) -> String {
    match (entity, column) {
        (Entity::Tres, "Type") => kind.to_owned(),
        (Entity::Tres, "Name") => name.to_owned(),
        (_, "ID") => id.to_string(),
        (Entity::Qos, "Name") | (_, "QOS" | "Def QOS" | "DefaultQOS") => QOS.to_owned(),
        (_, "Account" | "Def Acct" | "DefaultAccount" | "Descr" | "Description" | "Org" | "Organization") => {
            ACCOUNT.to_owned()
        }
        (_, "User") => user.to_owned(),
        (_, "Cluster" | "ControlHost") => CLUSTER.to_owned(),
        (Entity::User, "Admin") => "None".to_owned(),
        (Entity::Association | Entity::Cluster | Entity::User, "Share" | "Fairshare") => "1".to_owned(),
        (Entity::Qos, "Priority") | (_, "ControlPort" | "RPC") => "0".to_owned(),
        (Entity::Qos, "GraceTime") => "00:00:00".to_owned(),
        (Entity::Qos, "PreemptMode") => "cluster".to_owned(),
        (Entity::Qos, "UsageFactor") => "1.000000".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &str, style: Style, has_header: bool) -> String {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let entity = entity_of("show", &words).expect("an entity");
        table(entity, &Query::parse(&words[1..]), "ada", style, has_header).expect("a table")
    }

    #[test]
    fn entities_are_shown() {
        assert_eq!(
            shown("user", Style::Padded, true),
            "      User   Def Acct     Admin \n---------- ---------- --------- \n       ada    default      None \n"
        );
        let associations = shown("users withassoc", Style::Parsable2, true);
        assert!(associations.starts_with("User|Def Acct|Admin|Cluster|Account|User|"), "{associations}");
        assert_eq!(
            shown("users withassoc format=account,qos where user=ada cluster=hostler", Style::Parsable2, false),
            "default|normal\n"
        );
        assert_eq!(shown("users format=account,qos where user=eve", Style::Parsable2, false), "");
        assert_eq!(shown("user ada format=account%256", Style::Padded, false), "");
        assert_eq!(shown("cluster format=cluster", Style::Parsable, true), "Cluster|\nhostler|\n");
        assert_eq!(shown("qos format=name,priority", Style::Parsable2, false), "normal|0\n");
        assert_eq!(shown("acc", Style::Parsable2, false), "default|default|default\n");
        let assoc = shown("assoc format=cluster,account,user,qos", Style::Parsable2, true);
        assert_eq!(assoc, "Cluster|Account|User|QOS\nhostler|default|ada|normal\n");
        let tres = shown("tres", Style::Padded, true);
        assert!(
            tres.starts_with("    Type            Name     ID \n-------- --------------- ------ \n     cpu  "),
            "{tres}"
        );
        assert!(tres.contains("\n      fs            disk      6 \n"), "{tres}");
    }

    #[test]
    fn commands_are_abbreviated() {
        assert_eq!((command("list"), command("sho"), command("l")), (Command::Show, Command::Show, Command::Show));
        assert_eq!(command("create"), Command::Change(" Nothing new added.\n"));
        assert_eq!(
            (command("del"), command("mod")),
            (Command::Change(" Nothing deleted\n"), Command::Change(" Nothing modified\n"))
        );
        assert_eq!(command("bogus"), Command::Unknown);
        assert!(entity_of("add", &[]).is_err() && entity_of("add", &["bogus".to_owned()]).is_err());
        assert_eq!(entity_of("add", &["user".to_owned()]).expect("an entity"), Entity::User);
    }
}
