//! Reads rosters: CSV files of users with the columns name, uid, role, groups and ssh key.

use std::collections::{BTreeMap, BTreeSet};

use csv::{ReaderBuilder, StringRecord, Trim};
use hostler_model::UserName;
use hostler_proto::users::AddUser;

const COLUMNS: [&str; 5] = ["name", "uid", "role", "groups", "ssh key"];

/// Maximum number of problems to report.
const MAX_PROBLEMS: usize = 20;

/// Parses a roster. Returns the users, or the problems with their line numbers.
pub(super) fn read(text: &str) -> Result<Vec<AddUser>, Vec<String>> {
    let text = text.trim_start_matches('\u{feff}');
    let mut users = Vec::new();
    let mut problems = Vec::new();
    let mut seen: BTreeMap<UserName, usize> = BTreeMap::new();
    let rows = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    for (at, row) in rows.into_records().enumerate() {
        let row = row.expect("text in memory is read, and is UTF-8");
        let is_heading = at == 0 && row.get(0).is_some_and(|first| first.eq_ignore_ascii_case(COLUMNS[0]));
        if is_heading || row.iter().all(str::is_empty) {
            continue;
        }
        let line = line_of(&row, text);
        match user(&row) {
            Ok(user) => match seen.insert(user.name.clone(), line) {
                Some(earlier) => problems.push(format!("line {line}: {} is already in line {earlier}", user.name)),
                None => users.push(user),
            },
            Err(why) => problems.push(format!("line {line}: {why}")),
        }
    }
    if users.is_empty() && problems.is_empty() {
        problems.push("the file contains no user".to_owned());
    }
    problems.truncate(MAX_PROBLEMS);
    if problems.is_empty() { Ok(users) } else { Err(problems) }
}

/// Returns the number of a row's first line. The CSV reader reports the position of the blank lines and comments before
/// the row, so this function skips them.
fn line_of(row: &StringRecord, text: &str) -> usize {
    let position = row.position().expect("it was read from a text");
    let before = &text[position.byte() as usize..];
    let skipped = before.lines().take_while(|line| line.is_empty() || line.starts_with('#')).count();
    position.line() as usize + skipped
}

fn user(fields: &StringRecord) -> Result<AddUser, String> {
    if fields.len() > COLUMNS.len() {
        return Err(format!("{} columns instead of at most {}: {}", fields.len(), COLUMNS.len(), COLUMNS.join(", ")));
    }
    if fields.iter().any(|field| field.contains('\n')) {
        return Err("a quote is not closed".to_owned());
    }
    let field = |at: usize| fields.get(at).filter(|field| !field.is_empty());
    let name = field(0).ok_or("the name is missing")?.parse().map_err(|error| format!("{error}"))?;
    let uid = field(1).map(|uid| uid.parse::<u32>().ok().filter(|uid| *uid >= 1000).ok_or(uid)).transpose();
    let uid = uid.map_err(|uid| format!("`{uid}` is not a uid of 1000 or more"))?;
    let role = field(2).map(str::parse).transpose().map_err(|error| format!("{error}"))?.unwrap_or_default();
    let groups = field(3).unwrap_or_default().split(';').map(str::trim).filter(|group| !group.is_empty());
    let groups: Result<BTreeSet<UserName>, _> = groups.map(str::parse).collect();
    let groups = groups.map_err(|error| format!("group {error}"))?;
    Ok(AddUser { name, uid, role, groups, keys: field(4).map(str::to_owned).into_iter().collect() })
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
        let text = "name,uid\n.ada,2000\n\n# b\nben,12\r\ncy,,boss\r\ndan,,,-x\ned,,,,,\nflo\nflo\n,5\n ,,\ndan2,\"\nx";
        let problems = read(text).expect_err("an invalid roster");
        let lines: Vec<&str> = problems.iter().map(|problem| problem.split(':').next().expect("a line")).collect();
        assert_eq!(lines, ["line 2", "line 5", "line 6", "line 7", "line 8", "line 10", "line 11", "line 13"]);
        assert!(problems[5].contains("flo is already in line 9"), "{}", problems[5]);
        assert_eq!(read("name,uid\n"), Err(vec!["the file contains no user".to_owned()]));
    }
}
