//! Reads rosters: CSV files of users with the columns name, uid, role, groups and ssh key.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::UserName;
use hostler_proto::users::AddUser;

const COLUMNS: [&str; 5] = ["name", "uid", "role", "groups", "ssh key"];

/// Maximum number of problems to report.
const MOST_PROBLEMS: usize = 20;

/// Parses a roster. Returns the users, or the problems with their line numbers.
pub(super) fn read(text: &str) -> Result<Vec<AddUser>, Vec<String>> {
    let mut users = Vec::new();
    let mut problems = Vec::new();
    let mut seen: BTreeMap<UserName, usize> = BTreeMap::new();
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate().map(|(at, line)| (at + 1, line)) {
        if line.trim().is_empty() || line.trim_start().starts_with('#') || (number == 1 && is_heading(line)) {
            continue;
        }
        match fields(line).and_then(|fields| user(&fields)) {
            Ok(user) => match seen.insert(user.name.clone(), number) {
                Some(earlier) => problems.push(format!("line {number}: {} is already in line {earlier}", user.name)),
                None => users.push(user),
            },
            Err(why) => problems.push(format!("line {number}: {why}")),
        }
    }
    if users.is_empty() && problems.is_empty() {
        problems.push("the file contains no user".to_owned());
    }
    problems.truncate(MOST_PROBLEMS);
    if problems.is_empty() { Ok(users) } else { Err(problems) }
}

fn is_heading(line: &str) -> bool {
    fields(line).is_ok_and(|fields| fields.first().is_some_and(|first| first.eq_ignore_ascii_case(COLUMNS[0])))
}

fn user(fields: &[String]) -> Result<AddUser, String> {
    if fields.len() > COLUMNS.len() {
        return Err(format!("{} columns instead of at most {}: {}", fields.len(), COLUMNS.len(), COLUMNS.join(", ")));
    }
    let field = |at: usize| fields.get(at).map(|field| field.trim()).filter(|field| !field.is_empty());
    let name = field(0).ok_or("the name is missing")?.parse().map_err(|error| format!("{error}"))?;
    let uid = field(1).map(|uid| uid.parse::<u32>().ok().filter(|uid| *uid >= 1000).ok_or(uid)).transpose();
    let uid = uid.map_err(|uid| format!("`{uid}` is not a uid of 1000 or more"))?;
    let role = field(2).map(str::parse).transpose().map_err(|error| format!("{error}"))?.unwrap_or_default();
    let groups = field(3).unwrap_or_default().split(';').map(str::trim).filter(|group| !group.is_empty());
    let groups: Result<BTreeSet<UserName>, _> = groups.map(str::parse).collect();
    let groups = groups.map_err(|error| format!("group {error}"))?;
    Ok(AddUser { name, uid, role, groups, keys: field(4).map(str::to_owned).into_iter().collect() })
}

/// Splits a line into its fields. A quoted field may contain commas; two quotes in it mean one quote.
fn fields(line: &str) -> Result<Vec<String>, String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars().peekable();
    let mut is_quoted = false;
    while let Some(c) = characters.next() {
        let field = fields.last_mut().expect("the list of fields is never empty");
        match (c, is_quoted) {
            ('"', true) if characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            ('"', true) => is_quoted = false,
            ('"', false) if field.trim().is_empty() => {
                field.clear();
                is_quoted = true;
            }
            (',', false) => fields.push(String::new()),
            (c, _) => field.push(c),
        }
    }
    if is_quoted { Err("a quote is not closed".to_owned()) } else { Ok(fields) }
}

#[cfg(test)]
mod tests {
    use hostler_model::Role;

    use super::*;

    #[test]
    fn spreadsheet_csv_is_parsed() {
        let text = "\u{feff}Name,uid,role,groups,ssh key\r\nada,2000,admin,lab;a1,\"ssh-ed25519 AAAA ada, at home\"\r\n\r\n# gone\nben\ncy,,,,\n";
        let users = read(text).expect("a valid roster");
        assert_eq!(users.len(), 3);
        assert_eq!((users[0].uid, users[0].role, users[0].groups.len()), (Some(2000), Role::Admin, 2));
        assert_eq!(users[0].keys, ["ssh-ed25519 AAAA ada, at home"]);
        assert_eq!((users[1].name.as_str(), users[1].uid, users[2].keys.len()), ("ben", None, 0));
    }

    #[test]
    fn mistakes_are_reported_with_line_numbers() {
        let text = "name,uid\nAda,2000\nben,12\ncy,,boss\ndan,,,-x\ndan2,\"\ned,,,,,\nflo\nflo\n,5\n";
        let problems = read(text).expect_err("an invalid roster");
        let lines: Vec<&str> = problems.iter().map(|problem| problem.split(':').next().expect("a line")).collect();
        assert_eq!(lines, ["line 2", "line 3", "line 4", "line 5", "line 6", "line 7", "line 9", "line 10"]);
        assert!(problems[6].contains("flo is already in line 8"), "{}", problems[6]);
        assert_eq!(read("name,uid\n"), Err(vec!["the file contains no user".to_owned()]));
    }
}
